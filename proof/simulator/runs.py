"""Running seeds: what can be made once and used for all of them is."""

import asyncio
import gc
import os
import signal
import tempfile
from collections.abc import Container, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch
from weakref import WeakSet

from postroad import message
from postroad.commands import execution
from postroad.projections import rebuild, state
from postroad.relay import leases, wakeup
from proof.simulator import greenlets
from proof.simulator.coverage import Coverage
from proof.simulator.database import SHARDS, Database
from proof.simulator.rabbitmq import simulated_wires
from proof.simulator.sqlite import SQLiteFile
from proof.simulator.tills import TABLES as TILLS
from proof.simulator.workload import TABLES as BOOKINGS
from proof.simulator.world import Outcome, StoodStill, World

TABLES = (*BOOKINGS, *TILLS)
_PAUSE = 0.1
_FRESH_STARTS = 2
_REBUILD_LEASE, _REBUILD_BATCH = 5.0, 4
_SEEDS_TO_COLLECT = 300
"""Each leaves less than a megabyte behind."""


LONGEST_SEED = 120.0
"""Seconds of the processor, of which a seed needs one at most: then it goes round in circles."""


class Simulator:
    def __init__(self, database: Database, broker: str | None = None) -> None:
        """Without a broker the seed says which."""
        self._database, self._broker = database, broker
        self._seeds = 0

    def run(
        self, seed: int, *, only: Container[int] | None = None, tracing: bool = False, coverage: Coverage | None = None
    ) -> Outcome:
        world = World(seed, self._database, only=only, tracing=tracing, coverage=coverage, broker=self._broker)
        try:
            with processor_time(LONGEST_SEED):
                return world.run()
        finally:
            self._seeds += 1
            if self._seeds % _SEEDS_TO_COLLECT == 0:
                gc.collect()


@contextmanager
def processor_time(seconds: float) -> Iterator[None]:
    """So many: how long they take is a matter of who else wants it."""

    def over(*_: object) -> None:
        raise StoodStill(f"no end within {seconds:g} seconds of the processor")

    before = signal.signal(signal.SIGPROF, over)
    # Again and again: the first may be lost in a finaliser.
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextmanager
def other_figures() -> Iterator[None]:
    """The real code, with fewer shards, and relays that do not look so soon again where they found nothing."""
    with ExitStack() as stack:
        for module in (message, leases):
            stack.enter_context(patch.object(module, "SHARDS", SHARDS))
        stack.enter_context(patch.object(wakeup, "_SHORTEST_PAUSE", _PAUSE))
        stack.enter_context(patch.object(execution, "_FRESH_STARTS", _FRESH_STARTS))
        stack.enter_context(patch.object(state, "LEASE", _REBUILD_LEASE))
        stack.enter_context(patch.object(rebuild, "_BATCH", _REBUILD_BATCH))
        yield


@contextmanager
def garbage_kept() -> Iterator[None]:
    """But in between: else the moment of its collection would depend on what ran before."""
    collecting = gc.isenabled()
    gc.collect()
    # What is here to stay need not be searched.
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.unfreeze()
            gc.enable()


@contextmanager
def unlisted_tasks() -> Iterator[None]:
    """Nobody asks for all tasks here, and to keep a weak list of them takes asyncio as long as to start them."""
    # Whatever is added, `id` takes it, and keeps nothing.
    with patch.object(getattr(asyncio.tasks, "_all_tasks", WeakSet()), "add", id):
        yield


@contextmanager
def simulator(store: str = "sqlite", broker: str | None = None) -> Iterator[Simulator]:
    with (
        other_figures(),
        simulated_wires(),
        simulated_clients(broker),
        garbage_kept(),
        greenlets.used_again(),
        database(store) as made,
        unlisted_tasks(),
    ):
        yield Simulator(made, broker)


@contextmanager
def simulated_clients(broker: str | None) -> Iterator[None]:
    if broker == "kafka":
        from proof.simulator import kafka  # needs its libraries

        with kafka.simulated_clients():
            yield
    else:
        yield


@contextmanager
def database(store: str) -> Iterator[Database]:
    if store == "postgresql":
        from proof.simulator.postgresql import fresh_database  # needs the driver

        with fresh_database(os.environ["POSTROAD_TEST_POSTGRESQL_URL"], TABLES) as server:
            yield server
        return
    # In memory where the machine offers it: nothing here needs to survive.
    shared_memory = "/dev/shm"
    place = shared_memory if os.access(shared_memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        made = SQLiteFile(Path(folder) / "simulated.sqlite", TABLES)
        try:
            yield made
        finally:
            made.close()
