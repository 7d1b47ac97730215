"""Ordering keys: who may have a key, and what stands before what."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroad.brokers.base import Delivery, Flow, Receiver
from postroad.brokers.embedded import EmbeddedBroker, connect
from postroad.testing import VirtualClock
from postroad.testing.post import Post


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "file"])
async def broker(request: pytest.FixtureRequest, clock: VirtualClock, tmp_path: Path) -> AsyncIterator[EmbeddedBroker]:
    url = "embedded:" if request.param == "memory" else f"embedded://{tmp_path / 'broker.db'}"
    broker = connect(url, clock=clock)
    yield broker
    await broker.aclose()


@pytest.fixture
async def post(broker: EmbeddedBroker) -> Post:
    post = Post(broker, silence=0.03)
    await broker.apply(post.topology)
    return post


def texts(deliveries: list[Delivery]) -> str:
    return "".join(delivery.data.decode() for delivery in deliveries)


async def take(post: Post, receiver: Receiver, expected: str) -> list[Delivery]:
    deliveries = await post.take(receiver, len(expected))
    assert texts(deliveries) == expected
    return deliveries


async def test_one_receiver_may_hold_a_run_of_a_key_and_no_other_shares_it(post: Post) -> None:
    first, second = await post.subscribe(Flow(messages=2)), await post.subscribe()
    await post.send_texts("k", "abcd")
    a, b = await take(post, first, "ab")
    assert await post.nothing_comes(second)
    await a.ack()
    assert await post.nothing_comes(second)
    await b.ack()
    await take(post, second, "cd")


async def test_a_given_back_head_is_not_overtaken_by_what_was_not_handed_out(post: Post) -> None:
    receiver = await post.subscribe(Flow(messages=2))
    await post.send_texts("k", "abcd")
    a, b = await take(post, receiver, "ab")
    await a.retry(10)
    await b.ack()
    assert await post.nothing_comes(receiver)
    assert await post.has_depth(3)


async def test_a_given_back_head_returns_only_to_who_still_holds_a_later_one(post: Post, clock: VirtualClock) -> None:
    first, second = await post.subscribe(Flow(messages=2)), await post.subscribe()
    await post.send_texts("k", "abc")
    a, b = await take(post, first, "ab")
    await a.retry(0)
    assert await post.nothing_comes(second)
    (again,) = await take(post, first, "a")
    assert again.attempt == 2
    await again.ack()
    assert await post.nothing_comes(second)
    await b.ack()
    await take(post, second, "c")


async def test_what_is_in_hand_is_not_handed_out_again_with_its_head(post: Post) -> None:
    receiver = await post.subscribe()
    await post.send_texts("k", "abc")
    a, _, _ = await take(post, receiver, "abc")
    await a.retry(0)
    await take(post, receiver, "a")
    assert await post.nothing_comes(receiver)


async def test_seeking_back_leaves_what_is_in_hand_there(post: Post, clock: VirtualClock) -> None:
    first, second = await post.subscribe(), await post.subscribe()
    start = clock.now()
    await post.send_texts("k", "a")
    (a,) = await take(post, first, "a")
    assert await post.broker.seek(post.subscription.name, start) == 0
    assert await post.nothing_comes(first)
    assert await post.nothing_comes(second)
    await a.ack()
    assert await post.has_depth(0)


async def test_a_later_one_given_back_first_still_comes_after_its_head(post: Post) -> None:
    receiver = await post.subscribe(Flow(messages=3))
    await post.send_texts("k", "abc")
    a, b, c = await take(post, receiver, "abc")
    await c.retry(0)
    await b.retry(0)
    assert await post.nothing_comes(receiver)
    await a.retry(0)
    await take(post, receiver, "abc")


async def test_a_run_ends_before_a_message_that_is_not_due(post: Post, clock: VirtualClock) -> None:
    receiver = await post.subscribe()
    await post.send_texts("k", "abc")
    a, b, c = await take(post, receiver, "abc")
    await b.retry(10)
    await c.retry(0)
    await a.retry(0)
    (again,) = await take(post, receiver, "a")
    await again.ack()
    assert await post.nothing_comes(receiver)
    clock.shift(10)
    await take(post, receiver, "bc")


async def test_dying_lets_the_next_of_the_key_through(post: Post) -> None:
    receiver = await post.subscribe(Flow(messages=1))
    await post.send_texts("k", "ab")
    (a,) = await take(post, receiver, "a")
    await a.dead("unreadable")
    (b,) = await take(post, receiver, "b")
    assert b.data == b"b"


async def test_a_revived_message_stands_before_the_later_ones_of_its_key_again(post: Post) -> None:
    receiver = await post.subscribe(Flow(messages=1))
    await post.send_texts("k", "abc")
    (a,) = await take(post, receiver, "a")
    await a.dead("unreadable")
    (letter,) = await post.broker.dead_letters(post.topic)
    await receiver.aclose()
    await post.broker.revive(post.topic, [letter.id])
    assert await post.take_texts(await post.subscribe(), 3) == "abc"


async def test_revival_goes_to_the_subscription_it_came_from_only(post: Post) -> None:
    other = Post(post.broker, silence=0.03)
    other.topic, other.subscription = post.topic, type(post.subscription)(f"{post.topic}.others", post.topic)
    await post.broker.apply(other.topology)
    mine, theirs = await post.subscribe(), await other.subscribe()
    await post.send_texts("k", "a")
    assert await other.take_texts(theirs, 1) == "a"
    (a,) = await take(post, mine, "a")
    await a.dead("unreadable")
    (letter,) = await post.broker.dead_letters(post.topic)
    assert await post.broker.revive("another.topic", [letter.id]) == 0
    assert await post.broker.revive(post.topic, [letter.id, "999", "no number"]) == 1
    assert await other.nothing_comes(theirs)
    assert await post.take_texts(mine, 1) == "a"


async def test_seeking_back_puts_the_reopened_before_what_is_ready(post: Post, clock: VirtualClock) -> None:
    receiver = await post.subscribe(Flow(messages=2))
    start = clock.now()
    await post.send_texts("k", "abcd")
    a, b = await take(post, receiver, "ab")
    await a.ack()
    await b.ack()
    await receiver.aclose()
    assert await post.broker.seek(post.subscription.name, start) == 2
    assert await post.take_texts(await post.subscribe(), 4) == "abcd"


async def test_without_a_key_nothing_waits(post: Post, clock: VirtualClock) -> None:
    first, second = await post.subscribe(Flow(messages=1)), await post.subscribe(Flow(messages=1))
    due = clock.now()
    await post.send(*(post.message("k", text, deliver_at=due) for text in "ab"))
    assert {texts(await post.take(first, 1)), texts(await post.take(second, 1))} == {"a", "b"}


async def test_a_delayed_message_becomes_due_by_the_clock(post: Post, clock: VirtualClock) -> None:
    receiver = await post.subscribe()
    due = clock.now().replace(hour=1)
    await post.send(post.message("k", "x", deliver_at=due))
    assert (await post.broker.depth(post.subscription.name)).oldest is None
    assert await post.nothing_comes(receiver)
    clock.shift(3600)
    assert (await post.broker.depth(post.subscription.name)).oldest == due
    await take(post, receiver, "x")


async def test_a_second_verdict_makes_no_second_room(post: Post) -> None:
    receiver = await post.subscribe(Flow(messages=1))
    await post.send(*(post.message(key, key) for key in "abc"))
    (a,) = await take(post, receiver, "a")
    await a.ack()
    await a.ack()
    await take(post, receiver, "b")
    assert await post.nothing_comes(receiver)


async def test_a_flow_too_small_for_one_message_still_lets_one_through(post: Post) -> None:
    receiver = await post.subscribe(Flow(bytes=10))
    await post.send_texts("k", "ab")
    (a,) = await take(post, receiver, "a")
    assert await post.nothing_comes(receiver)
    await a.ack()
    await take(post, receiver, "b")
