"""Receiving from a real RabbitMQ: in order through retries, cuts and takeovers."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from postroad.brokers import connect_broker
from postroad.brokers.base import Confirmed, Delivery, Flow
from postroad.brokers.rabbitmq import receiver as receiving
from postroad.brokers.rabbitmq.broker import RabbitBroker
from postroad.brokers.rabbitmq.consumer import Arrival, Interrupted
from postroad.clock import SystemClock
from postroad.errors import BrokerError, BrokerUnavailable, ConfigurationError
from postroad.testing.post import Post
from proof.chaos.proxy import Proxy
from tests.support.rabbitmq import connected

QUICK = "delays = [0.1, 0.4, 1.5]\n"
"""Steps short enough for a test, and one long enough for a slow machine."""


@pytest.fixture(params=["classic", "quorum"])
async def quick(rabbitmq_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Post]:
    layout = tmp_path / "quick.toml"
    layout.write_text(QUICK)
    broker = connected(rabbitmq_url, layout=layout, prefetch=4, queue_type=request.param)
    post = Post(broker)
    await broker.apply(post.topology)
    yield post
    await broker.aclose()


def queue_depth(channel: Any, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


# --- retries ---------------------------------------------------------------------------------------


@pytest.mark.spec("P6")
async def test_a_retry_waits_on_the_server_and_later_ones_of_its_key_wait_for_it(quick: Post, channel: Any) -> None:
    receiver = await quick.subscribe()
    await quick.send_texts("k", "a")
    (delivery,) = await quick.take(receiver, 1)
    began = time.monotonic()
    await delivery.retry(1.6)
    assert queue_depth(channel, f"{quick.subscription.name}.delay.1.5s") == 1
    await quick.send_texts("k", "bc")
    await quick.send_texts("other", "x")
    assert await quick.take_texts(receiver, 1) == "x"
    assert await quick.take_texts(receiver, 3) == "abc"
    assert time.monotonic() - began >= 1.59
    assert await quick.nothing_comes(receiver)


async def test_more_messages_behind_a_retry_than_fit_in_hand_stop_no_other_key(quick: Post) -> None:
    receiver = await quick.subscribe()
    await quick.send_texts("k", "a")
    (delivery,) = await quick.take(receiver, 1)
    await delivery.retry(1.5)
    await quick.send_texts("k", "bcdefghijkl")
    await quick.send_texts("other", "x")
    assert await quick.take_texts(receiver, 1) == "x"
    assert await quick.take_texts(receiver, 12) == "abcdefghijkl"
    assert await quick.has_depth(0)


async def test_what_waits_long_behind_a_retry_waits_on_the_server_too(post: Post, channel: Any) -> None:
    """A server closes the channel of whoever holds a message for half an hour."""
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    await (await post.take(receiver, 1))[0].retry(200.0)
    await post.send_texts("k", "b")
    assert await post.nothing_comes(receiver)

    async def both_are_away() -> bool:
        return queue_depth(channel, f"{post.subscription.name}.delay.120s") == 2

    assert await post.eventually(both_are_away)
    assert await post.nothing_comes(receiver)


async def test_many_retries_at_once_keep_the_order_of_every_key(quick: Post) -> None:
    receiver = await quick.subscribe()
    keys, each = "pqrstu", 6
    await quick.send(*(quick.message(key, f"{key}{n}", version=n + 1) for n in range(each) for key in keys))
    handled: dict[str, list[str]] = {key: [] for key in keys}
    failed: set[str] = set()
    async with asyncio.timeout(quick.patience):
        while any(len(of_key) < each for of_key in handled.values()):
            waiting: dict[str, float] = {}
            for delivery in await receiver.receive():
                text = delivery.data.decode()
                if delivery.key in waiting:
                    await delivery.retry(waiting[delivery.key])
                elif text not in failed and int(text[1]) % 2:
                    failed.add(text)
                    waiting[delivery.key] = 0.15
                    await delivery.retry(0.15)
                else:
                    handled[delivery.key].append(text)
                    await delivery.ack()
    assert handled == {key: [f"{key}{n}" for n in range(each)] for key in keys}


def test_only_what_waits_less_than_the_first_delay_queue_keeps_its_place(quick: Post, post: Post) -> None:
    assert (quick.broker.features.keeps_place, post.broker.features.keeps_place) == (0.1, 1.0)


async def test_whoever_takes_over_finds_what_waited_for_a_moment_in_its_old_place(
    post: Post, rabbitmq_url: str
) -> None:
    receiver = await post.subscribe()
    await post.send_texts("k", "ab")
    for delivery in await post.take(receiver, 2):
        await delivery.retry(0.9 * post.broker.features.keeps_place)  # as while its database is out of reach
    other = connected(rabbitmq_url)
    successor = await other.subscribe(post.subscription.name, Flow())
    await receiver.aclose()
    assert await post.take_texts(successor, 2) == "ab"
    await other.aclose()


class SetClock(SystemClock):
    """One that somebody sets."""

    by = timedelta()

    def now(self) -> datetime:
        return super().now() + self.by


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_retry_waits_as_long_as_it_should_whoever_sets_the_clock(rabbitmq_url: str, hours: int) -> None:
    clock = SetClock()
    broker = connect_broker(rabbitmq_url, clock=clock)
    post = Post(broker)
    await broker.apply(post.topology)
    receiver = await post.subscribe()
    await post.send_texts("k", "ab")
    for delivery, wait in zip(await post.take(receiver, 2), (1.0, 0.5), strict=True):
        await delivery.retry(wait)
    clock.by = timedelta(hours=hours)
    await post.send_texts("k", "c")
    assert await post.take_texts(receiver, 3) == "abc"
    await broker.aclose()


@pytest.mark.parametrize("alone", [True, False])
async def test_a_key_does_not_wait_for_ever_for_what_was_taken_from_it(
    alone: bool, rabbitmq_url: str, channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By somebody who emptied the delay queue, or by another worker, where several may receive."""
    monkeypatch.setattr(receiving, "_CERTAINLY_LOST" if alone else "_WITH_ANOTHER", 0.3)
    broker = connected(rabbitmq_url, single_active_consumer="true" if alone else "false")
    post = Post(broker)
    await broker.apply(post.topology)
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    await (await post.take(receiver, 1))[0].retry(1.0)
    channel.queue_purge(f"{post.subscription.name}.delay.1s")
    await post.send_texts("k", "b")
    assert await post.nothing_comes(receiver)
    assert await post.take_texts(receiver, 1) == "b"
    await broker.aclose()


