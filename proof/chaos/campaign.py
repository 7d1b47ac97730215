"""One store and one broker: found the bank, let the storm rage, wait for rest, balance the books."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from postroad import Postroad
from proof.chaos.bank import found, make_road
from proof.chaos.brokers import Wire
from proof.chaos.disk import Disk, small_disk
from proof.chaos.fleet import RELAYS, WORKERS, WRITERS, Fleet
from proof.chaos.ledger import Books, Evidence, collect
from proof.chaos.plan import Plan, Tally
from proof.chaos.proxy import Proxy
from proof.chaos.servers import Server, through
from proof.chaos.storm import Storm
from proof.chaos.writer import Outcome

STORES: Final = ("sqlite", "postgresql", "mariadb")
PROCESSES: Final = (*RELAYS, *WORKERS, *WRITERS)

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
    async with _ground(store, folder) as (disk, server, url):
        broker_url = wire.url(disk.folder)
        async with make_road(url, broker_url) as road, _doors(server) as doors:
            progress("founding", Tally())
            await found(road)
            fleet = Fleet(folder, broker_url, lambda name: through(url, doors[name].port) if doors else url, plan.load)
            fleet.start(*PROCESSES)
            storm = Storm(plan, road, fleet, doors, server, disk, random.Random(seed))
            try:
                await _watched(storm.rage(), "faults", storm.tally, progress)
                # The faults spared nobody: our own connections may be broken too.
                await road.store.aclose()
                await fleet.stop(*WRITERS)
                await _watched(_rest(road, fleet, plan.drain), "draining", storm.tally, progress)
            finally:
                await fleet.stop()
            evidence = await collect(road, wire.appearances(disk.folder), fleet.journal())
            method = disk.method
    return _judged(store, wire.name, method, storm.tally, evidence, fleet, time.monotonic() - begun, plan)


@asynccontextmanager
async def _ground(store: str, folder: Path) -> AsyncIterator[tuple[Disk, Server | None, str]]:
    disk = small_disk(folder / "disk")
    try:
        if store == "sqlite":
            yield disk, None, f"sqlite:///{disk.folder / 'bank.db'}"
            return
        server = Server(store, folder)
        await server.create()
        try:
            await server.start()
            yield disk, server, server.url
        finally:
            await server.stop()
    finally:
        disk.close()


@asynccontextmanager
async def _doors(server: Server | None) -> AsyncIterator[dict[str, Proxy]]:
    """A proxy for each process, so that a fault can be aimed."""
    doors = {name: Proxy("127.0.0.1", server.port) for name in PROCESSES} if server else {}
    for door in doors.values():
        await door.start()
    try:
        yield doors
    finally:
        for door in doors.values():
            await door.aclose()


async def _rest(road: Postroad, fleet: Fleet, patience: float) -> None:
    draining = asyncio.create_task(road.drain(patience))
    while not draining.done():
        # What found no database when it was started last still has to come up.
        fleet.revive()
        await asyncio.wait({draining}, timeout=0.2)
    try:
        draining.result()
    except TimeoutError as error:
        await fleet.ask_what_they_do()
        logs = "\n".join(f"--- {name}\n{fleet.log(name)}" for name in PROCESSES)
        raise NotAtRest(f"{logs}\n\n{error}, though all faults have ended.") from None


async def _watched(work: Coroutine[Any, Any, None], phase: str, tally: Tally, progress: Progress) -> None:
    task = asyncio.create_task(work)
    while not task.done():
        progress(phase, tally)
        await asyncio.wait({task}, timeout=0.5)
    task.result()


def _judged(
    store: str, broker: str, disk: str, tally: Tally, evidence: Evidence, fleet: Fleet, seconds: float, plan: Plan
) -> Result:
    journal = evidence.journal
    return Result(
        store=store,
        broker=broker,
        disk=disk,
        tally=tally,
        books=evidence.books(),
        events=len(evidence.payments),
        rolled_back=len(journal.of(Outcome.UNDONE)),
        unknown=len(journal.of(Outcome.UNKNOWN)),
        unknown_but_there=evidence.unknown_but_there,
        wire_duplicates=evidence.wire_duplicates,
        crashes=tuple(fleet.crashes),
        seconds=seconds,
        shortfalls=plan.minimum.missed(tally, len(evidence.payments), served=store != "sqlite"),
    )
