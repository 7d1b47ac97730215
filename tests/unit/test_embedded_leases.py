"""Leases: kept while the process lives, lost when it dies, and worth nothing afterwards."""

import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroad.brokers.base import Flow
from postroad.brokers.embedded import EmbeddedBroker, connect
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


async def test_a_dead_receivers_messages_come_again_when_its_lease_has_run_out(
    post: Post, clock: VirtualClock
) -> None:
    first, second = await post.broker.subscribe(post.subscription.name, Flow()), await post.subscribe()
    await post.send_texts("k", "ab")
    await post.take(first, 2)
    first.abandon()  # type: ignore[attr-defined]
    await clock.advance(59.999999)
    assert await post.nothing_comes(second)
    await clock.advance(0.000001)
    again = await post.take(second, 2)
    assert [(delivery.data, delivery.attempt) for delivery in again] == [(b"a", 2), (b"b", 2)]


async def test_a_waiting_receiver_wakes_by_itself_when_anothers_lease_runs_out(
    post: Post, clock: VirtualClock
) -> None:
    first, second = await post.subscribe(), await post.subscribe()
    await post.send_texts("k", "a")
    await post.take(first, 1)
    first.abandon()  # type: ignore[attr-defined]
    woken = []

    async def wait() -> None:
        woken.extend(await second.receive())

    import asyncio

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
async def test_a_verdict_after_the_lease_was_lost_does_nothing(
    post: Post, clock: VirtualClock, verdict: str
) -> None:
    first, second = await post.subscribe(), await post.subscribe()
    await post.send_texts("k", "a")
    (lost,) = await post.take(first, 1)
    clock.shift(61)  # in one leap, so that nothing could be extended on the way
    (held,) = await post.take(second, 1)
    await {"ack": lost.ack, "retry": lambda: lost.retry(0), "dead": lambda: lost.dead("late")}[verdict]()
    assert await post.has_depth(1)
    assert list(await post.broker.dead_letters(post.topic)) == []
    assert await post.nothing_comes(first)
    await held.ack()
    assert await post.has_depth(0)


async def test_who_lost_its_lease_goes_on_under_a_new_one(post: Post, clock: VirtualClock) -> None:
    flow = Flow(messages=1)
    first, second = await post.subscribe(flow), await post.subscribe(flow)
    await post.send_texts("k", "a")
    await post.take(first, 1)
    clock.shift(61)
    (held,) = await post.take(second, 1)
    await held.ack()
    await post.send_texts("k", "b")
    # Its hands count as full until it learns of the loss, which a verdict on what it lost makes it do.
    assert await post.take_texts(second, 1) == "b"


async def test_a_lost_verdict_frees_the_flow(post: Post, clock: VirtualClock) -> None:
    first, second = await post.subscribe(Flow(messages=1)), await post.subscribe()
    await post.send_texts("k", "a")
    (lost,) = await post.take(first, 1)
    clock.shift(61)
    (held,) = await post.take(second, 1)
    await held.ack()
    await second.aclose()
    await lost.ack()
    await post.send_texts("k", "b")
    (delivery,) = await post.take(first, 1)
    await delivery.ack()
    assert await post.has_depth(0)


async def test_extending_by_hand_counts_the_leases_that_were_still_there(
    broker: EmbeddedBroker, post: Post, clock: VirtualClock
) -> None:
    await post.subscribe()
    receiver = await post.subscribe()
    assert await broker.extend_leases() == 2
    await receiver.aclose()
    assert await broker.extend_leases() == 1


async def test_what_a_closing_receiver_never_handled_is_not_an_attempt(post: Post) -> None:
    first, second = await post.subscribe(), await post.subscribe()
    await post.send_texts("k", "a")
    await post.take(first, 1)
    await first.aclose()
    (delivery,) = await post.take(second, 1)
    assert delivery.attempt == 1


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
    (delivery,) = await hold_one(post)
    block_until_extended(path, times=3)
    assert await Post.nothing_comes(post, await rival.subscribe(post.subscription.name, Flow()))
    await delivery.ack()
    assert await post.has_depth(0)
    await rival.aclose()
    await broker.aclose()


async def hold_one(post: Post):  # type: ignore[no-untyped-def]
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    return await post.take(receiver, 1)


def block_until_extended(path: Path, times: int) -> None:
    """Keeps the event loop from turning until the leases have been extended behind its back."""
    connection = sqlite3.connect(path)
    seen: set[int] = set()
    give_up = time.monotonic() + 20
    while len(seen) <= times and time.monotonic() < give_up:
        seen.update(expiry for (expiry,) in connection.execute("SELECT expires_at FROM receiver"))
    connection.close()
    assert len(seen) > times