async def test_a_retry_that_cannot_be_sent_away_waits_here(
    post: Post, distant: RabbitBroker, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "_ANOTHER_TRY", 0.1)
    receiver = await distant.subscribe(post.subscription.name, Flow())
    await post.send_texts("k", "ab")
    first, second = await post.take(receiver, 2)
    await post.send_texts("other", "x")
    await (await post.take(receiver, 1))[0].retry(1.0)  # so that the way is known
    proxy.stall()
    await first.retry(1.0)
    await second.retry(1.0)
    proxy.resume()
    texts = ""
    while not set(texts) >= {"a", "b"}:
        for delivery in await receiver.receive():
            texts += delivery.data.decode()
            await delivery.ack()
    # A copy may have got through, unconfirmed.
    assert "".join(dict.fromkeys(texts.replace("x", ""))) == "ab"


async def test_a_server_that_takes_no_messages_keeps_nobody_from_receiving(post: Post) -> None:
    """It takes none while it is short of memory, and handling what it has is the only cure."""
    receiver = await post.subscribe()
    await post.send(post.message("a", "a"), post.message("b", "b"))
    failed, unreadable = await post.take(receiver, 2)
    await post.send(post.message("c", "c"), post.message("d", "d"))
    with publishing_blocked(post.broker):
        await failed.retry(1.5)
        await unreadable.dead("cannot be read")
        assert await post.take_texts(receiver, 3) == "cda"
        assert await post.nothing_comes(receiver)
    assert await post.eventually(lambda: dead_is(post, "b"))  # and now it is buried
    assert await post.has_depth(0)


async def test_what_waits_long_is_sent_away_once_it_can_be(
    post: Post, channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "_ANOTHER_TRY", 0.1)
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    (delivery,) = await post.take(receiver, 1)
    waiting = asyncio.ensure_future(receiver.receive())
    with publishing_blocked(post.broker):
        await delivery.retry(100.0)

    async def away() -> bool:
        delayed = (await post.broker.depth(post.subscription.name)).delayed
        return delayed == 1 and not receiver._errands  # type: ignore[attr-defined]

    assert await post.eventually(away)
    assert queue_depth(channel, f"{post.subscription.name}.delay.30s") == 1
    waiting.cancel()


