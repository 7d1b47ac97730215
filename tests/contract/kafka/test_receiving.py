"""Offsets, members and partitions: what is settled, by whom, and what comes again."""

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from confluent_kafka import TopicPartition

from postroad.brokers.base import Flow, Receiver
from postroad.brokers.kafka.broker import KafkaBroker
from postroad.brokers.kafka.receiver import KafkaDelivery, KafkaReceiver
from postroad.errors import BrokerError, ConfigurationError
from postroad.testing.post import Post
from tests.support.components import ROOT
from tests.support.kafka import admin, commit, committed, connected, let_grow, records


@pytest.fixture
async def other(kafka_url: str) -> AsyncIterator[KafkaBroker]:
    """Another process, as far as Kafka can tell."""
    broker = connected(kafka_url)
    yield broker
    await broker.aclose()


async def is_committed(post: Post, url: str, offset: int) -> bool:
    """Of all partitions together."""

    async def reached() -> bool:
        return sum(committed(url, post.subscription.name).values()) == offset

    return await post.eventually(reached)


# --- offsets


async def test_offsets_are_committed_only_up_to_the_first_that_is_not_settled(post: Post, kafka_url: str) -> None:
    receiver = await post.subscribe()
    await post.send(*(post.message("21", text) for text in "abcde"))
    held = await post.take(receiver, 5)
    await held[2].ack()
    await held[1].ack()
    await held[4].ack()
    await post.send(post.message("order-1", "x"))  # and something that is settled later, in another partition
    assert await post.take_texts(receiver, 1) == "x"
    assert await is_committed(post, kafka_url, 1)
    assert (await post.broker.depth(post.subscription.name)).messages == 5
    await held[0].ack()
    assert await is_committed(post, kafka_url, 4)
    await held[3].ack()
    assert await is_committed(post, kafka_url, 6)


async def test_what_waits_for_another_try_keeps_its_place_when_its_worker_goes(post: Post) -> None:
    receiver = await post.subscribe()
    await post.send_texts("k", "ab")
    first, second = await post.take(receiver, 2)
    await first.retry(3_600)
    await second.retry(3_600)
    await post.send(post.message("other", "x"))
    assert await post.take_texts(receiver, 1) == "x"
    await receiver.aclose()
    next_one = await post.subscribe()
    found = ""
    async with asyncio.timeout(post.patience):
        while len(found) < 2:  # the other key's may come again, too, if it stood behind these
            found += "".join(d.data.decode() for d in await next_one.receive() if d.key == "k")
    assert found == "ab"


async def test_a_partition_is_read_only_so_far_beyond_what_waits(kafka_url: str) -> None:
    """What was settled there would all come again after a crash; and what waits, waits in memory."""
    broker = connected(kafka_url, ahead=10)
    post = Post(broker)
    await broker.apply(post.topology)
    receiver = await post.subscribe()
    await post.send(post.message("21", "held"))
    (held,) = await post.take(receiver, 1)
    await post.send(*(post.message("21", str(n), aggregate_type=f"t{n}") for n in range(300)))
    passed = 0
    assert isinstance(receiver, KafkaReceiver)
    consumer = receiver._consumer
    async with asyncio.timeout(post.patience):
        while not (consumer._paused and consumer._messages == 1):  # not because too much is here
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    passed += await acknowledged(receiver)
    assert passed < 300
    await held.ack()
    async with asyncio.timeout(post.patience):
        while passed < 300:
            passed += await acknowledged(receiver)
    assert passed == 300
    assert await post.has_depth(0)
    await broker.aclose()


@pytest.mark.parametrize(("how", "again"), [("taken away and given back", "bcdefgh"), ("set back", "abcdefgh")])
async def test_a_partition_that_was_paused_is_read_when_it_comes_anew(kafka_url: str, how: str, again: str) -> None:
    broker = connected(kafka_url, ahead=2)
    post = Post(broker)
    await broker.apply(post.topology)
    receiver = await post.subscribe()
    assert isinstance(receiver, KafkaReceiver)
    await post.send_texts("21", "abcdefgh")
    first, *_ = await receiver.receive()  # the others stay in hand
    await first.ack()
    consumer = receiver._consumer
    async with asyncio.timeout(post.patience):
        while not consumer._paused:  # noqa: ASYNC110  (it happens in the consumer's thread)
            await asyncio.sleep(0.01)
    if how == "set back":
        await receiver.set_back(dict.fromkeys(receiver.positions(), 0))
    else:
        await receiver._run(lambda: consumer._member.unsubscribe())
        await receiver._run(consumer._join)
    assert await post.take_texts(receiver, len(again)) == again
    assert await post.has_depth(0)
    await broker.aclose()


async def acknowledged(receiver: Receiver) -> int:
    deliveries = await receiver.receive()
    for delivery in deliveries:
        await delivery.ack()
    return len(deliveries)


