"""Relays and workers killed with -9 and frozen past their leases, again and again, on every store.

TRANSFERS=800 in the environment makes it 20,000 events.
"""

import asyncio
import os
import random
from pathlib import Path

import pytest

from postroad import Postroad
from proof.chaos.bank import LEASE, Load, found, make_road
from proof.chaos.brokers import EMBEDDED
from proof.chaos.fleet import RELAYS, WORKERS, Fleet
from proof.chaos.journal import Journal
from proof.chaos.ledger import Books, collect
from proof.chaos.writer import waiting, write

KILLS, FREEZES = 50, 20
TRANSFERS = int(os.environ.get("TRANSFERS", "250"))
# Large transfers, and several events to a commit: what counts is what the fire meets, not how long all is worked off.
LOAD = Load(most_payments=60, alpha=20, beta=100)
FLEET = (*RELAYS, *WORKERS)


@pytest.mark.timeout(900)
@pytest.mark.spec("F4", "F5", "P6", "T6")
async def test_nothing_is_lost_doubled_or_reordered_under_fire(
    database_url: str, store_kind: str, tmp_path: Path
) -> None:
    broker_url, journal = EMBEDDED.url(tmp_path), Journal()
    async with make_road(database_url, broker_url, LOAD) as road:
        await found(road)
        fleet = Fleet(tmp_path, lambda name: (database_url, broker_url), LOAD)
        fleet.start(*FLEET)
        try:
            async with asyncio.TaskGroup() as writing:
                await _fire(fleet, road, journal, writing)
            await road.drain(timeout=300)
        finally:
            await fleet.stop()
        evidence = await collect(road, EMBEDDED.appearances(broker_url), journal)
    assert evidence.books() == Books(), [fleet.log(name) for name in FLEET]
    assert not fleet.crashes
    assert len(evidence.payments) >= 25 * TRANSFERS
    if store_kind == "sqlite":
        # Where all wait for one another to write, some kills are sure to come between sending and the note of it.
        assert evidence.wire_duplicates > 0


async def test_only_a_process_that_was_alive_counts_as_hit(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, lambda name: (f"sqlite:///{tmp_path}/no-tables.db", EMBEDDED.url(tmp_path)))
    fleet.start("relay-1")
    await asyncio.to_thread(fleet._processes["relay-1"].join)
    assert not fleet.freeze("relay-1")
    assert not fleet.kill("relay-1")
    # Killed or not, it was started again.
    assert fleet.freeze("relay-1")
    assert fleet.kill("relay-1")
    await fleet.stop()


async def _fire(fleet: Fleet, road: Postroad, journal: Journal, writing: asyncio.TaskGroup) -> None:
    """Until so many have hit a living process while there was work to do: some is written around every shot.

    Freezes last longer than the lease, so that the frozen one wakes up as a zombie.
    """
    dice, payers, turn = random.Random(11), random.Random(11), asyncio.Lock()

    async def write_some() -> None:
        async with turn:
            await write(road, journal.note, payers, TRANSFERS // KILLS, LOAD)

    frozen: list[str] = []
    kills = freezes = 0
    while kills < KILLS or freezes < FREEZES:
        # Nobody waits for it: a frozen process may keep out all who write.
        writing.create_task(write_some())
        await asyncio.sleep(dice.uniform(0.02, 0.15))
        if freezes * KILLS <= kills * FREEZES:
            target = dice.choice([name for name in FLEET if name not in frozen])
            if fleet.freeze(target):
                frozen.append(target)
                freezes += 1
        at_work = await waiting(road) > 0
        kills += fleet.kill(dice.choice([name for name in FLEET if name not in frozen])) and at_work
        if len(frozen) == 2:
            await asyncio.sleep(LEASE * 1.5)
            while frozen:
                fleet.thaw(frozen.pop())
        fleet.revive()
    for name in frozen:
        fleet.thaw(name)
