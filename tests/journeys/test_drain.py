"""Waiting for everything to settle: through outages, and with an end."""

import asyncio
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from postroad import Postroad, operations
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


async def test_what_a_person_has_asked_for_again_is_waited_for(database_url: str) -> None:
    road, seen = Postroad("post", database_url, "embedded:"), []
    begun, go_on = asyncio.Event(), asyncio.Event()

    @road.on(ParcelSent, group="readers")
    async def read(event: ParcelSent) -> None:
        seen.append(event.parcel)
        if len(seen) == 2:
            begun.set()
            await go_on.wait()

    async with road:
        await road.migrate()
        async with road.running():
            async with road.session() as session, session.begin():
                added = road.add(session, ParcelSent(parcel="a"))
            await road.drain()
        await operations.replay_event(road.store, road.outboxes, "readers", added.id, actor="ann")
        with pytest.raises(TimeoutError, match="events to be tried again by readers"):
            await road.drain(timeout=0.05)
        async with road.running():
            await begun.wait()
            try:
                with pytest.raises(TimeoutError, match="events to be tried again by readers"):
                    await road.drain(timeout=0.05)
            finally:
                go_on.set()
            await road.drain()
            # What has no message here will come from the broker, or never.
            await road.inbox.try_acquire("readers", msgspec.structs.replace(added.message, id=UUID(int=7)), 60.0)
            await road.drain()
        assert seen == ["a", "a"]
        assert (await operations.inbox_record(road.store, "readers", added.id)).record.state == "succeeded"
