"""Running seeds: what can be made once and used for all of them is."""

import gc
import os
import tempfile
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path

from proof.simulator.coverage import Coverage
from proof.simulator.database import Database
from proof.simulator.sqlite import SQLiteFile
from proof.simulator.workload import TABLES
from proof.simulator.world import Outcome, World


class Simulator:
    def __init__(self, database: Database) -> None:
        self._database = database
        # What is here to stay need not be searched for garbage after every seed.
        gc.freeze()

    def run(
        self, seed: int, *, only: Container[int] | None = None, tracing: bool = False, coverage: Coverage | None = None
    ) -> Outcome:
        return World(seed, self._database, only=only, tracing=tracing, coverage=coverage).run()


@contextmanager
def simulator(store: str = "sqlite") -> Iterator[Simulator]:
    if store == "postgresql":
        from proof.simulator.postgresql import fresh_database  # needs the driver

        with fresh_database(os.environ["POSTROAD_TEST_POSTGRESQL_URL"], TABLES) as database:
            yield Simulator(database)
        return
    # In memory where the machine offers it: nothing here needs to survive.
    shared_memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=shared_memory if os.access(shared_memory, os.W_OK) else None) as folder:
        yield Simulator(SQLiteFile(Path(folder) / "simulated.sqlite", TABLES))
