"""Running seeds: what can be made once and used for all of them is."""

import gc
import os
import tempfile
from collections.abc import Container, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

from postroad import message
from postroad.relay import leases
from proof.simulator.coverage import Coverage
from proof.simulator.database import SHARDS, Database
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
        # Collected in between, or its moment would depend on what ran before.
        gc.disable()
        try:
            return World(seed, self._database, only=only, tracing=tracing, coverage=coverage).run()
        finally:
            gc.collect()
            gc.enable()


@contextmanager
def fewer_shards() -> Iterator[None]:
    """The real code, with another figure."""
    with ExitStack() as stack:
        for module in (message, leases):
            stack.enter_context(patch.object(module, "SHARDS", SHARDS))
        yield


@contextmanager
def simulator(store: str = "sqlite") -> Iterator[Simulator]:
    if store == "postgresql":
        from proof.simulator.postgresql import fresh_database  # needs the driver

        with fewer_shards(), fresh_database(os.environ["POSTROAD_TEST_POSTGRESQL_URL"], TABLES) as database:
            yield Simulator(database)
        return
    # In memory where the machine offers it: nothing here needs to survive.
    shared_memory = "/dev/shm"
    place = shared_memory if os.access(shared_memory, os.W_OK) else None
    with fewer_shards(), tempfile.TemporaryDirectory(dir=place) as folder:
        yield Simulator(SQLiteFile(Path(folder) / "simulated.sqlite", TABLES))
