"""One store and one broker: found the bank, let the storm rage, wait for rest, balance the books."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from postroad import Postroad
from proof.chaos.access import Access, served
from proof.chaos.bank import found, make_road
from proof.chaos.brokers import Wire
from proof.chaos.disk import Disk, small_disk
from proof.chaos.fleet import RELAYS, WORKERS, WRITERS, Fleet
from proof.chaos.ledger import Books, Evidence, collect
from proof.chaos.plan import Plan, Tally
from proof.chaos.storm import Storm
from proof.chaos.writer import Outcome, waiting

STORES: Final = ("sqlite", "postgresql", "mariadb")
PROCESSES: Final = (*RELAYS, *WORKERS, *WRITERS)
_LATE_LOOKS: Final = 100

Progress = Callable[[str, Tally], None]


@dataclass(frozen=True)
class Result:
    store: str
    broker: str
    disk: str
    """How the disk was filled."""
    tally: Tally
    books: Books
    events: int
    rolled_back: int
    unknown: int
    """Transfers whose commit was reported as failed."""
    unknown_but_there: int
    wire_duplicates: int
    crashes: tuple[str, ...]
    seconds: float
    shortfalls: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return self.books.balanced and not self.crashes and not self.shortfalls

    @property
    def takeover_p99(self) -> float | None:
        ranked = sorted(self.tally.takeovers)
        return ranked[min(len(ranked) - 1, int(len(ranked) * 0.99))] if ranked else None

    def told(self) -> dict[str, Any]:
        return asdict(self) | {"passed": self.passed, "takeover_p99": self.takeover_p99, "stalls": self.tally.stalls}


class NotAtRest(Exception):
    pass


async def campaign(store: str, wire: Wire, plan: Plan, seed: int, folder: Path, progress: Progress) -> Result:
    begun = time.monotonic()
    async with _ground(store, wire, folder) as ground, make_road(ground.database_url, ground.broker_url) as road:
        progress("founding", Tally())
        await found(road)
        await asyncio.to_thread(wire.watch, ground.broker_url)
        fleet = Fleet(folder, ground.urls_of, plan.load)
        fleet.start(*PROCESSES)
        storm = Storm(plan, road, fleet, ground.database, ground.broker, ground.disk, random.Random(seed))
        try:
            await _watched(storm.rage(), "faults", storm.tally, progress)
            # The faults spared nobody: our own connections may be broken too.
            await road.store.aclose()
            await fleet.stop(*WRITERS)
            await _watched(_rest(road, fleet, plan.drain), "draining", storm.tally, progress)
        finally:
            await fleet.stop()
        appearances = await asyncio.to_thread(wire.appearances, ground.broker_url)
        evidence = await collect(road, appearances, fleet.journal())
    return _judged(store, wire, ground, storm.tally, evidence, fleet, time.monotonic() - begun, plan)


@dataclass(frozen=True)
class Ground:
    """What they stand on, all of which can give way."""

    wire: Wire
    database_url: str
    database: Access | None
    broker_url: str
    broker: Access | None
    disk: Disk | None
    """None if nothing is written to it."""

    def urls_of(self, process: str) -> tuple[str, str]:
        """Of database and broker, by way of the process's own doors."""
        return (
            self.database.url_of(process) if self.database else self.database_url,
            self.wire.url(self.broker.url_of(process)) if self.broker else self.broker_url,
        )


@asynccontextmanager
async def _ground(store: str, wire: Wire, folder: Path) -> AsyncIterator[Ground]:
    async with AsyncExitStack() as stack:
        disk = small_disk(folder / "disk")
        stack.callback(disk.close)
        database = broker = None
        if store != "sqlite":
            database = await stack.enter_async_context(served(store, folder, PROCESSES))
        if wire.served:
            broker = await stack.enter_async_context(served(wire.name, folder, RELAYS + WORKERS))
        yield Ground(
            wire=wire,
            database_url=database.url if database else f"sqlite:///{disk.folder / 'bank.db'}",
            database=database,
            broker_url=wire.url(broker.url if broker else disk.folder),
            broker=broker,
            disk=None if database and broker else disk,
        )


async def _rest(road: Postroad, fleet: Fleet, patience: float) -> None:
    draining = asyncio.create_task(road.drain(patience))
    while not draining.done():
        # What found no database when it was started last still has to come up.
        fleet.revive()
        await asyncio.wait({draining}, timeout=0.2)
    try:
        draining.result()
        await _handled(road)
    except TimeoutError as error:
        await fleet.ask_what_they_do()
        logs = "\n".join(f"--- {name}\n{fleet.log(name)}" for name in PROCESSES)
        raise NotAtRest(f"{logs}\n\n{error}, though all faults have ended.") from None


async def _handled(road: Postroad) -> None:
    """What workers hold of a RabbitMQ queue, others see only as it was a second ago. What does not come now is lost,
    and the books will say so."""
    for _ in range(_LATE_LOOKS):
        if await waiting(road) <= 0:
            return
        await asyncio.sleep(0.1)


async def _watched(work: Coroutine[Any, Any, None], phase: str, tally: Tally, progress: Progress) -> None:
    task = asyncio.create_task(work)
    while not task.done():
        progress(phase, tally)
        await asyncio.wait({task}, timeout=0.5)
    task.result()


def _judged(
    store: str, wire: Wire, ground: Ground, tally: Tally, evidence: Evidence, fleet: Fleet, seconds: float, plan: Plan
) -> Result:
    journal = evidence.journal
    return Result(
        store=store,
        broker=wire.name,
        disk=ground.disk.method if ground.disk else "-",
        tally=tally,
        books=evidence.books(),
        events=len(evidence.payments),
        rolled_back=len(journal.of(Outcome.UNDONE)),
        unknown=len(journal.of(Outcome.UNKNOWN)),
        unknown_but_there=evidence.unknown_but_there,
        wire_duplicates=evidence.wire_duplicates,
        crashes=tuple(fleet.crashes),
        seconds=seconds,
        shortfalls=plan.minimum.missed(
            tally,
            len(evidence.payments),
            database=ground.database is not None,
            broker=ground.broker is not None,
            disk=ground.disk is not None,
        ),
    )
