"""What a step costs must depend neither on the backlog nor on the history. Counted in SQLite's own steps."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from postroad.brokers.base import Flow, Receiver, depth_as_told
from postroad.brokers.embedded import EmbeddedBroker, connect
from postroad.brokers.embedded.purge import WINDOW
from postroad.testing import VirtualClock
from postroad.testing.post import Post

SMALL, LARGE = 500, 20_000


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    broker = connect("embedded:", clock=VirtualClock())
    yield broker
    await broker.aclose()


@pytest.fixture
async def post(broker: EmbeddedBroker) -> Post:
    post = Post(broker, silence=0.03)
    await broker.apply(post.topology)
    return post


async def steps(broker: EmbeddedBroker, work: Callable[[], Awaitable[None]]) -> int:
    """Virtual machine steps, in hundreds."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1

    def watch(connection: sqlite3.Connection, now: int) -> None:
        connection.set_progress_handler(step, 100)

    await broker._database.read(watch)
    await work()
    return count


async def send_many(post: Post, count: int) -> None:
    for _ in range(0, count, 500):
        await post.send(*(post.message("busy") for _ in range(500)))


async def some_work(post: Post, receiver: Receiver) -> None:
    """Everything that happens all the time, once."""
    await post.send_texts("free", "ab")
    assert await post.take_texts(receiver, 2) == "ab"
    await post.send_texts("busy", "c")
    assert isinstance(post.broker, EmbeddedBroker)
    await post.broker.extend_leases()
    other = await post.subscribe()
    assert await post.nothing_comes(other)
    await other.aclose()


async def test_what_metrics_ask_looks_at_ten_thousand_messages(broker: EmbeddedBroker, post: Post) -> None:
    name = post.subscription.name

    async def ask() -> None:
        depth = await depth_as_told(broker, name)
        assert depth is not None
        assert depth.messages == 10_000
        assert depth.oldest is not None

    await send_many(post, 10_500)
    short = await steps(broker, ask)
    await send_many(post, 9_500)
    assert await steps(broker, ask) < 1.1 * short
    assert (await broker.depth(name)).messages == 20_000  # who decides by it must know


@pytest.mark.parametrize("backlog", [SMALL, LARGE])
async def test_the_backlog_behind_a_blocked_key_costs_nothing(broker: EmbeddedBroker, post: Post, backlog: int) -> None:
    await send_many(post, backlog)
    receiver = await post.subscribe(Flow(messages=1))
    (head,) = await post.take(receiver, 1)
    await head.retry(60)
    assert await steps(broker, lambda: some_work(post, receiver)) < 30


@pytest.mark.parametrize("backlog", [SMALL, LARGE])
async def test_the_backlog_behind_a_key_in_hand_costs_nothing(broker: EmbeddedBroker, post: Post, backlog: int) -> None:
    await send_many(post, backlog)
    holder = await post.subscribe(Flow(messages=1))
    await post.take(holder, 1)
    receiver = await post.subscribe()
    assert await steps(broker, lambda: some_work(post, receiver)) < 30


@pytest.mark.parametrize("backlog", [SMALL, LARGE])
async def test_working_off_a_key_costs_the_same_however_much_is_behind(
    broker: EmbeddedBroker, post: Post, backlog: int
) -> None:
    await send_many(post, backlog)
    receiver = await post.subscribe(Flow(messages=3))

    async def settle_three() -> None:
        acked, retried, dead = await post.take(receiver, 3)
        await acked.ack()
        await dead.dead("unreadable")
        await retried.retry(0)

    assert await steps(broker, settle_three) < 30


@pytest.mark.parametrize("windows", [2, 20])
async def test_a_step_of_the_purge_looks_at_one_window(broker: EmbeddedBroker, post: Post, windows: int) -> None:
    await send_many(post, windows * WINDOW)

    async def purge() -> None:
        await broker.purge()

    assert await steps(broker, purge) < WINDOW / 10, "ten steps per message of a window"


@pytest.mark.parametrize("history", [SMALL, LARGE])
async def test_history_costs_nothing(broker: EmbeddedBroker, post: Post, history: int) -> None:
    receiver = await post.subscribe()
    for _ in range(0, history, 500):
        await send_many(post, 500)
        for delivery in await post.take(receiver, 500):
            await delivery.ack()
    assert await post.has_depth(0)

    async def work() -> None:
        await post.send_texts("free", "ab")
        assert await post.take_texts(receiver, 2) == "ab"
        assert await post.has_depth(0)

    assert await steps(broker, work) < 30


async def test_who_waits_for_other_topics_is_left_in_peace(broker: EmbeddedBroker, post: Post) -> None:
    receiver = await post.subscribe()
    somebody_else = asyncio.Event()
    broker._database.listen(somebody_else, topic=-1, subscription=-1)
    await post.send_texts("key", "ab")
    first, second = await post.take(receiver, 2)
    await broker.extend_leases()
    await first.ack()
    await second.retry(0)
    await receiver.aclose()
    assert not somebody_else.is_set()
