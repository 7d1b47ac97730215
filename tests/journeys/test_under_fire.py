"""Relays and workers killed with -9 and frozen past their leases, again and again, on every store."""

import asyncio
import random
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.support.under_fire import LEASE, TABLES, Books, Fleet, audit, make_road, write

KILLS, FREEZES, EVENTS, KEYS = 50, 20, 24_000, 400
FLEET = ("relay-1", "relay-2", "relay-3", "worker-1", "worker-2")


@pytest.mark.timeout(900)
@pytest.mark.spec("F4", "F5", "P6", "T6")
async def test_nothing_is_lost_doubled_or_reordered_under_fire(database_url: str, tmp_path: Path) -> None:
    broker = tmp_path / "broker.db"
    road = make_road(database_url, broker)
    await road.migrate()
    async with road.store.transaction() as connection:
        await connection.execute(text(TABLES[road.store.dialect]))
    await road.runner().prepare()
    fleet = Fleet(database_url, broker, tmp_path)
    for name in FLEET:
        fleet.start(name)
    try:
        writing = asyncio.create_task(write(road, EVENTS, KEYS))
        await _fire(fleet, random.Random(11))
        stayed = await writing
        await road.drain(timeout=300)
        books = await audit(road, broker, stayed)
    finally:
        fleet.stop()
        await road.aclose()
    assert books == Books(lost=0, phantom=0, doubled=0, out_of_order=0, wire_out_of_order=0), [
        fleet.log(name) for name in FLEET
    ]
    assert sum(stayed.values()) >= 20_000


async def _fire(fleet: Fleet, dice: random.Random) -> None:
    """Freezes last longer than the lease, so that the frozen one wakes up as a zombie."""
    frozen: list[str] = []
    for shot in range(KILLS):
        await asyncio.sleep(dice.uniform(0.02, 0.15))
        if shot % 5 < 2:
            target = dice.choice([name for name in FLEET if name not in frozen])
            fleet.freeze(target)
            frozen.append(target)
        fleet.kill(dice.choice([name for name in FLEET if name not in frozen]))
        if len(frozen) == 2:
            await asyncio.sleep(LEASE * 1.5)
            while frozen:
                fleet.thaw(frozen.pop())
        assert not fleet.died(), [fleet.log(name) for name in fleet.died()]
