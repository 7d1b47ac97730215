"""Waiting for everything to settle: through outages, and with an end."""

import asyncio
from pathlib import Path

import pytest

from postroad.testing import FaultyBroker, FaultyStore
from tests.journeys.test_running import ParcelSent, make_road
from tests.support.outbox import until


async def test_an_outage_is_waited_out(tmp_path: Path) -> None:
    road, seen = make_road(tmp_path)
    await road.migrate()
    async with road:
        broker = road.broker = FaultyBroker(road.broker)
        store = road.store = FaultyStore(road.store)
        async with road.running():
            async with road.session() as session, session.begin():
                road.add(session, ParcelSent(parcel="a"))
            broker.down = store.down = True
            draining = asyncio.create_task(road.drain(timeout=60))
            await until(lambda: store.refused)
            store.down = False
            assert not draining.done()
            broker.down = False
            await draining
        assert seen == ["a"]


async def test_an_outage_that_lasts_is_told_in_the_end(tmp_path: Path) -> None:
    road, _ = make_road(tmp_path)
    await road.migrate()
    async with road:
        broker = road.broker = FaultyBroker(road.broker)
        await road.runner().prepare()
        broker.down = True
        with pytest.raises(TimeoutError, match=r"not drained within 0\.05 s: outage"):
            await road.drain(timeout=0.05)