@contextmanager
def publishing_blocked(broker: Any) -> Iterator[None]:
    """As by a memory alarm, without taking the memory of a server that others use too."""
    broker._publishing.blocked = "low on memory"
    yield
    broker._publishing.blocked = ""


async def dead_is(post: Post, texts: str) -> bool:
    return [letter.data.decode() for letter in await post.broker.dead_letters(post.topic)] == list(texts)


async def test_a_delayed_message_comes_by_way_of_a_queue_and_not_before_its_time(quick: Post, channel: Any) -> None:
    receiver = await quick.subscribe()
    now = datetime.now(UTC)
    due, soon = now + timedelta(seconds=2.2), now + timedelta(seconds=0.6)
    await quick.send(quick.message("k", "later", deliver_at=due), quick.message("k", "sooner", deliver_at=soon))
    assert queue_depth(channel, f"{quick.topic}.delay.1.5s") == 1
    depth = await quick.broker.depth(quick.subscription.name)
    assert depth.messages == 2
    assert depth.delayed >= 1
    for text, moment in (("sooner", soon), ("later", due)):
        (delivery,) = await quick.take(receiver, 1)
        assert delivery.data.decode() == text
        assert datetime.now(UTC) >= moment
        await delivery.ack()


# --- cut off ---------------------------------------------------------------------------------------


async def test_what_a_cut_connection_held_comes_again_in_order(post: Post, distant: RabbitBroker, proxy: Proxy) -> None:
    receiver = await distant.subscribe(post.subscription.name, Flow())
    await post.send_texts("k", "abc")
    held = await post.take(receiver, 3)
    await held[0].ack()
    assert await post.has_depth(2)
    proxy.cut_all()
    assert await post.take_texts(receiver, 2) == "bc"
    # What was held is not ours any more: a late verdict must not touch what came instead.
    for delivery in held:
        await delivery.ack()
        await delivery.retry(0)
        await delivery.dead("too late")
    assert await post.nothing_comes(receiver)
    assert list(await post.broker.dead_letters(post.topic)) == []


async def test_an_acknowledgement_that_comes_late_meets_no_other_message(
    post: Post, distant: RabbitBroker, proxy: Proxy
) -> None:
    """Numbers begin anew on every channel: the same one then means another message."""
    receiver = await distant.subscribe(post.subscription.name, Flow())
    await post.send_texts("k", "a")
    (before,) = await post.take(receiver, 1)
    proxy.cut_all()
    (after,) = await post.take(receiver, 1)
    old, new = before.arrival, after.arrival  # type: ignore[attr-defined]
    assert (old.tag, old.generation) == (new.tag, new.generation - 1)

    async def acknowledge_late() -> None:
        receiver.consumer.settle([(old.generation, old.tag)])

    await distant._thread.run(acknowledge_late)
    await receiver.aclose()
    assert await post.take_texts(await post.subscribe(), 1) == "a"


async def test_what_had_come_and_was_not_handed_out_is_not_handed_out_twice(
    post: Post, distant: RabbitBroker, proxy: Proxy
) -> None:
    receiver = await distant.subscribe(post.subscription.name, Flow(bytes=1))
    await post.send_texts("k", "abc")
    await post.take(receiver, 1)
    proxy.cut_all()
    assert await post.take_texts(receiver, 3) == "abc"
    assert await post.nothing_comes(receiver)
    assert (await distant.depth(post.subscription.name)).messages == 0


async def test_what_goes_back_to_a_queue_goes_back_to_its_front(quick: Post) -> None:
    await quick.send_texts("k", "abcdefgh")
    first = await quick.subscribe()
    await quick.take(first, 4)
    await first.aclose()
    assert await quick.take_texts(await quick.subscribe(), 8) == "abcdefgh"


