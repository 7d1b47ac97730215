"""What cannot be handled is kept where a person finds it."""

import asyncio
from typing import Any

import grpc
import pytest

from postroad import Postroad, operations
from postroad.brokers.base import Flow, Subscription, Topology
from postroad.brokers.pubsub.address import Address
from postroad.brokers.pubsub.broker import PubSubBroker
from postroad.errors import BrokerUnavailable
from postroad.testing.post import Post
from tests.support.pubsub import Gate, Outsider, connected, overheard


async def bury(post: Post, *texts: str, reason: str = "no") -> None:
    receiver = await post.subscribe()
    await post.send(*(post.message(text, text) for text in texts))
    for delivery in await post.take(receiver, len(texts)):
        await delivery.dead(reason)
    await receiver.aclose()


@pytest.mark.spec("P14")
async def test_a_stranger_sees_in_the_letter_why_it_is_there(post: Post, visitor: Outsider) -> None:
    await bury(post, "a", reason="cannot be read")
    ((received),) = await visitor.pull(f"{post.topic}.dlq-monitor")
    attributes = received.message.attributes
    assert attributes["postroad-reason"] == "cannot be read"
    assert attributes["postroad-subscription"] == post.subscription.name
    assert attributes["event_type"] == "thing.happened"


async def test_first_there_then_gone_from_here(post: Post, broker: PubSubBroker) -> None:
    """A crash in between leaves it in both places, never in none."""
    steps: list[str] = []

    async def published(request: Any) -> None:
        if request.topic.endswith(".dlq"):
            steps.append("buried")

    async def acknowledged(_: Any) -> None:
        steps.append("acknowledged")

    await post.send_texts("k", "a")
    overheard(broker, "Publisher/Publish", published)
    overheard(broker, "Subscriber/Acknowledge", acknowledged)
    receiver = await post.subscribe()
    await (await post.take(receiver, 1))[0].dead("no")
    await receiver.aclose()
    assert steps == ["buried", "acknowledged"]


async def test_a_letter_that_cannot_be_placed_stays_in_hand(post: Post, broker: PubSubBroker) -> None:
    out = True

    async def hear(request: Any) -> None:
        if out and request.topic.endswith(".dlq"):
            raise BrokerUnavailable("full")

    overheard(broker, "Publisher/Publish", hear)
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    (held,) = await post.take(receiver, 1)
    with pytest.raises(BrokerUnavailable, match="full"):
        await held.dead("no")
    assert await post.has_depth(1)
    out = False
    await held.dead("no")
    assert len(await broker.dead_letters(post.topic)) == 1
    assert await post.has_depth(0)


async def test_a_letter_that_was_buried_twice_is_one_letter(post: Post, broker: PubSubBroker) -> None:
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    (held,) = await post.take(receiver, 1)
    await broker.bury(held, "no")  # type: ignore[arg-type]
    await held.dead("no")
    (letter,) = await broker.dead_letters(post.topic)
    assert await broker.discard(post.topic, [letter.id]) == 1
    assert list(await broker.dead_letters(post.topic)) == []


async def test_as_many_attributes_as_pubsub_takes_survive_death_and_return(post: Post, broker: PubSubBroker) -> None:
    sent = post.message("k", "a", headers={f"h{n}": "é" * 512 for n in range(93)})
    assert len(sent.attributes()) == 100
    receiver = await post.subscribe()
    await post.send(sent)
    await (await post.take(receiver, 1))[0].dead("é" * 2_000)
    (letter,) = await broker.dead_letters(post.topic)
    assert (letter.attributes, letter.data) == (sent.attributes(), b"a")
    assert letter.reason == "é" * 512
    await broker.revive(post.topic, [letter.id])
    (again,) = await post.take(receiver, 1)
    assert (again.attributes, again.data, again.key) == (sent.attributes(), b"a", "k")


