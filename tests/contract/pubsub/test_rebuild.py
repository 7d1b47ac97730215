"""A read model built again from what Pub/Sub has kept, through a subscription that goes away afterwards."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from postroad import operations
from postroad.brokers.pubsub.address import short
from postroad.brokers.pubsub.letter import with_notes
from postroad.errors import BrokerUnavailable
from postroad.projections import rebuild
from tests.support.projections import (
    GROUP,
    NAME,
    TOPIC,
    Catalog,
    VideoDeleted,
    VideoSaved,
    VideoShared,
    VideoViewed,
    catalog,
    saved,
)
from tests.support.pubsub import overheard

pytestmark = pytest.mark.spec("F9")


@pytest.fixture
async def videos(fresh_postgresql_url: str, pubsub_url: str) -> AsyncIterator[Catalog]:
    async with catalog(fresh_postgresql_url, broker_url=pubsub_url) as made:
        await made.road.migrate()
        yield made


async def rebuilt(videos: Catalog, **options: Any) -> Any:
    source = operations.projection_source(videos.road, videos.videos)
    return await operations.rebuild(videos.road, NAME, source, actor="a person", **options)


async def subscriptions(videos: Catalog) -> list[str]:
    return [one.name for one in await videos.road.broker.subscriptions()]


async def test_a_rebuild_under_live_writes_equals_the_live_table_and_nobody_sees_it_half_built(videos: Catalog) -> None:
    first, stop, written = asyncio.Event(), asyncio.Event(), 0

    async def write() -> None:
        nonlocal written
        while not stop.is_set() and written < 300:  # the emulator's cost of counting grows with what is written
            await videos.write(VideoViewed("a"), VideoSaved(f"n{written}", "new"))
            written += 1
            first.set()

    async def read() -> None:
        seen: dict[str, Any] = {}
        while not stop.is_set():
            rows = await videos.rows()
            assert seen.keys() <= rows.keys()
            assert all(rows[video][2] >= seen[video][2] for video in seen)
            seen = rows

    async with videos.road.running():
        await videos.write(VideoSaved("a", "one"), VideoSaved("b", "two"), VideoShared("s"), VideoSaved("c", "three"))
        await videos.write(VideoViewed("b"), VideoDeleted("c"))
        await videos.road.drain()
        others = [asyncio.create_task(write()), asyncio.create_task(read())]
        try:
            await first.wait()
            done = await rebuilt(videos)
        finally:
            stop.set()
            await asyncio.gather(*others)
        await videos.road.drain()
    assert done.swapped
    assert not done.differences
    assert await videos.rows() == {
        "a": ("one", written, written + 1),
        "b": ("two", 1, 2),
        **{f"n{number}": ("new", 0, 1) for number in range(written)},
    }
    assert videos.effects == ["s"], "nobody else's handler ran again"
    assert await subscriptions(videos) == [f"{TOPIC}.{GROUP}"]


async def test_what_the_inbox_has_seen_and_the_table_has_lost_comes_back(videos: Catalog) -> None:
    async with videos.road.running():
        await videos.write(VideoSaved("a", "one"), VideoSaved("b", "two"), VideoViewed("b"))
        await videos.road.drain()
        await videos.run(f"DELETE FROM {NAME}")
        told: list[tuple[int, int]] = []
        done = await rebuilt(videos, tell=lambda *given: told.append(given))
    assert (done.events, done.differences.missing, told[0]) == (3, 2, (3, 3))
    assert await videos.rows() == {"a": ("one", 0, 1), "b": ("two", 1, 2)}


async def test_a_rebuild_that_fails_in_the_middle_leaves_table_and_subscriptions_as_they_were(
    videos: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "_BATCH", 1)
    async with videos.road.running():
        await videos.write(*(VideoSaved(name, "t") for name in "abc"))
        await videos.road.drain()
        broker: Any = videos.road.broker
        during: list[str] = []

        def fail(done: int, total: int) -> None:
            raise RuntimeError("the terminal is gone")

        async def look(request: Any) -> None:
            during.append(short(request.name))

        overheard(broker, "Subscriber/CreateSubscription", look)
        with pytest.raises(RuntimeError, match="the terminal is gone"):
            await rebuilt(videos, tell=fail)
        assert any(name.startswith(f"{TOPIC}.video-search-rebuild-") for name in during)
        assert await subscriptions(videos) == [f"{TOPIC}.{GROUP}"]
        assert (await videos.rows()).keys() == {"a", "b", "c"}
        assert await videos.tables() == set()


async def test_a_rebuild_whose_seek_fails_leaves_no_subscription(videos: Catalog) -> None:
    await videos.road.broker.apply(videos.road.topology)

    async def refuse(_: Any) -> None:
        raise BrokerUnavailable("not now")

    overheard(videos.road.broker, "Subscriber/Seek", refuse)  # type: ignore[arg-type]
    with pytest.raises(BrokerUnavailable, match="not now"):
        await rebuilt(videos)
    assert await subscriptions(videos) == [f"{TOPIC}.{GROUP}"]


async def test_a_subscription_that_a_killed_rebuild_left_is_dropped_by_the_next(videos: Catalog) -> None:
    broker = videos.road.broker
    await broker.apply(videos.road.topology)
    left = operations.projection_source(videos.road, videos.videos)
    await left.size()
    assert len(await subscriptions(videos)) == 2
    assert (await rebuilt(videos)).swapped
    assert await subscriptions(videos) == [f"{TOPIC}.{GROUP}"]
    await broker.drop(f"{TOPIC}.never")  # type: ignore[attr-defined]  # two may do so at once


async def test_what_was_revived_for_another_subscription_is_not_waited_for(videos: Catalog) -> None:
    """It is counted there, and passed over: nothing else may come."""
    broker: Any = videos.road.broker
    await broker.apply(videos.road.topology)
    one = saved("a", 1)
    letter = with_notes(one.attributes(), one.payload, "a", **{"for": f"{TOPIC}.{GROUP}"})
    await broker._thread.run(broker._publisher.place, TOPIC, letter)
    subscribe, depth = broker.subscribe, broker.depth
    counts: list[Any] = []

    async def late(subscription: str, flow: Any) -> Any:
        """As if the message had still been on its way when it was counted."""
        counts.append(await depth(subscription))
        return await subscribe(subscription, flow)

    async def count(subscription: str) -> Any:
        return counts.pop() if counts else await depth(subscription)

    broker.subscribe, broker.depth = late, count
    assert (await rebuilt(videos)).events == 0
