"""Leases: kept while the process lives, lost when it dies, and worth nothing afterwards."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroad.brokers.base import Flow
from postroad.brokers.embedded import EmbeddedBroker, connect
from postroad.brokers.embedded.receiver import EmbeddedReceiver
from postroad.clock import SystemClock
from postroad.testing import VirtualClock
from postroad.testing.post import Post


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def broker(clock: VirtualClock) -> AsyncIterator[EmbeddedBroker]:
    broker = connect("embedded:", clock=clock)
    yield broker
    await broker.aclose()


@pytest.fixture
async def post(broker: EmbeddedBroker) -> Post:
    post = Post(broker, silence=0.03)
    await broker.apply(post.topology)
    return post


async def subscribe(post: Post, messages: int = 1_000) -> EmbeddedReceiver:
    assert isinstance(post.broker, EmbeddedBroker)
    return await post.broker.subscribe(post.subscription.name, Flow(messages=messages))


async def stall(receiver: EmbeddedReceiver, clock: VirtualClock) -> None:
    """Its process stands still for longer than the lease, then goes on."""
    receiver._leases.drop(receiver._id)
    await clock.advance(61)


async def test_a_dead_receivers_messages_come_again_when_its_lease_has_run_out(post: Post, clock: VirtualClock) -> None:
    first, second = await subscribe(post), await subscribe(post)
    await post.send_texts("k", "ab")
    await post.take(first, 2)
    first.abandon()
    await clock.advance(59.999999)
    assert await post.nothing_comes(second)
    await clock.advance(0.000001)
    again = await post.take(second, 2)
    assert [(delivery.data, delivery.attempt) for delivery in again] == [(b"a", 2), (b"b", 2)]


async def test_a_waiting_receiver_wakes_by_itself_when_anothers_lease_runs_out(post: Post, clock: VirtualClock) -> None:
    first, second = await subscribe(post), await subscribe(post)
    await post.send_texts("k", "a")
    await post.take(first, 1)
    first.abandon()
    woken = []

    async def wait() -> None:
        woken.extend(await second.receive())

    task = asyncio.create_task(wait())
    await clock.advance(61)
    assert [delivery.attempt for delivery in woken] == [2]
    await task


async def test_a_living_receiver_keeps_its_lease(post: Post, clock: VirtualClock) -> None:
    first, second = await post.subscribe(), await post.subscribe()
    await post.send_texts("k", "a")
    (delivery,) = await post.take(first, 1)
    await clock.advance(600)
    assert await post.nothing_comes(second)
    await delivery.ack()
    assert await post.has_depth(0)


@pytest.mark.parametrize("verdict", ["ack", "retry", "dead"])
async def test_a_verdict_after_the_lease_was_lost_does_nothing(post: Post, clock: VirtualClock, verdict: str) -> None:
    first, second = await subscribe(post), await subscribe(post)
    await post.send_texts("k", "a")
    (lost,) = await post.take(first, 1)
    await stall(first, clock)
    (held,) = await post.take(second, 1)
    await {"ack": lost.ack, "retry": lambda: lost.retry(0), "dead": lambda: lost.dead("late")}[verdict]()
    assert await post.has_depth(1)
    assert list(await post.broker.dead_letters(post.topic)) == []
    assert await post.nothing_comes(first)
    await held.ack()
    assert await post.has_depth(0)


async def test_who_lost_its_lease_goes_on_under_a_new_one(post: Post, clock: VirtualClock) -> None:
    first, second = await subscribe(post, messages=2), await subscribe(post)
    await post.send(post.message("k", "a"))
    (lost,) = await post.take(first, 1)
    await stall(first, clock)
    (held,) = await post.take(second, 1)
    await post.send(post.message("b", "b"), post.message("c", "c"))
    await second.aclose()
    # All that it held is lost, so its hands are empty: there is room for two again.
    assert {delivery.data for delivery in await post.take(first, 2)} <= {b"a", b"b", b"c"}
    await lost.ack()
    await held.ack()
    assert await post.has_depth(3)
    await clock.advance(600)  # and the new lease is extended as the old one was
    assert await post.nothing_comes(first)


async def test_a_verdict_on_what_was_lost_makes_room(post: Post, clock: VirtualClock) -> None:
    first, second = await subscribe(post, messages=1), await subscribe(post)
    await post.send_texts("k", "a")
    (lost,) = await post.take(first, 1)
    await stall(first, clock)
    await (await post.take(second, 1))[0].ack()
    await second.aclose()
    await lost.ack()
    await post.send_texts("k", "b")
    assert await post.take_texts(first, 1) == "b"
    assert await post.has_depth(0)


async def test_extending_by_hand_counts_the_leases_that_were_still_there(
    broker: EmbeddedBroker, post: Post, clock: VirtualClock
) -> None:
    await post.subscribe()
    receiver = await post.subscribe()
    assert await broker.extend_leases() == 2
    await receiver.aclose()
    assert await broker.extend_leases() == 1


@pytest.mark.parametrize("keyed", [True, False])
async def test_what_a_closing_receiver_never_handled_is_not_an_attempt(
    post: Post, clock: VirtualClock, keyed: bool
) -> None:
    first, second = await post.subscribe(), await post.subscribe()
    await post.send(post.message("k", "a", deliver_at=None if keyed else clock.now()))
    await post.take(first, 1)
    await first.aclose()
    (delivery,) = await post.take(second, 1)
    assert (delivery.key, delivery.attempt) == ("k" if keyed else "", 1)


@pytest.mark.parametrize("how", ["retry", "expiry"])
async def test_after_max_attempts_the_broker_itself_dead_letters(
    broker: EmbeddedBroker, clock: VirtualClock, how: str
) -> None:
    post = Post(broker, silence=0.03, max_attempts=2)
    await broker.apply(post.topology)
    await post.send_texts("k", "ab")
    for attempt in (1, 2):
        receiver = await broker.subscribe(post.subscription.name, Flow(messages=1))
        (delivery,) = await post.take(receiver, 1)
        assert (delivery.data, delivery.attempt) == (b"a", attempt)
        if how == "retry":
            await delivery.retry(0)
            await receiver.aclose()
        else:
            receiver.abandon()
            clock.shift(61)
    assert await post.take_texts(await post.subscribe(), 1) == "b"
    (letter,) = await broker.dead_letters(post.topic)
    assert (letter.data, letter.attempts) == (b"a", 2)
    assert "exceeded maxRetry (2 deliveries)" in letter.reason


async def test_leases_in_a_file_are_extended_while_the_event_loop_is_blocked(tmp_path: Path) -> None:
    path = tmp_path / "broker.db"
    broker, rival = (connect(f"embedded:{path}", clock=SystemClock()) for _ in range(2))
    post = Post(broker, ack_deadline=0.15)
    await broker.apply(post.topology)
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    (delivery,) = await post.take(receiver, 1)
    block_until_extended(path, times=3)
    assert await post.nothing_comes(await rival.subscribe(post.subscription.name, Flow()))
    await delivery.ack()
    assert await post.has_depth(0)
    await rival.aclose()
    await broker.aclose()


def block_until_extended(path: Path, times: int) -> None:
    """Keeps the event loop from turning until the leases have been extended behind its back."""
    connection = sqlite3.connect(path)
    seen: set[int] = set()
    give_up = time.monotonic() + 20
    while len(seen) <= times and time.monotonic() < give_up:
        seen.update(expiry for (expiry,) in connection.execute("SELECT expires_at FROM receiver"))
    connection.close()
    assert len(seen) > times
