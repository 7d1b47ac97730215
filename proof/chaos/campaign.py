"""One store and one broker: found the bank, let the storm rage, wait for rest, balance the books."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from postroad import Postroad
from proof.chaos.bank import SUBSCRIPTIONS, found, make_road
from proof.chaos.brokers import Wire
from proof.chaos.fleet import COMMANDS, PROCESSES, WRITERS, Fleet
from proof.chaos.ground import Ground, prepared
from proof.chaos.journal import Outcome
from proof.chaos.ledger import Books, Evidence, collect
from proof.chaos.mending import mend, missing, plant
from proof.chaos.plan import Plan, Tally
from proof.chaos.storm import Storm
from proof.chaos.writer import waiting

_LATE: Final = 10.0

T = TypeVar("T")
Progress = Callable[[str, Tally], None]


@dataclass(frozen=True)
class Result:
    store: str
    broker: str
    disk: str
    """How the disk was filled."""
    not_possible: tuple[str, ...]
    """What this broker does not survive by its nature, and was spared."""
    tally: Tally
    books: Books
    in_order: int | None
    """Effects before the broker did not keep the order any more; None: it always does."""
    out_of_order_unpromised: int | None
    """Effects out of order after that."""
    events: int
    """Of payments."""
    commands: int
    """That are completed."""
    commands_refused: int
    rolled_back: int
    unknown: int
    """Transfers whose commit was reported as failed."""
    unknown_but_there: int
    wire_duplicates: int
    crashes: tuple[str, ...]
    seconds: float
    shortfalls: tuple[str, ...]
    left_in_broker: Mapping[str, int]
    """By subscription, of a broker that is asked only when its time is up and effects are missing."""

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


@dataclass(frozen=True)
class Restless:
    """A pair that did not come to rest: it has no books."""

    store: str
    broker: str
    told: str


async def campaign(store: str, wire: Wire, plan: Plan, seed: int, folder: Path, progress: Progress) -> Result:
    begun = time.monotonic()
    async with prepared(store, wire, folder) as ground, make_road(ground.database_url, ground.broker_url) as road:
        progress("founding", Tally())
        await found(road)
        await asyncio.to_thread(wire.watch, ground.broker_url)
        fleet = Fleet(folder, ground.urls_of, plan.load)
        fleet.start(*PROCESSES)
        storm = Storm(plan, road, fleet, ground, random.Random(seed))
        try:
            await _watched(storm.rage(), "faults", storm.tally, progress)
            # The faults spared nobody: our own connections may be broken too.
            await road.store.aclose()
            await fleet.stop(*WRITERS)
            left = await _watched(_rest(road, fleet, wire, plan.drain), "draining", storm.tally, progress)
            before = await missing(road)
            storm.tally.losses = await plant(road)
            await mend(road)
            left = left or await _watched(_rest(road, fleet, wire, plan.drain), "mending", storm.tally, progress)
            unmended = sum(finding.count for finding in (*before, *await missing(road)))
        finally:
            await fleet.stop()
        appearances = await asyncio.to_thread(wire.appearances, ground.broker_url)
        evidence = await collect(
            road, appearances, fleet.journal(), storm.in_order_until, fleet.journal(COMMANDS), unmended
        )
    return _judged(store, ground, storm, evidence, fleet, time.monotonic() - begun, plan, left)


async def _rest(road: Postroad, fleet: Fleet, wire: Wire, patience: float) -> Mapping[str, int]:
    draining = asyncio.create_task(_drained(road, wire, patience))
    while not draining.done():
        # What found no database when it was started last still has to come up.
        fleet.revive()
        await asyncio.wait({draining}, timeout=0.2)
    try:
        return draining.result()
    except TimeoutError as error:
        await fleet.ask_what_they_do()
        logs = "\n".join(f"--- {name}\n{fleet.log(name)}" for name in PROCESSES)
        raise NotAtRest(f"{logs}\n\n{error}, though all faults have ended.") from None


async def _drained(road: Postroad, wire: Wire, patience: float) -> Mapping[str, int]:
    """What workers hold of a RabbitMQ queue, others see only as it was a second ago. What does not come now is lost,
    and the books will say so."""
    if wire.counts:
        await road.drain(patience)
        patience = _LATE
    deadline = time.monotonic() + patience
    while await waiting(road) > 0:
        await asyncio.sleep(0.1)
        if time.monotonic() > deadline:
            # Now asking costs nothing any more.
            return {name: (await road.broker.depth(name)).messages for name in SUBSCRIPTIONS}
    return {}


async def _watched(work: Coroutine[Any, Any, T], phase: str, tally: Tally, progress: Progress) -> T:
    task = asyncio.create_task(work)
    while not task.done():
        progress(phase, tally)
        await asyncio.wait({task}, timeout=0.5)
    return task.result()


def _judged(
    store: str,
    ground: Ground,
    storm: Storm,
    evidence: Evidence,
    fleet: Fleet,
    seconds: float,
    plan: Plan,
    left_in_broker: Mapping[str, int],
) -> Result:
    journal = evidence.journal
    return Result(
        store=store,
        broker=ground.wire.name,
        disk=ground.disk.method if ground.disk else "-",
        not_possible=() if ground.wire.remembers else ("broker_restarts",),
        tally=storm.tally,
        books=evidence.books(),
        in_order=evidence.in_order,
        out_of_order_unpromised=evidence.out_of_order_unpromised,
        events=len(evidence.payments),
        commands=evidence.purses.completed,
        commands_refused=len(evidence.purses.journal.of(Outcome.UNDONE)),
        rolled_back=len(journal.of(Outcome.UNDONE)),
        unknown=len(journal.of(Outcome.UNKNOWN)),
        unknown_but_there=evidence.unknown_but_there,
        wire_duplicates=evidence.wire_duplicates,
        crashes=tuple(fleet.crashes),
        seconds=seconds,
        shortfalls=tuple(
            plan.minimum.missed(storm.tally, len(evidence.payments), evidence.purses.completed, ground).values()
        ),
        left_in_broker=left_in_broker,
    )
