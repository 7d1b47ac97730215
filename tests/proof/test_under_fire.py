"""Relays and workers killed with -9 and frozen past their leases, again and again, on every store."""

import asyncio
import random
from pathlib import Path

import pytest

from proof.chaos.bank import LEASE, found, make_road
from proof.chaos.brokers import EMBEDDED
from proof.chaos.fleet import RELAYS, WORKERS, Fleet
from proof.chaos.ledger import Books, collect
from proof.chaos.writer import Journal, write

KILLS, FREEZES, TRANSFERS = 50, 20, 4_000
FLEET = (*RELAYS, *WORKERS)


@pytest.mark.timeout(900)
@pytest.mark.spec("F4", "F5", "P6", "T6")
async def test_nothing_is_lost_doubled_or_reordered_under_fire(database_url: str, tmp_path: Path) -> None:
    broker_url, journal = EMBEDDED.url(tmp_path), Journal()
    async with make_road(database_url, broker_url) as road:
        await found(road)
        fleet = Fleet(tmp_path, lambda name: (database_url, broker_url))
        fleet.start(*FLEET)
        try:
            writing = asyncio.create_task(write(road, journal.note, random.Random(11), TRANSFERS))
            await _fire(fleet, random.Random(11))
            await writing
            await road.drain(timeout=300)
        finally:
            await fleet.stop()
        evidence = await collect(road, EMBEDDED.appearances(broker_url), journal)
    assert evidence.books() == Books(), [fleet.log(name) for name in FLEET]
    assert not fleet.crashes
    assert len(evidence.payments) >= 20_000


async def _fire(fleet: Fleet, dice: random.Random) -> None:
    """Freezes last longer than the lease, so that the frozen one wakes up as a zombie."""
    frozen: list[str] = []
    freezes = 0
    for shot in range(KILLS):
        await asyncio.sleep(dice.uniform(0.02, 0.15))
        if shot % 5 < 2:
            target = dice.choice([name for name in FLEET if name not in frozen])
            fleet.freeze(target)
            frozen.append(target)
            freezes += 1
        fleet.kill(dice.choice([name for name in FLEET if name not in frozen]))
        if len(frozen) == 2:
            await asyncio.sleep(LEASE * 1.5)
            while frozen:
                fleet.thaw(frozen.pop())
        fleet.revive()
    assert freezes >= FREEZES