async def test_looking_hides_nothing_from_the_next_who_looks(post: Post, broker: PubSubBroker, pubsub_url: str) -> None:
    await bury(post, "a", "b", "c")
    other = connected(pubsub_url)
    for _ in range(3):
        assert len(await broker.dead_letters(post.topic)) == 3
        assert len(await other.dead_letters(post.topic)) == 3
    looks = await asyncio.gather(*(broker.dead_letters(post.topic) for _ in range(5)))
    assert [len(found) for found in looks] == [3] * 5
    await other.aclose()


async def test_a_topic_without_dead_letters_has_none(broker: PubSubBroker) -> None:
    assert list(await broker.dead_letters("nowhere.at.events")) == []
    assert await broker.revive("nowhere.at.events", ["1"]) == 0


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        (grpc.StatusCode.DEADLINE_EXCEEDED, True),
        (grpc.StatusCode.PERMISSION_DENIED, False),
        (grpc.StatusCode.UNAUTHENTICATED, False),
        (grpc.StatusCode.UNAVAILABLE, False),
    ],
)
async def test_in_the_cloud_silence_means_that_nothing_is_dead_and_a_refusal_does_not(
    post: Post, broker: PubSubBroker, code: grpc.StatusCode, seen: bool
) -> None:
    async def answer(_: Any) -> None:
        raise broker._line.explained(grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "no"))

    overheard(broker, "Subscriber/Pull", answer)
    broker._graveyard._address = Address(broker._address.project)
    if seen:
        assert list(await broker.dead_letters(post.topic)) == []
        return
    with pytest.raises(BrokerUnavailable):
        await broker.dead_letters(post.topic)


@pytest.mark.spec("P3", "P14")
async def test_what_pubsub_itself_gives_up_is_listed_and_can_come_back(
    post: Post, broker: PubSubBroker, visitor: Outsider
) -> None:
    """On an unordered subscription: the emulator's ordered ones stand still after the last attempt."""
    crashing = Subscription(f"{post.topic}.crashing", post.topic)
    described = broker._structure.described(crashing)
    described.dead_letter_policy.CopyFrom(broker._structure.dead_letter_policy(crashing))
    described.enable_message_ordering = False
    described.ClearField("retry_policy")
    await visitor.create(described)
    sent = post.message("k", "a")
    await post.send(sent)
    attempts = 0

    async def given_up() -> bool:
        nonlocal attempts
        for received in await visitor.pull(crashing.name):
            attempts += 1
            await visitor.nack(crashing.name, received.ack_id)
        return bool(await broker.dead_letters(post.topic))

    assert await post.eventually(given_up)
    assert attempts == 5
    (letter,) = await broker.dead_letters(post.topic)
    assert (letter.subscription, letter.attempts) == (crashing.name, 5)
    assert "dropped by Pub/Sub" in letter.reason
    assert letter.attributes == sent.attributes()
    assert await broker.revive(post.topic, [letter.id]) == 1
    receiver = await broker.subscribe(crashing.name, Flow())
    (again,) = await post.take(receiver, 1)
    assert (again.data, again.key) == (b"a", "k")


@pytest.mark.spec("P14")
async def test_status_looks_at_several_topics_at_once(sqlite_url: str, pubsub_url: str, post: Post) -> None:
    """In the cloud it takes two seconds to find nothing: one after the other would take longer than status waits."""
    topics = [f"{post.topic}.{name}" for name in ("a", "b")]
    async with Postroad("shop", sqlite_url, pubsub_url) as road:
        await road.migrate()
        broker: Any = road.broker
        await broker.apply(Topology((), tuple(Subscription(f"{topic}.readers", topic) for topic in topics)))
        gate = Gate(broker, "Subscriber/Pull")
        asking = asyncio.create_task(operations.status(road.store, road.outboxes, broker))

        async def met() -> bool:
            return gate.waiting >= len(topics)

        at_once = await post.eventually(met)
        gate.open()
        assert at_once
        assert (await asking).broker_trouble == ""
