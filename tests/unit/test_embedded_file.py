"""The file: URLs, several brokers on one file, retention, and what happens when it cannot be used."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from postroad.brokers.base import Depth, Flow, Refused, Subscription, Topology, Unavailable
from postroad.brokers.embedded import EmbeddedBroker, connect, database
from postroad.brokers.embedded.purge import WINDOW
from postroad.clock import SystemClock
from postroad.errors import BrokerError, BrokerUnavailable, ConfigurationError
from postroad.testing import VirtualClock
from postroad.testing.post import Post


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def broker(clock: VirtualClock, tmp_path: Path) -> AsyncIterator[EmbeddedBroker]:
    broker = connect(f"embedded://{tmp_path / 'broker.db'}", clock=clock)
    yield broker
    await broker.aclose()


@pytest.fixture
async def post(broker: EmbeddedBroker) -> Post:
    post = Post(broker, silence=0.03)
    await broker.apply(post.topology)
    return post


async def test_paths_in_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: VirtualClock) -> None:
    monkeypatch.chdir(tmp_path)
    for url, file in (("embedded:here.db", "here.db"), (f"embedded://{tmp_path}/there.db", "there.db")):
        broker = connect(url, clock=clock)
        await broker.apply(Topology(("a.b.events",)))
        await broker.aclose()
        assert (tmp_path / file).exists()
    with pytest.raises(ConfigurationError, match=r"names a host"):
        connect("embedded://host.db", clock=clock)


async def test_messages_outlive_the_process(post: Post, tmp_path: Path, clock: VirtualClock) -> None:
    await post.send_texts("k", "ab")
    await post.broker.aclose()
    again = connect(post.broker.address, clock=clock)
    post.broker = again
    assert await post.take_texts(await post.subscribe(), 2) == "ab"
    await again.aclose()


async def test_a_publisher_on_another_connection_wakes_the_receiver(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'broker.db'}"
    broker, other = connect(url, clock=SystemClock()), connect(url, clock=SystemClock())
    post = Post(broker)
    await broker.apply(post.topology)
    receiver = await post.subscribe()
    waiting = asyncio.create_task(post.take_texts(receiver, 1))
    assert await post.nothing_comes(await post.subscribe())
    await other.send([post.message("k", "a")])
    assert await waiting == "a"
    await other.aclose()
    await broker.aclose()


async def test_a_confirm_waits_for_the_disk(post: Post) -> None:
    modes: list[int] = []

    def watch(connection: sqlite3.Connection, now: int) -> None:
        def note(statement: str) -> None:
            if statement.startswith("COMMIT"):
                modes.append(connection.execute("PRAGMA synchronous").fetchone()[0])

        connection.set_trace_callback(note)

    await post.broker._database.read(watch)  # type: ignore[attr-defined]
    await post.send_texts("k", "a")
    assert modes == [2], "FULL"


async def test_a_locked_file_is_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.brokers.embedded.database._BUSY_SECONDS", 0.02)
    broker = connect(f"embedded:{tmp_path / 'broker.db'}", clock=SystemClock())
    post = Post(broker)
    await broker.apply(post.topology)
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    (delivery,) = await post.take(receiver, 1)
    lock = sqlite3.connect(tmp_path / "broker.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    (outcome,) = await broker.send([post.message("k", "b")])
    assert isinstance(outcome, Unavailable)
    assert "locked" in outcome.reason
    with pytest.raises(BrokerUnavailable, match="locked"):
        await delivery.ack()
    lock.execute("ROLLBACK")
    lock.close()
    await delivery.ack()  # the verdict was not given, so it may be repeated
    assert await post.has_depth(0)
    await broker.aclose()


@pytest.mark.parametrize("content", [None, b"this is no database, whatever its name says" * 100])
async def test_an_unusable_file_is_an_outage(tmp_path: Path, clock: VirtualClock, content: bytes | None) -> None:
    path = tmp_path / "missing" / "broker.db" if content is None else tmp_path / "broker.db"
    if content:
        path.write_bytes(content)
    broker = connect(f"embedded:{path}", clock=clock)
    (outcome,) = await broker.send([Post(broker).message()])
    assert isinstance(outcome, Unavailable)
    with pytest.raises(BrokerUnavailable, match=r"broker\.db"):
        await broker.depth("a.b.events.c")
    await broker.aclose()


async def test_a_file_of_a_newer_layout_is_left_alone(tmp_path: Path, clock: VirtualClock) -> None:
    connection = sqlite3.connect(tmp_path / "broker.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    broker = connect(f"embedded:{tmp_path / 'broker.db'}", clock=clock)
    with pytest.raises(ConfigurationError, match="layout 99"):
        await broker.plan(Topology())
    await broker.aclose()


def test_who_finds_the_file_busy_changing_its_mode_tries_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.brokers.embedded.database._BUSY_SECONDS", 0.02)
    holder = sqlite3.connect(tmp_path / "broker.db", isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN EXCLUSIVE")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if holder.in_transaction:
            holder.execute("ROLLBACK")

    monkeypatch.setattr("postroad.brokers.embedded.database.time.sleep", pause)
    database.connect(tmp_path / "broker.db").close()
    holder.close()
    assert len(pauses) == 1


def test_who_finds_the_schema_made_meanwhile_leaves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database.connect(tmp_path / "broker.db").close()
    versions = iter((0, 1))
    monkeypatch.setattr(database, "_schema_version", lambda connection: next(versions))
    connection = database.connect(tmp_path / "broker.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()


async def test_a_closed_broker_says_so(post: Post) -> None:
    receiver = await post.subscribe()
    await post.broker.aclose()
    await post.broker.aclose()
    (outcome,) = await post.broker.send([post.message()])
    assert isinstance(outcome, Unavailable)
    assert "closed" in outcome.reason
    with pytest.raises(BrokerError, match="is closed"):
        await receiver.receive()


async def test_closing_a_receiver_ends_a_waiting_receive(post: Post) -> None:
    receiver = await post.subscribe()
    waiting = asyncio.create_task(receiver.receive())
    assert await post.nothing_comes(await post.subscribe())
    await receiver.aclose()
    with pytest.raises(BrokerError, match="is closed"):
        await waiting


async def test_many_verdicts_of_one_turn_are_one_transaction(post: Post) -> None:
    receiver = await post.subscribe()
    await post.send(*(post.message(f"k{n}") for n in range(100)))
    deliveries = await post.take(receiver, 100)
    commits = 0

    def watch(connection: sqlite3.Connection, now: int) -> None:
        def note(statement: str) -> None:
            nonlocal commits
            commits += statement.startswith("COMMIT")

        connection.set_trace_callback(note)

    await post.broker._database.read(watch)  # type: ignore[attr-defined]
    await asyncio.gather(*(delivery.ack() for delivery in deliveries))
    assert commits == 1
    assert await post.has_depth(0)


async def test_a_text_that_cannot_be_stored_harms_nobody(post: Post) -> None:
    receiver = await post.subscribe()
    (outcome,) = await post.broker.send([post.message("k", headers={"bad": "\ud800"})])
    assert isinstance(outcome, Refused)
    await post.send(post.message("a"), post.message("b"))
    first, second = await post.take(receiver, 2)
    await asyncio.gather(first.dead("lone \ud800 surrogate"), second.retry(float("inf")))
    (letter,) = await post.broker.dead_letters(post.topic)
    assert letter.reason == "lone ? surrogate"
    assert await post.has_depth(1)


# --- topology


async def test_the_first_subscription_starts_at_the_beginning_and_later_ones_now(
    broker: EmbeddedBroker, clock: VirtualClock
) -> None:
    post = Post(broker, silence=0.03)
    await broker.apply(Topology((post.topic,)))
    await post.send_texts("k", "ab")
    await broker.apply(post.topology)
    later = Subscription(f"{post.topic}.later", post.topic)
    await broker.apply(Topology((post.topic,), (later,)))
    await post.send_texts("k", "c")
    assert await post.take_texts(await post.subscribe(), 3) == "abc"
    assert await post.take_texts(await broker.subscribe(later.name, Flow()), 1) == "c"


async def test_changed_settings_are_updated_and_a_changed_topic_is_refused(post: Post) -> None:
    name = post.subscription.name
    changed = Subscription(name, post.topic, ack_deadline=10.0, max_attempts=5)
    (change,) = await post.broker.apply(Topology((), (changed,)))
    assert (change.action, change.name) == ("update", name)
    assert change.detail == "ack_deadline 60 → 10, max_attempts 0 → 5"
    assert list(await post.broker.subscriptions()) == [changed]
    with pytest.raises(ConfigurationError, match="belongs to topic"):
        await post.broker.plan(Topology((), (Subscription(name, "other.events"),)))


async def test_unknown_names_suggest_the_nearest(post: Post) -> None:
    wrong = post.subscription.name.replace("readers", "raeders")
    for call in (
        post.broker.depth(wrong),
        post.broker.subscribe(wrong, Flow()),
        post.broker.seek(wrong, "x"),
    ):
        with pytest.raises(ConfigurationError, match=f"Did you mean '{post.subscription.name}'"):
            await call
    await post.broker.snapshot(post.subscription.name, "before")
    with pytest.raises(ConfigurationError, match="Did you mean 'before'"):
        await post.broker.seek(post.subscription.name, "befor")


async def test_depth_tells_the_oldest(post: Post, clock: VirtualClock) -> None:
    began = clock.now()
    await post.send_texts("k", "a")
    clock.shift(5)
    await post.send_texts("k", "b")
    assert await post.broker.depth(post.subscription.name) == Depth(2, 0, began)
    await post.take_texts(await post.subscribe(Flow(messages=1)), 1)
    assert await post.broker.depth(post.subscription.name) == Depth(1, 0, began + timedelta(seconds=5))


# --- retention


def stored(broker: EmbeddedBroker) -> int:
    connection = sqlite3.connect(broker.address.removeprefix("embedded:"))
    (count,) = connection.execute("SELECT count(*) FROM message").fetchone()
    connection.close()
    return int(count)


async def test_what_is_settled_goes_after_its_retention(
    broker: EmbeddedBroker, post: Post, clock: VirtualClock
) -> None:
    receiver = await post.subscribe()
    await post.send_texts("k", "abc")
    assert await post.take_texts(receiver, 3) == "abc"
    clock.shift(7 * 86_400)
    assert await broker.purge() == 0
    clock.shift(0.001)
    assert await broker.purge() == 3
    assert stored(broker) == 0


async def test_sending_purges_now_and_then(broker: EmbeddedBroker, post: Post, clock: VirtualClock) -> None:
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    assert await post.take_texts(receiver, 1) == "a"
    clock.shift(8 * 86_400)
    await post.send_texts("k", "b")
    assert stored(broker) == 1


async def test_what_is_not_settled_is_never_removed(broker: EmbeddedBroker, post: Post, clock: VirtualClock) -> None:
    receiver = await post.subscribe()
    await post.send(post.message("waiting", "a"), post.message("dead", "b"), post.message("held", "c"))
    waiting, dead, held = await post.take(receiver, 3)
    await waiting.retry(30 * 86_400)
    await dead.dead("unreadable")
    lonely = Post(broker)
    await broker.apply(Topology((lonely.topic,)))
    await lonely.send_texts("k", "nobody listens yet"[:1])
    clock.shift(365 * 86_400)
    assert await broker.purge() == 0
    assert stored(broker) == 4
    await held.ack()
    (letter,) = await broker.dead_letters(post.topic)
    await broker.discard(post.topic, [letter.id])
    await broker.purge()
    assert stored(broker) == 2


async def test_the_longest_retention_of_a_topic_counts(broker: EmbeddedBroker, clock: VirtualClock) -> None:
    post = Post(broker, retention=10.0)
    await broker.apply(post.topology)
    await broker.apply(Topology((), (Subscription(f"{post.topic}.long", post.topic, retention=100.0),)))
    await post.send_texts("k", "a")
    await post.take_texts(await post.subscribe(), 1)
    await post.take_texts(await broker.subscribe(f"{post.topic}.long", Flow()), 1)
    clock.shift(99)
    assert await broker.purge() == 0
    clock.shift(2)
    assert await broker.purge() == 1


async def test_a_large_clean_up_is_done_in_steps_and_walks_past_the_unsettled(
    broker: EmbeddedBroker, post: Post, clock: VirtualClock
) -> None:
    receiver = await post.subscribe(Flow(messages=10_000))
    batch = [post.message(f"k{n}") for n in range(3 * WINDOW // 2)]
    await post.send(*batch)
    kept, *rest = await post.take(receiver, len(batch))
    await asyncio.gather(*(delivery.ack() for delivery in rest))
    clock.shift(8 * 86_400)
    assert await broker.purge() == WINDOW - 1
    assert await broker.purge() == WINDOW // 2
    await kept.ack()
    assert await broker.purge() == 1


async def test_a_window_full_of_the_unsettled_does_not_stop_the_clean_up(
    broker: EmbeddedBroker, post: Post, clock: VirtualClock
) -> None:
    receiver = await post.subscribe(Flow(messages=1))
    await post.send(*(post.message("blocked") for _ in range(WINDOW)))
    await (await post.take(receiver, 1))[0].retry(365 * 86_400)
    await post.send_texts("free", "a")
    assert await post.take_texts(receiver, 1) == "a"
    clock.shift(8 * 86_400)
    assert [await broker.purge() for _ in range(3)] == [0, 1, 0]
    assert stored(broker) == WINDOW


async def test_an_id_is_never_used_again(broker: EmbeddedBroker, post: Post, clock: VirtualClock) -> None:
    receiver = await post.subscribe()
    await post.send_texts("k", "ab")
    await post.take_texts(receiver, 2)
    await broker.snapshot(post.subscription.name, "here")
    clock.shift(8 * 86_400)
    assert await broker.purge() == 2
    await post.send_texts("k", "c")
    await post.take_texts(receiver, 1)
    assert await broker.seek(post.subscription.name, "here") == 1
