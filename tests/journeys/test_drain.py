"""Waiting for everything to settle: through outages, and with an end."""

import asyncio
import re
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from unittest.mock import AsyncMock
from uuid import UUID, uuid4

import msgspec
import pytest
from sqlalchemy import text

from postroad import Postroad, event, operations
from postroad.brokers.base import Depth
from postroad.errors import ConfigurationError
from postroad.testing import FaultyBroker, FaultyStore, VirtualClock
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


async def test_a_group_that_nobody_has_worked_in_yet_has_handled_nothing(sqlite_url: str, broker_url: str) -> None:
    topic = f"post.p{uuid4().hex[:8]}.events"

    @event(f"{topic}.sent", topic=topic, aggregate="letter")
    class LetterSent(msgspec.Struct):
        pass

    async with Postroad("post", sqlite_url, broker_url) as road:
        road.on(LetterSent, group="writers")(lambda event: None)
        await road.migrate()
        await road.drain(timeout=0)  # nothing was ever written
        async with road.running():
            async with road.session() as session, session.begin():
                road.add(session, LetterSent())
            await road.drain()
        road.on(LetterSent, group="readers")(lambda event: None)
        with pytest.raises(TimeoutError, match=f"group readers has no subscription yet to {topic}: start a worker, or"):
            await road.drain(timeout=0.05)
        async with road.running():
            await road.drain()


async def run_out(clock: VirtualClock, draining: asyncio.Task[None]) -> None:
    """Time goes on whenever somebody waits for it."""
    while not draining.done():
        if (alarm := clock.next_alarm()) is not None:
            clock.shift(alarm - clock.monotonic())
        await asyncio.sleep(0)


async def test_it_gives_up_at_its_time_and_not_before(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Postroad("post", f"sqlite:///{tmp_path}/post.db", "embedded:", clock=clock) as road:
        await road.migrate()
        async with road.session() as session, session.begin():
            road.add(session, ParcelSent(parcel="a"))
        begun = clock.monotonic()
        draining = asyncio.create_task(road.drain(timeout=0.3))
        await run_out(clock, draining)
        with pytest.raises(TimeoutError, match=r"not drained within 0\.3 s: unsent events"):
            draining.result()
        assert clock.monotonic() - begun == pytest.approx(0.3)


@pytest.mark.parametrize(("ahead", "told"), [(1, "not drained within 0.3 s: 1 messages in"), (6, None)])
async def test_a_broker_whose_clock_is_ahead_does_not_end_it_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int, told: str | None
) -> None:
    clock = VirtualClock()
    async with Postroad("post", f"sqlite:///{tmp_path}/post.db", "embedded:", clock=clock) as road:
        road.on(ParcelSent, group="readers")(lambda event: None)
        await road.migrate()
        stamp = clock.now() + timedelta(seconds=ahead)
        monkeypatch.setattr(road.broker, "depth", AsyncMock(return_value=Depth(1, 0, stamp)))
        draining = asyncio.create_task(road.drain(timeout=0.3))
        await run_out(clock, draining)
        with pytest.raises(TimeoutError, match=re.escape(told)) if told else nullcontext():
            draining.result()


async def test_what_is_done_in_the_last_moment_counts(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Postroad("post", f"sqlite:///{tmp_path}/post.db", "embedded:", clock=clock) as road:
        await road.migrate()
        async with road.session() as session, session.begin():
            road.add(session, ParcelSent(parcel="a"))
        deadline = clock.monotonic() + 0.3
        draining = asyncio.create_task(road.drain(timeout=0.3))
        while clock.next_alarm() != pytest.approx(deadline):
            if (alarm := clock.next_alarm()) is not None:
                clock.shift(alarm - clock.monotonic())
            await asyncio.sleep(0)
        async with road.session() as session, session.begin():
            await session.execute(text("DELETE FROM postroad_outbox"))
        await run_out(clock, draining)
        draining.result()


@pytest.mark.parametrize("timeout", [float("nan"), None, "30", True, -1.0])
async def test_a_timeout_is_a_number_of_seconds(tmp_path: Path, timeout: float) -> None:
    road, _ = make_road(tmp_path)
    async with road:
        with pytest.raises(ConfigurationError, match=r"drain: timeout is .*\. Give a number of seconds, 0 or more"):
            await road.drain(timeout=timeout)
