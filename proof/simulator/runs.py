"""Running seeds: what can be made once and used for all of them is."""

import asyncio
import gc
import os
import tempfile
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import text

from postroad.stores import open_store as open_real_store
from postroad.stores.migrations import migrate
from postroad.stores.tables import DEFAULT_OUTBOX
from proof.simulator.coverage import Coverage
from proof.simulator.database import open_store
from proof.simulator.workload import TABLES
from proof.simulator.world import Outcome, World


class Simulator:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._template = folder / "template.sqlite"
        asyncio.run(_make_template(self._template))
        self._stores = [open_store() for _ in range(3)]
        # What is here to stay need not be searched for garbage after every seed.
        gc.freeze()

    def run(
        self, seed: int, *, only: Container[int] | None = None, tracing: bool = False, coverage: Coverage | None = None
    ) -> Outcome:
        return World(
            seed, self._stores, self._template, self._folder, only=only, tracing=tracing, coverage=coverage
        ).run()


@contextmanager
def simulator() -> Iterator[Simulator]:
    # In memory where the machine offers it: nothing here needs to survive.
    shared_memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=shared_memory if os.access(shared_memory, os.W_OK) else None) as folder:
        yield Simulator(Path(folder))


async def _make_template(path: Path) -> None:
    store = open_real_store(f"sqlite:///{path}")
    await migrate(store, (DEFAULT_OUTBOX,))
    async with store.transaction() as connection:
        for table in TABLES:
            await connection.execute(text(table))
    async with store.reading() as connection:
        await connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    await store.aclose()
