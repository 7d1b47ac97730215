"""Relays and workers killed with -9 and frozen past their leases, again and again, on every store.

TRANSFERS=800 in the environment makes it 20,000 events.
"""

import asyncio
import os
import random
from pathlib import Path

import pytest

from proof.chaos.bank import LEASE, Load, found, make_road
from proof.chaos.brokers import EMBEDDED
from proof.chaos.fleet import RELAYS, WORKERS, Fleet
from proof.chaos.ledger import Books, collect
from proof.chaos.writer import Journal, write

KILLS, FREEZES = 50, 20
TRANSFERS = int(os.environ.get("TRANSFERS", "250"))
# Large transfers, and several events to a commit: what counts is what the fire meets, not how long all is worked off.
LOAD = Load(most_payments=60, alpha=20, beta=100)
FLEET = (*RELAYS, *WORKERS)


@pytest.mark.timeout(900)
@pytest.mark.spec("F4", "F5", "P6", "T6")
async def test_nothing_is_lost_doubled_or_reordered_under_fire(database_url: str, tmp_path: Path) -> None:
    broker_url, journal = EMBEDDED.url(tmp_path), Journal()
    async with make_road(database_url, broker_url, LOAD) as road:
        await found(road)
        fleet = Fleet(tmp_path, lambda name: (database_url, broker_url), LOAD)
        fleet.start(*FLEET)
        try:
            writing = asyncio.create_task(write(road, journal.note, random.Random(11), TRANSFERS, LOAD))
            await _fire(fleet, random.Random(11))
            await writing
            await road.drain(timeout=300)
        finally:
            await fleet.stop()
        evidence = await collect(road, EMBEDDED.appearances(broker_url), journal)
    assert evidence.books() == Books(), [fleet.log(name) for name in FLEET]
    assert not fleet.crashes
    assert len(evidence.payments) >= 25 * TRANSFERS


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
