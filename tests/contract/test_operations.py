"""What people ask of a running system and do to it by hand, on every store."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from unittest.mock import AsyncMock
from uuid import UUID, uuid4

import msgspec
import pytest
from sqlalchemy import text

from postroad import (
    Backoff,
    OutboxTable,
    PoisonError,
    Postroad,
    RelayOptions,
    SubscriberOptions,
    event,
    operations,
)
from postroad.errors import BrokerUnavailable, BusinessError, OperationRefused, UnsupportedByBroker
from postroad.operations import Tail
from postroad.operations.status import workers
from postroad.presence import Presence
from postroad.retry import Ack, Dead, Retry
from postroad.testing import VirtualClock


@event("parcel.posted", topic="post.parcel.events", aggregate="parcel", key="parcel_id")
class ParcelPosted(msgspec.Struct, frozen=True):
    parcel_id: str
    grams: int = 1


@event("letter.posted", topic="post.letter.events", aggregate="letter", key="letter_id", outbox="letter_outbox")
class LetterPosted(msgspec.Struct, frozen=True):
    letter_id: str


LETTERS = OutboxTable("letter_outbox", append_only=True)


@dataclass
class Office:
    road: Postroad
    handled: list[str]
    closed: bool = False
    """While it is, every parcel is poison."""

    async def post(self, *parcels: str, **options: str) -> list[UUID]:
        async with self.road.session() as session, session.begin():
            return [self.road.add(session, ParcelPosted(parcel_id=p), **options).id for p in parcels]

    async def set_state(self, id: UUID, state: str) -> None:
        change = "UPDATE postroad_outbox SET state = :state, attempts = 5, last_error = 'no' WHERE event_id = :id"
        async with self.road.store.transaction() as connection:
            await connection.execute(text(change), {"state": state, "id": self.road.store.adapt(id)})

    async def state(self, id: UUID) -> str:
        return (await operations.outbox_event(self.road.store, self.road.outboxes, id)).event.state

    async def deliver(self) -> None:
        async with self.road.running():
            await self.road.drain()


@pytest.fixture
async def office(database_url: str, tmp_path: Path) -> AsyncIterator[Office]:
    road = Postroad(
        source="post",
        database_url=database_url,
        broker_url=f"embedded:{tmp_path / 'broker.db'}",
        outboxes=[OutboxTable(), LETTERS],
        relay=RelayOptions(poll=0.05, backoff=Backoff(attempts=1)),
        subscriber=SubscriberOptions(backoff=Backoff(attempts=1)),
    )
    office = Office(road, [])

    @road.on(ParcelPosted, group="delivery")
    async def deliver(parcel: ParcelPosted) -> None:
        if office.closed:
            raise PoisonError("closed")
        office.handled.append(parcel.parcel_id)

    async with road:
        await road.migrate()
        yield office


async def test_pages_go_from_the_newest_to_the_oldest(office: Office) -> None:
    ids = [id for n in range(7) for id in await office.post(f"p{n}")][::-1]
    store, outboxes = office.road.store, office.road.outboxes
    first = await operations.outbox_page(store, outboxes, limit=4)
    rest = await operations.outbox_page(store, outboxes, limit=4, after=first[-1].id)
    assert [one.id for one in (*first, *rest)] == ids


async def test_pages_go_by_time_also_where_ids_come_from_a_key(office: Office) -> None:
    store, outboxes = office.road.store, office.road.outboxes
    sent = [id for n in range(5) for id in await office.post(f"s{n}", idempotency_key=f"key {n}")]
    for n, id in enumerate(sent):
        change = text("UPDATE postroad_outbox SET state = :state, published_at = :at WHERE event_id = :id")
        at = store.adapt(store.clock.now() - timedelta(minutes=10 - n))
        async with store.transaction() as connection:
            await connection.execute(change, {"state": "SENT" if n % 2 else "SKIPPED", "at": at, "id": store.adapt(id)})
    unsent = [id for n in range(6) for id in await office.post(f"u{n}", idempotency_key=f"other {n}")]
    expected = [*reversed(unsent), *reversed(sent)]
    found: list[UUID] = []
    while page := await operations.outbox_page(store, outboxes, limit=4, after=found[-1] if found else None):
        found += [one.id for one in page]  # type: ignore[misc]
    assert found == expected
    for id in unsent:
        await office.set_state(id, "FAILED")
    assert list(await operations.parked_ids(store, outboxes)) == sorted(unsent)
    with pytest.raises(OperationRefused, match="no event"):
        await operations.outbox_page(store, outboxes, after=uuid4())


async def test_pages_cover_every_outbox(office: Office) -> None:
    (parcel,) = await office.post("p")
    async with office.road.session() as session, session.begin():
        letter = office.road.add(session, LetterPosted(letter_id="l")).id
    found = await operations.outbox_page(office.road.store, office.road.outboxes)
    assert {one.id: one.outbox for one in found} == {parcel: "postroad_outbox", letter: "letter_outbox"}


async def test_pages_can_be_narrowed(office: Office) -> None:
    store, outboxes = office.road.store, office.road.outboxes
    a, b = await office.post("a", "b")
    await office.set_state(b, "FAILED")

    async def ids(**filters: str) -> list[UUID]:
        return [one.id for one in await operations.outbox_page(store, outboxes, **filters)]  # type: ignore[arg-type]

    assert await ids(state="NEW") == [a]
    assert await ids(state="FAILED") == [b]
    assert await ids(state="SENT") == []
    assert await ids(key="parcel/a") == [a]
    assert await ids(key="a") == [a]
    assert await ids(key="letter/a") == []
    assert await ids(state="FAILED", key="a") == []
    (slashed,) = await office.post("2026/11/a")
    assert await ids(key="parcel/2026/11/a") == [slashed]
    assert await ids(key="2026/11/a") == [slashed]
    assert sorted(await ids(type="parcel.posted")) == sorted([a, b, slashed])
    assert await ids(type="letter.posted") == []


async def test_a_delayed_event_keeps_its_aggregates_key_and_says_when_it_is_due(office: Office) -> None:
    store, outboxes = office.road.store, office.road.outboxes
    async with office.road.session() as session, session.begin():
        office.road.add(session, ParcelPosted(parcel_id="a"), delay=3600)
        office.road.add(session, LetterPosted(letter_id="b"), delay=3600)
    async with office.road.running():
        while len(sent := await operations.outbox_page(store, outboxes, state="SENT")) < 2:
            await office.road.clock.sleep(0.01)
    for one in sent:
        assert one.deliver_at == one.occurred_at + timedelta(hours=1)
        assert (await operations.outbox_event(store, outboxes, one.id)).event == one
    assert sorted(one.key for one in sent) == ["letter/b", "parcel/a"]


async def test_an_event_is_shown_whole(office: Office) -> None:
    (id,) = await office.post("a", user_id="bob")
    found = await operations.outbox_event(office.road.store, office.road.outboxes, id)
    assert found.payload == {"parcel_id": "a", "grams": 1}
    assert found.attributes["user_id"] == "bob"
    assert (found.event.key, found.event.version, found.event.state) == ("parcel/a", 1, "NEW")
    with pytest.raises(OperationRefused, match="no event"):
        await operations.outbox_event(office.road.store, office.road.outboxes, uuid4())


@pytest.mark.spec("R2")
async def test_retry_lets_a_parked_event_go(office: Office) -> None:
    (id,) = await office.post("a")
    await office.set_state(id, "FAILED")
    await office.deliver()
    assert office.handled == []
    await operations.retry_events(office.road.store, office.road.outboxes, [id], actor="ann", reason="mended")
    await office.deliver()
    assert office.handled == ["a"]
    shown = await operations.outbox_event(office.road.store, office.road.outboxes, id)
    assert (shown.event.state, shown.event.attempts) == ("SENT", 0)
    assert [(act.actor, act.action, act.detail) for act in shown.history] == [("ann", "outbox.retry", "mended")]


async def test_skip_sends_the_rest_of_the_key_and_never_the_event(office: Office) -> None:
    first, second = await office.post("a", "a")
    await office.set_state(first, "FAILED")
    await office.deliver()
    assert office.handled == []
    await operations.skip_event(office.road.store, office.road.outboxes, first, actor="ann", reason="a test")
    await office.deliver()
    assert office.handled == ["a"]
    assert (await office.state(first), await office.state(second)) == ("SKIPPED", "SENT")
    (act,) = await operations.acts(office.road.store)
    assert (act.actor, act.action, act.subject, act.detail) == ("ann", "outbox.skip", str(first), "a test")


async def test_skip_needs_a_reason(office: Office) -> None:
    (id,) = await office.post("a")
    await office.set_state(id, "FAILED")
    with pytest.raises(OperationRefused, match="reason"):
        await operations.skip_event(office.road.store, office.road.outboxes, id, actor="ann", reason=" ")
    assert await office.state(id) == "FAILED"


@pytest.mark.parametrize("state", ["NEW", "SENT", "SKIPPED"])
async def test_only_a_failed_event_can_be_retried_or_skipped(office: Office, state: str) -> None:
    (id,) = await office.post("a")
    await office.set_state(id, state)
    store, outboxes = office.road.store, office.road.outboxes
    with pytest.raises(OperationRefused, match=state):
        await operations.retry_events(store, outboxes, [id], actor="ann")
    with pytest.raises(OperationRefused, match=state):
        await operations.skip_event(store, outboxes, id, actor="ann", reason="a test")
    assert await office.state(id) == state
    assert await operations.acts(store) == []


async def test_retry_is_for_all_or_none(office: Office) -> None:
    parked, new = await office.post("a", "b")
    await office.set_state(parked, "FAILED")
    with pytest.raises(OperationRefused, match=str(new)):
        await operations.retry_events(office.road.store, office.road.outboxes, [parked, new], actor="ann")
    assert await office.state(parked) == "FAILED"
    assert await operations.acts(office.road.store) == []


async def test_all_parked_events_are_found(office: Office) -> None:
    ids = await office.post("a", "b", "c")
    for id in ids[:2]:
        await office.set_state(id, "FAILED")
    assert set(await operations.parked_ids(office.road.store, office.road.outboxes)) == set(ids[:2])


async def test_status_tells_what_waits_and_what_is_parked(office: Office) -> None:
    store, outboxes = office.road.store, office.road.outboxes
    head, *_ = await office.post("a", "a", "a")
    (retrying,) = await office.post("b")
    await office.set_state(head, "FAILED")
    await office.set_state(retrying, "RETRY")
    found = await operations.status(store, outboxes)
    own = found.outboxes[0]
    assert (own.waiting, own.retrying, own.parked, own.sent_recently) == (2, 1, 1, 0)
    assert own.oldest_unsent_age is not None
    assert own.shards_without_owner == 256
    (parked,) = found.parked
    assert (parked.key, parked.event_id, parked.waiting_behind) == ("parcel/a", str(head), 2)
    assert (parked.error, parked.attempts) == ("no", 5)
    assert found.workers == []
    assert (found.broker, found.groups) == ("", [])


async def test_a_worker_is_seen_before_its_work_begins(office: Office) -> None:
    road = office.road
    presence = Presence(road.store, "sorting", clock=road.clock, randomness=road.randomness)
    seen: list[str] = []

    async def work() -> None:
        seen.extend(one.detail for one in await workers(road.store))

    await presence.during(work)
    assert (seen, await workers(road.store)) == (["sorting"], [])


async def test_status_tells_who_is_at_work(office: Office) -> None:
    road = office.road
    await office.post("a")
    async with road.running():
        await road.drain()
        # Each of the three says so in its own time.
        while True:
            found = await operations.status(road.store, road.outboxes, road.broker, groups=road.groups)
            if len(found.workers) == 3 and not any(one.shards_without_owner for one in found.outboxes):
                break
            await asyncio.sleep(0.01)
    assert {(one.kind, one.detail) for one in found.workers} == {
        ("relay", "postroad_outbox"),
        ("relay", "letter_outbox"),
        ("worker", "delivery"),
    }
    assert [one.shards_without_owner for one in found.outboxes] == [0, 0]
    assert found.outboxes[0].sent_recently == 1
    (group,) = found.groups
    assert (group.group, group.backlog, group.failed, group.dead_letters) == ("delivery", 0, 0, 0)
    after = await operations.status(road.store, road.outboxes, road.broker)
    assert after.workers == []


async def test_each_number_of_a_group_means_what_it_says(office: Office) -> None:
    road = office.road
    group, now = "delivery", "now"
    names = ("dead", "waiting", "refused", "failed", "held")
    async with road.session() as session, session.begin():
        messages = {name: road.add(session, ParcelPosted(parcel_id=name)).message for name in names}
    await road.inbox.mark_failed(group, messages["waiting"], RuntimeError(now), Retry(60.0))
    await road.inbox.mark_failed(group, messages["refused"], BusinessError(now), Ack("no"))
    await road.inbox.mark_failed(group, messages["failed"], RuntimeError(now), Dead("no"))
    await road.inbox.try_acquire(group, messages["held"], 60)
    await road.broker.apply(road.topology)
    office.closed = True
    await road.broker.send([messages["dead"]])
    async with road.running(relay=False):
        await until_dead(road, 1)
    found = await operations.status(road.store, road.outboxes, road.broker)
    (own,) = found.groups
    assert (own.running, own.waiting, own.refused, own.failed, own.dead_letters) == (1, 1, 1, 1, 1)
    assert {one.event_id: one.state for one in found.failed} == {
        messages["failed"].id: "failed",
        messages["refused"].id: "refused",
    }
    assert [one.event_id for one in found.dead_letters] == [str(messages["dead"].id)]
    await operations.retry_dead(road.store, road.broker, found.dead_letters, actor="ann")
    (own,) = (await operations.status(road.store, road.outboxes, road.broker)).groups
    assert (own.waiting, own.failed, own.dead_letters) == (2, 1, 0)


async def until_dead(road: Postroad, letters: int) -> None:
    async with asyncio.timeout(30):
        while len(await operations.dead_page(road.broker, await operations.topics_of(road.broker))) < letters:
            pass


async def test_who_died_is_told_from_who_is_at_work(office: Office) -> None:
    store, outboxes = office.road.store, office.road.outboxes
    for n in (1, 2):
        async with store.transaction() as connection:
            await store.execute(connection, "worker_beat", id=UUID(int=n), kind="relay", name=f"r{n}", detail="x")
    long_ago = store.adapt(store.clock.now() - timedelta(seconds=16))
    async with store.transaction() as connection:
        change = text("UPDATE postroad_worker SET seen_at = :then WHERE name = 'r1'")
        await connection.execute(change, {"then": long_ago})
    assert {one.name: one.gone for one in (await operations.status(store, outboxes)).workers} == {
        "r1": True,
        "r2": False,
    }


@pytest.mark.parametrize(("silent", "gone"), [(4, False), (20, True)])
async def test_who_is_alive_runs_until_now_and_who_is_gone_until_the_last_sign(
    office: Office, silent: int, gone: bool
) -> None:
    store = office.road.store
    seen = store.clock.now() - timedelta(seconds=silent)
    async with store.transaction() as connection:
        await store.execute(connection, "worker_beat", id=UUID(int=1), kind="worker", name="w", detail="x")
        change = text("UPDATE postroad_worker SET started_at = :started, seen_at = :seen")
        started = seen - timedelta(seconds=60)
        await connection.execute(change, {"started": store.adapt(started), "seen": store.adapt(seen)})
    (told,) = await workers(store)
    assert told.gone == gone
    assert told.running_for == pytest.approx(60 if gone else 60 + told.silent_for)


async def test_who_is_gone_is_told_by_the_databases_clock(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    store = office.road.store
    async with store.transaction() as connection:
        await store.execute(connection, "worker_beat", id=UUID(int=1), kind="worker", name="w", detail="x")
    ahead = VirtualClock(store.clock.now() + timedelta(minutes=1))
    monkeypatch.setattr(store, "clock", ahead)
    (told,) = await workers(store)
    assert not told.gone
    assert told.silent_for < 15


async def test_status_goes_on_where_the_broker_cannot_count(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    road = office.road

    async def depth(_: str) -> None:
        raise UnsupportedByBroker("faraway", "depth")

    async def estimate(_: str) -> None:
        return None

    await road.broker.apply(road.topology)
    monkeypatch.setattr(road.broker, "depth", depth)
    monkeypatch.setattr(road.broker, "estimate", estimate)
    found = await operations.status(road.store, road.outboxes, road.broker)
    assert (found.broker_trouble, found.groups[0].backlog, found.groups[0].dead_letters) == ("", None, 0)


async def test_status_tells_of_the_dead_letters_although_counting_takes_too_long(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    road = office.road
    office.closed = True
    await office.post("a")
    async with road.running():
        await until_dead(road, 1)

    async def estimate(_: str) -> None:
        raise TimeoutError  # as when the time for all is over

    monkeypatch.setattr(road.broker, "estimate", estimate)
    found = await operations.status(road.store, road.outboxes, road.broker)
    assert "did not answer" in found.broker_trouble
    assert len(found.dead_letters) == 1
    assert (found.groups[0].backlog, found.groups[0].dead_letters) == (None, 1)


async def test_status_goes_on_without_the_broker(office: Office, tmp_path: Path) -> None:
    from postroad.brokers import connect_broker

    broker = connect_broker(f"embedded:{tmp_path / 'nowhere' / 'broker.db'}", clock=office.road.clock)
    found = await operations.status(office.road.store, office.road.outboxes, broker, groups=["delivery"])
    await broker.aclose()
    assert "nowhere" in found.broker_trouble
    assert found.groups[0].backlog is None
    assert found.outboxes[0].waiting == 0


@pytest.mark.spec("R16")
async def test_a_dead_letter_is_found_and_handled_after_all(office: Office) -> None:
    road = office.road
    office.closed = True
    (id,) = await office.post("a")
    await office.deliver()
    (dead,) = await operations.dead_page(road.broker, await operations.topics_of(road.broker))
    assert (dead.group, dead.event_id, dead.type, dead.key) == (
        "delivery",
        str(id),
        "parcel.posted",
        "parcel/a",
    )
    assert dead.payload == {"parcel_id": "a", "grams": 1}
    assert "closed" in dead.reason
    found = await operations.status(road.store, road.outboxes, road.broker)
    assert (found.groups[0].dead_letters, found.groups[0].failed, found.failed) == (1, 0, [])
    office.closed = False
    again = await operations.find_dead(road.broker, [dead.topic], [str(id)])
    assert await operations.retry_dead(road.store, road.broker, again, actor="ann") == 1
    await office.deliver()
    assert office.handled == ["a"]
    assert (await operations.inbox_record(road.store, "delivery", id)).record.state == "succeeded"
    assert [act.action for act in await operations.acts(road.store)] == ["dlq.retry"]


async def test_a_dead_letter_given_back_is_the_brokers_alone_to_deliver(office: Office) -> None:
    road = office.road
    office.closed = True
    (id,) = await office.post("a")
    await office.deliver()
    assert await road.inbox.due("delivery") == []
    dead = await operations.dead_page(road.broker, await operations.topics_of(road.broker))
    await operations.retry_dead(road.store, road.broker, dead, actor="ann")
    assert (await operations.inbox_record(road.store, "delivery", id)).record.state == "waiting"
    assert await operations.with_attempts(road.store, dead) == dead  # and not its new count, which begins at nothing
    # The scheduler runs what nobody else delivers; this one it must leave to the broker.
    assert await road.inbox.due("delivery") == []
    await office.deliver()
    assert await operations.dead_page(road.broker, await operations.topics_of(road.broker)) != []
    assert (await operations.inbox_record(road.store, "delivery", id)).payload == {"parcel_id": "a", "grams": 1}


async def test_a_dead_letter_is_thrown_away_with_a_reason(office: Office) -> None:
    road = office.road
    office.closed = True
    await office.post("a")
    await office.deliver()
    topics = await operations.topics_of(road.broker)
    dead = await operations.dead_page(road.broker, topics)
    with pytest.raises(OperationRefused, match="reason"):
        await operations.discard_dead(road.store, road.broker, dead, actor="ann", reason="")
    assert await operations.discard_dead(road.store, road.broker, dead, actor="ann", reason="a test") == 1
    assert await operations.dead_page(road.broker, topics) == []
    assert [(act.action, act.detail) for act in await operations.acts(road.store)] == [("dlq.discard", "a test")]
    with pytest.raises(OperationRefused, match="no dead letter"):
        await operations.find_dead(road.broker, topics, [dead[0].id])


async def test_a_failed_record_is_shown_and_handled_again(office: Office) -> None:
    road = office.road
    office.closed = True
    (id,) = await office.post("a")
    await office.deliver()
    (record,) = await operations.inbox_page(road.store, failed=True)
    assert (record.group, record.event_id, record.state) == ("delivery", id, "failed")
    shown = await operations.inbox_record(road.store, "delivery", id)
    assert shown.payload == {"parcel_id": "a", "grams": 1}
    await operations.retry_record(road.store, None, "delivery", id, actor="ann", reason="open again")
    shown = await operations.inbox_record(road.store, "delivery", id)
    assert (shown.record.state, shown.record.retry_count) == ("waiting", 0)
    assert [act.detail for act in shown.history] == ["open again"]


async def test_a_failed_record_that_is_a_dead_letter_is_given_back_as_one(office: Office) -> None:
    road = office.road
    office.closed = True
    first, second = await office.post("a", "b")
    await office.deliver()
    office.closed = False
    assert await operations.dead_of(road.broker, "post.parcel.events", "another", second) == []
    await operations.retry_record(road.store, road.broker, "delivery", second, actor="ann", reason="open again")
    (left,) = await operations.dead_page(road.broker, await operations.topics_of(road.broker))
    assert left.event_id == str(first)
    assert await road.inbox.due("delivery") == []  # else it would be run here as well
    await office.deliver()
    assert office.handled == ["b"]
    assert (await operations.inbox_record(road.store, "delivery", second)).history[0].detail == "open again"


async def test_a_letter_that_did_not_come_back_can_be_given_back_again(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    road = office.road
    office.closed = True
    (id,) = await office.post("a")
    await office.deliver()
    office.closed = False

    retry = partial(operations.retry_record, road.store, road.broker, "delivery", id, actor="ann")
    with monkeypatch.context() as patch:
        patch.setattr(road.broker, "revive", AsyncMock(side_effect=BrokerUnavailable("away")))
        with pytest.raises(BrokerUnavailable):
            await retry()
        patch.setattr(road.broker, "revive", AsyncMock(return_value=0))
        with pytest.raises(OperationRefused, match="did not give event"):
            await retry()
    await retry()
    await office.deliver()
    assert office.handled == ["a"]


async def test_what_no_broker_has_buried_is_retried_without_asking_one(office: Office, tmp_path: Path) -> None:
    from postroad.brokers import connect_broker

    road, away = office.road, connect_broker(f"embedded:{tmp_path / 'nowhere' / 'broker.db'}", clock=office.road.clock)
    async with road.session() as session, session.begin():
        messages = [road.add(session, ParcelPosted(parcel_id=parcel)).message for parcel in ("a", "b", "c")]
    for message, decision in zip(messages, (Ack("no"), Retry(60.0), Dead("no")), strict=True):
        await road.inbox.mark_failed("delivery", message, RuntimeError(), decision)
    for message in messages[:2]:
        await operations.retry_record(road.store, away, "delivery", message.id, actor="ann")
    with pytest.raises(BrokerUnavailable):
        await operations.retry_record(road.store, away, "delivery", messages[2].id, actor="ann")
    await away.aclose()
    states = [(await operations.inbox_record(road.store, "delivery", message.id)).record.state for message in messages]
    assert states == ["waiting", "waiting", "failed"]


async def test_only_a_failed_record_can_be_retried(office: Office) -> None:
    (id,) = await office.post("a")
    await office.deliver()
    with pytest.raises(OperationRefused, match="succeeded"):
        await operations.retry_record(office.road.store, office.road.broker, "delivery", id, actor="ann")
    with pytest.raises(OperationRefused, match="no record"):
        await operations.retry_record(office.road.store, office.road.broker, "nobody", id, actor="ann")
    assert await operations.acts(office.road.store) == []


async def test_tail_gives_each_new_event_once(office: Office) -> None:
    await office.post("before")
    tail = Tail(office.road.store, office.road.outboxes)
    assert await tail.look() == []
    new = await office.post("a", "b")
    assert {one.id for one in await tail.look()} == set(new)
    await office.deliver()
    assert [one.key for one in await tail.look()] == []


async def test_tail_gives_events_with_ids_from_a_key_once_they_are_sent(office: Office) -> None:
    tail = Tail(office.road.store, office.road.outboxes)
    await tail.look()
    (id,) = await office.post("a", idempotency_key="one")
    assert await tail.look() == []
    await office.deliver()
    assert [one.id for one in await tail.look()] == [id]


async def test_a_relay_that_was_sending_has_the_last_word_over_a_skip(office: Office) -> None:
    """It was sent, whatever the person wished; the table must not deny it."""
    store = office.road.store
    (id,) = await office.post("a")
    relay = office.road.runner(groups=()).relays[0]
    await office.road.broker.apply(office.road.topology)
    send = office.road.broker.send

    async def skipped_meanwhile(batch):  # type: ignore[no-untyped-def]
        await office.set_state(id, "RETRY")
        await operations.skip_event(store, office.road.outboxes, id, actor="ann", reason="a test")
        return await send(batch)

    office.road.broker.send = skipped_meanwhile  # type: ignore[method-assign]
    await relay.run_once()
    assert await office.state(id) == "SENT"


@pytest.mark.parametrize("store_kind", ["sqlite", "postgresql"])
async def test_what_is_unsent_is_found_by_its_index(office: Office) -> None:
    """The index is partial, so the statements must repeat its condition letter by letter."""
    store, outbox = office.road.store, office.road.outboxes[0]
    reads = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN "}[store.dialect]
    values = {"shards": [1], "after": [""], "depth": 1, "most": 1, "inline": 1}
    async with store.transaction() as connection:
        if store.dialect == "postgresql":
            await connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        statement = text(reads + store.sql("read_due", outbox))
        plan = (await connection.execute(statement, {k: store.adapt(v) for k, v in values.items()})).all()
    assert any("postroad_outbox_unsent" in str(line) for line in plan)


async def test_a_page_cannot_begin_behind_an_event_that_is_not_there(office: Office) -> None:
    """Pages go by time, and only the event itself tells its own."""
    ids = await office.post("a", "b")
    for after in ("ord-17", f"{ids[0]}!", "0"):
        with pytest.raises(OperationRefused):
            await operations.outbox_page(office.road.store, office.road.outboxes, after=after)