async def test_receiving_goes_on_after_the_server_closed_the_channel(post: Post, channel: Any) -> None:
    receiver = await post.subscribe()
    await post.send_texts("k", "ab")
    await post.take(receiver, 2)
    consumer = receiver.consumer  # type: ignore[attr-defined]
    # Acknowledging what does not exist: the server closes the channel with 406.
    await post.broker._thread.run(_nonsense, consumer)  # type: ignore[attr-defined]
    assert await post.take_texts(receiver, 2) == "ab"


async def _nonsense(consumer: Any) -> None:
    consumer.settle([(consumer.generation, 999)])


async def test_a_queue_that_vanishes_is_told_and_its_return_is_noticed(post: Post, channel: Any) -> None:
    receiver = await post.subscribe()
    waiting = asyncio.ensure_future(receiver.receive())
    channel.queue_delete(post.subscription.name)
    with pytest.raises(BrokerUnavailable, match=r"does not exist any more\. Run: postroad topology apply"):
        async with asyncio.timeout(post.patience):
            await waiting
    await post.broker.apply(post.topology)
    await post.send_texts("k", "a")
    assert await repeated(lambda: post.take_texts(receiver, 1)) == "a"


async def test_a_queue_that_returns_after_long_is_heard_at_once(post: Post, channel: Any) -> None:
    receiver = await post.subscribe()
    told = receiver._told  # type: ignore[attr-defined]
    channel.queue_delete(post.subscription.name)

    async def complained_often() -> bool:
        return sum(isinstance(event, BrokerError) for event in tuple(told)) >= 3

    async def arrived() -> bool:
        return any(isinstance(event, Arrival) for event in tuple(told))

    assert await post.eventually(complained_often)
    await post.broker.apply(post.topology)
    await post.send_texts("k", "a")
    assert await post.eventually(arrived)
    assert await post.take_texts(receiver, 1) == "a"


