"""Setting a subscription back, and counting."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from postroad.brokers.pubsub.address import Address
from postroad.brokers.pubsub.broker import PubSubBroker
from postroad.brokers.pubsub.line import Line, raw
from postroad.brokers.pubsub.replay import Replay
from postroad.brokers.pubsub.structure import Structure
from postroad.errors import ConfigurationError, UnsupportedByBroker
from postroad.testing.post import Post
from tests.support.pubsub import Gate, Outsider, overheard


@pytest.mark.spec("F9")
async def test_a_time_in_between_brings_back_what_came_after_it(post: Post) -> None:
    receiver = await post.subscribe()
    await post.send_texts("k", "ab")
    assert await post.take_texts(receiver, 2) == "ab"
    between = datetime.now(UTC) + timedelta(milliseconds=1)

    async def later() -> bool:
        return datetime.now(UTC) > between + timedelta(milliseconds=1)

    assert await post.eventually(later)
    await post.send_texts("k", "cd")
    assert await post.take_texts(receiver, 2) == "cd"
    assert await post.broker.seek(post.subscription.name, between) == 2
    assert await post.take_texts(receiver, 2) == "cd"


@pytest.mark.spec("F9")
async def test_an_acknowledgement_on_its_way_takes_nothing_from_the_replay(
    post: Post, broker: PubSubBroker, visitor: Outsider
) -> None:
    gate = Gate(broker, "Subscriber/Acknowledge")
    receiver = await post.subscribe()
    start = datetime.now(UTC) - timedelta(seconds=60)
    await post.send_texts("k", "a")
    assert await post.take_texts(receiver, 1) == "a"
    await gate.reached()
    asked: list[object] = []

    async def hear(request: object) -> None:
        asked.append(request)

    overheard(broker, "Subscriber/GetSubscription", hear)
    seeking = asyncio.create_task(broker.seek(post.subscription.name, start))
    await visitor.subscription(post.subscription.name)  # as long as a request takes
    assert asked == [], "it waits"
    gate.open()
    assert await seeking == 1
    assert await post.take_texts(receiver, 1) == "a"


@pytest.mark.spec("F9")
async def test_a_snapshot_of_the_same_name_is_replaced(post: Post) -> None:
    receiver = await post.subscribe()
    await post.broker.snapshot(post.subscription.name, "before")
    await post.send_texts("k", "a")
    assert await post.take_texts(receiver, 1) == "a"
    await post.broker.snapshot(post.subscription.name, "before")
    await post.send_texts("k", "b")
    assert await post.take_texts(receiver, 1) == "b"
    assert await post.broker.seek(post.subscription.name, "before") == 1
    assert await post.take_texts(receiver, 1) == "b"


async def test_what_is_not_there_is_named(post: Post, broker: PubSubBroker) -> None:
    with pytest.raises(ConfigurationError, match="has no snapshot 'never'"):
        await broker.seek(post.subscription.name, "never")
    for ask in (broker.depth("a.events.b"), broker.snapshot("a.events.b", "x"), broker.seek("a.events.b", "x")):
        with pytest.raises(ConfigurationError, match=r"'a\.events\.b' does not exist"):
            await ask


async def test_in_the_cloud_nobody_counts_and_that_is_said() -> None:
    """There is no cloud here: its answers are put in its mouth."""
    asked: list[str] = []

    class Cloud(Line):
        async def ask(self, method: str, request: object, answer: object, **options: object) -> object:
            asked.append(method)
            return raw("Subscription")(name="projects/my-project/subscriptions/a.events.b")

    address = Address("my-project")
    line = Cloud(address)
    replay = Replay(line, Structure(line, address), address)
    with pytest.raises(UnsupportedByBroker, match="monitoring=yes"):
        await replay.depth("a.events.b")
    assert await replay.seek("a.events.b", datetime.now(UTC)) is None
    assert asked[-1] == "Subscriber/Seek"