async def test_what_retention_has_taken_is_told_and_the_rest_is_read_from_its_beginning(
    post: Post, kafka_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await post.send_texts("21", "abcde")
    (number,) = {record.partition() for record in records(kafka_url, post.topic)}
    place = TopicPartition(post.topic, number, 3)
    for future in admin(kafka_url).delete_records([place]).values():
        future.result()
    with caplog.at_level(logging.ERROR, "postroad.kafka"):
        assert await post.take_texts(await post.subscribe(), 2) == "de"
    (told,) = caplog.records
    assert f"has lost 3 messages of partition {number}" in told.getMessage()


async def test_a_place_behind_the_end_is_told_and_nothing_is_passed_over(
    post: Post, kafka_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a topic was deleted and made again under the same name."""
    await post.send_texts("21", "ab")
    commit(kafka_url, post.subscription.name, post.topic, {0: 77, 1: 77, 2: 77})
    with caplog.at_level(logging.ERROR, "postroad.kafka"):
        assert await post.take_texts(await post.subscribe(), 2) == "ab"
    assert "was at message 77" in caplog.text


# --- members


@pytest.mark.spec("P6")
async def test_partitions_that_go_to_another_take_their_messages_along(post: Post, other: KafkaBroker) -> None:
    """Handlers are at work when a second worker comes. What they say of partitions that are no longer theirs does not
    count: the other one delivers those messages again, and settles them."""
    receiver = await post.subscribe()
    assert isinstance(receiver, KafkaReceiver)
    await post.send(*(post.message(f"k{n}", str(n)) for n in range(20)))
    held = await post.take(receiver, 20)
    second = await other.subscribe(post.subscription.name, Flow())
    moved = list(await second.receive())
    kept = receiver.positions()
    gone = [d for d in held if isinstance(d, KafkaDelivery) and d.arrival.partition.number not in kept]
    assert 0 < len(gone) < 20
    moved += await post.take(second, len(gone) - len(moved))
    for delivery in gone:
        await delivery.retry(0)
    assert await post.nothing_comes(receiver)
    for delivery in held:
        await delivery.ack()
    assert (await post.broker.depth(post.subscription.name)).messages == len(gone)
    assert await post.nothing_comes(second)
    for delivery in moved:
        await delivery.ack()
    assert (await other.depth(post.subscription.name)).messages == 0


async def test_a_worker_may_be_busy_for_longer_than_its_session(post: Post, kafka_url: str, other: KafkaBroker) -> None:
    """It stays in the group from a thread of its own, although its loop stands still."""
    brief = connected(kafka_url, session_timeout=1)
    busy = await brief.subscribe(post.subscription.name, Flow())
    await post.send_texts("k", "a")
    (held,) = await post.take(busy, 1)
    time.sleep(2.5)  # noqa: ASYNC251  # a handler that computes
    second = await other.subscribe(post.subscription.name, Flow())
    await held.ack()
    assert await post.has_depth(0)
    assert await post.nothing_comes(second)
    await brief.aclose()


async def test_what_a_killed_worker_held_comes_to_another_in_order(post: Post, kafka_url: str) -> None:
    await post.send_texts("k", "abc")
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.kafka_worker", kafka_url, post.subscription.name,
        stdout=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert worker.stdout is not None
    async with asyncio.timeout(post.patience):
        for text in "abc":
            assert (await worker.stdout.readline()).decode().strip() == text
    worker.kill()
    await worker.wait()
    assert await post.take_texts(await post.subscribe(), 3) == "abc"


async def test_two_workers_share_the_keys_and_each_key_stays_in_order(post: Post, other: KafkaBroker) -> None:
    """A third one comes and goes in the middle."""
    seen: dict[str, list[int]] = {}
    everything = asyncio.Event()

    async def consume(receiver: Receiver) -> None:
        while True:
            for delivery in await receiver.receive():
                steps = seen.setdefault(delivery.key, [])
                step = int(delivery.data)
                if step not in steps:  # what comes again is known to the inbox
                    steps.append(step)
                await asyncio.sleep(0)
                await delivery.ack()
            if sum(map(len, seen.values())) == 300:
                everything.set()

    receivers = [
        await post.subscribe(Flow(messages=5)),
        await other.subscribe(post.subscription.name, Flow(messages=5)),
    ]
    consuming = [asyncio.ensure_future(consume(receiver)) for receiver in receivers]
    for step in range(30):
        await post.send(*(post.message(f"k{n}", str(step)) for n in range(10)))
        if step == 10:
            third = await post.subscribe(Flow(messages=5))
            receivers.append(third)
            consuming.append(asyncio.ensure_future(consume(third)))
        if step == 20:
            consuming.pop().cancel()
            await receivers.pop().aclose()
    async with asyncio.timeout(post.patience):
        await everything.wait()
    for task in consuming:
        task.cancel()
    assert seen == {f"k{n}": list(range(30)) for n in range(10)}


# --- beginning and end


async def test_a_subscription_nobody_has_made_is_an_error(broker: KafkaBroker, kafka_url: str) -> None:
    post = Post(broker)
    with pytest.raises(ConfigurationError, match=r"does not exist\. Run: postroad topology apply"):
        await post.subscribe()


async def test_a_topic_that_has_grown_is_not_read_either(post: Post, kafka_url: str) -> None:
    let_grow(kafka_url, post.topic, 4)
    with pytest.raises(ConfigurationError, match="has 4 partitions, and 3 are agreed on"):
        await post.subscribe()


async def test_a_closed_receiver_says_so(post: Post) -> None:
    receiver = await post.subscribe()
    await receiver.aclose()
    await receiver.aclose()
    with pytest.raises(BrokerError, match="is closed"):
        await receiver.receive()