async def test_an_unforeseen_error_is_told_and_receiving_goes_on(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = await post.subscribe()
    consumer = receiver.consumer  # type: ignore[attr-defined]
    with monkeypatch.context() as broken:
        broken.setattr(consumer._line, "channel", lambda: 1 / 0)
        await post.broker._thread.run(_nonsense, consumer)  # type: ignore[attr-defined]
        with pytest.raises(BrokerUnavailable, match="ZeroDivisionError"):
            async with asyncio.timeout(5.0):
                await receiver.receive()
    await post.send_texts("k", "a")
    assert await repeated(lambda: post.take_texts(receiver, 1)) == "a"


async def test_what_comes_late_through_an_abandoned_channel_is_not_handed_out(post: Post) -> None:
    receiver: Any = await post.subscribe()
    generation = receiver.consumer.generation
    receiver.tell(Interrupted(generation))
    receiver.tell(Arrival(generation, 1, {"aggregate_id": "k"}, b"late", "", "", None, False))
    assert await post.nothing_comes(receiver)


async def test_why_receiving_was_interrupted_is_told(
    post: Post, channel: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await post.subscribe()
    channel.queue_delete(post.subscription.name)

    async def told() -> bool:
        return "was interrupted: RabbitMQ ended it: the queue was deleted or moved" in caplog.text

    assert await post.eventually(told)


async def test_a_subscription_that_is_not_there_is_told(broker: RabbitBroker) -> None:
    with pytest.raises(ConfigurationError, match=r"Subscription 'a\.events\.nobody' does not exist"):
        await broker.subscribe("a.events.nobody", Flow())
    with pytest.raises(ConfigurationError, match=r"Subscription 'a\.events\.nobody' does not exist"):
        await broker.depth("a.events.nobody")


async def test_a_subscriber_that_changed_its_mind_keeps_nothing_from_others(post: Post) -> None:
    await post.send_texts("k", "ab")
    for turns in range(12):
        asking = asyncio.ensure_future(post.subscribe())
        for _ in range(turns):
            await asyncio.sleep(0.001)
        asking.cancel()
        await asyncio.wait((asking,))
        if not asking.cancelled():
            await asking.result().aclose()
    assert await post.take_texts(await post.subscribe(), 2) == "ab"


async def test_a_delay_queue_that_differs_is_told_and_the_message_waits_here(
    post: Post, channel: Any, caplog: pytest.LogCaptureFixture
) -> None:
    channel.queue_declare(f"{post.subscription.name}.delay.1s", durable=True)
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    (delivery,) = await post.take(receiver, 1)
    await delivery.retry(1.0)
    assert "delay.1s' is there already, but differs in argument" in caplog.text
    assert await post.take_texts(receiver, 1) == "a"
    assert await post.has_depth(0)


async def test_heartbeats_go_on_while_the_loop_is_busy(rabbitmq_url: str) -> None:
    broker = connected(rabbitmq_url, heartbeat=2)
    post = Post(broker)
    await broker.apply(post.topology)
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    (delivery,) = await post.take(receiver, 1)
    time.sleep(7)  # noqa: ASYNC251 (longer than the server would wait for a sign of life)
    await delivery.ack()
    assert await post.has_depth(0)
    assert await post.nothing_comes(receiver)
    await broker.aclose()


# --- several workers -------------------------------------------------------------------------------


@pytest.mark.spec("P6")
async def test_of_two_workers_one_stands_by_and_takes_over_in_order(post: Post, rabbitmq_url: str) -> None:
    other = connected(rabbitmq_url)
    first, second = await post.subscribe(), await other.subscribe(post.subscription.name, Flow())
    await post.send_texts("k", "abcd")
    held = await post.take(first, 4)
    assert await post.nothing_comes(second)
    await held[0].ack()
    await first.aclose()
    assert await post.take_texts(second, 3) == "bcd"
    await other.aclose()


WORKER = """
import asyncio, sys
from postroad.brokers import connect_broker
from postroad.brokers.base import Flow
from postroad.clock import SystemClock

async def hold(url, subscription):
    broker = connect_broker(url, clock=SystemClock())
    receiver = await broker.subscribe(subscription, Flow())
    held = []
    while len(held) < 3:
        held += await receiver.receive()
    await held[0].ack()
    await broker.depth(subscription)  # asks on the same channel: when it is answered, the acknowledgement has arrived
    print("holding", flush=True)
    await asyncio.Event().wait()

asyncio.run(hold(*sys.argv[1:]))
"""


async def test_what_a_killed_worker_held_goes_to_another_in_order(post: Post, rabbitmq_url: str) -> None:
    await post.send_texts("k", "abc")
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, rabbitmq_url, post.subscription.name,
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert worker.stdout is not None
    async with asyncio.timeout(post.patience):
        assert await worker.stdout.readline() == b"holding\n"
    receiver = await post.subscribe()
    assert await post.nothing_comes(receiver)
    worker.send_signal(signal.SIGKILL)
    await worker.wait()
    assert await post.take_texts(receiver, 2) == "bc"


# --- prefetch --------------------------------------------------------------------------------------


@pytest.mark.spec("R3")
async def test_twenty_are_prefetched_unless_the_url_or_the_flow_say_otherwise(post: Post, rabbitmq_url: str) -> None:
    await post.send(*(post.message(f"k{n}") for n in range(30)))
    for options, flow, expected in (({}, Flow(), 20), ({"prefetch": 25}, Flow(), 25), ({}, Flow(messages=7), 7)):
        broker = connected(rabbitmq_url, **options)
        receiver = await broker.subscribe(post.subscription.name, flow)
        assert len(await _all_that_comes(post, receiver)) == expected
        await broker.aclose()


async def _all_that_comes(post: Post, receiver: Any) -> list[Delivery]:
    held: list[Delivery] = []
    try:
        while True:
            async with asyncio.timeout(2 * post.silence):
                held += await receiver.receive()
    except TimeoutError:
        return held


async def repeated(step: Any) -> Any:
    """Until the broker is there again."""
    async with asyncio.timeout(30.0):
        while True:
            try:
                return await step()
            except BrokerError:
                await asyncio.sleep(0.05)


async def test_counting_does_not_mind_what_is_told_meanwhile(post: Post) -> None:
    """The connections' thread goes on telling while another counts."""
    receiver: Any = await post.subscribe()

    class Telling:
        @property
        def __class__(self) -> type:  # type: ignore[override]
            receiver._told.append(Interrupted(0))
            return Interrupted

    receiver._told.extend([Telling(), Interrupted(0)])
    assert receiver.unsettled() == (0, 0, None)


async def test_sending_works_while_receiving(post: Post) -> None:
    receiver = await post.subscribe()
    for text in "abcde":
        assert list(await post.broker.send([post.message("k", text)])) == [Confirmed()]
        assert await post.take_texts(receiver, 1) == text
