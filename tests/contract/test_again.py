"""Events that happen again by a person's hand, and events in other orders, on every store."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from sqlalchemy import text

from postroad import Backoff, BusinessError, PoisonError, Postroad, RelayOptions, SubscriberOptions, event, operations
from postroad.dashboard.drawing import INDENT, tree
from postroad.errors import OperationRefused, WriteRefused
from postroad.operations import Filter


@event("crate.shipped", topic="port.crate.events", aggregate="crate", key="crate_id")
class CrateShipped(msgspec.Struct, frozen=True):
    crate_id: str
    kilos: int = 1


@dataclass
class Port:
    road: Postroad
    handled: list[str] = field(default_factory=list)
    weighed: list[str] = field(default_factory=list)

    async def ship(self, *crates: str, kilos: int = 1, **options: object) -> list[UUID]:
        async with self.road.session() as session, session.begin():
            return [self.road.add(session, CrateShipped(c, kilos), **options).id for c in crates]  # type: ignore[arg-type]

    async def deliver(self) -> None:
        async with self.road.running():
            await self.road.drain()

    async def set(self, id: UUID, **columns: object) -> None:
        changes = ", ".join(f"{name} = :{name}" for name in columns)
        values = {name: self.road.store.adapt(value) for name, value in columns.items()}
        async with self.road.store.transaction() as connection:
            statement = text(f"UPDATE postroad_outbox SET {changes} WHERE event_id = :id")
            await connection.execute(statement, values | {"id": self.road.store.adapt(id)})

    async def detail(self, id: UUID) -> operations.OutboxDetail:
        return await operations.outbox_event(self.road.store, self.road.outboxes, id)

    async def carry(self, id: UUID) -> None:
        """Until the broker has it."""
        async with self.road.running(groups=()):
            while (await self.detail(id)).event.state != "SENT":
                await self.road.clock.sleep(0.02)

    async def status(self) -> operations.Status:
        return await operations.status(self.road.store, self.road.outboxes, self.road.broker)

    async def acts(self) -> list[tuple[str, str, str]]:
        return [(one.action, one.actor, one.subject) for one in await operations.acts(self.road.store)]


@pytest.fixture
async def port(database_url: str, tmp_path: Path) -> AsyncIterator[Port]:
    road = Postroad(
        source="port",
        database_url=database_url,
        broker_url=f"embedded:{tmp_path / 'broker.db'}",
        relay=RelayOptions(poll=0.05, backoff=Backoff(attempts=1)),
        subscriber=SubscriberOptions(backoff=Backoff(attempts=1)),
    )
    port = Port(road)

    @road.on(CrateShipped, group="cranes")
    async def lift(crate: CrateShipped, session: object) -> None:
        if crate.kilos == 13:
            raise PoisonError(f"crate {crate.crate_id} is unlucky")
        if crate.kilos == 0:
            raise BusinessError(f"crate {crate.crate_id} is empty")
        port.handled.append(crate.crate_id)

    @road.on(CrateShipped, group="scales")
    async def weigh(crate: CrateShipped) -> None:
        port.weighed.append(crate.crate_id)

    await road.migrate()
    yield port
    await road.aclose()


async def test_one_group_handles_an_event_once_more_and_no_other_does(port: Port) -> None:
    (id,) = await port.ship("a")
    await port.deliver()
    await operations.replay_event(port.road.store, port.road.outboxes, "cranes", id, actor="ada", reason="lost")
    assert (await operations.inbox_record(port.road.store, "cranes", id)).record.state == "waiting"
    async with port.road.running():
        await until(port, id)
    assert (port.handled, port.weighed) == (["a", "a"], ["a"])
    assert await port.acts() == [("inbox.replay", "ada", f"cranes/{id}")]


async def until(port: Port, id: UUID) -> None:
    """The scheduler has run it."""
    while (await operations.inbox_record(port.road.store, "cranes", id)).record.state != "succeeded":
        await port.road.clock.sleep(0.05)


async def test_what_a_group_has_not_handled_cannot_overtake(port: Port) -> None:
    (waiting,) = await port.ship("a")
    (unlucky,) = await port.ship("b", kilos=13)
    with pytest.raises(OperationRefused, match="has not handled"):
        await operations.replay_event(port.road.store, port.road.outboxes, "cranes", waiting, actor="ada")
    await port.deliver()
    with pytest.raises(OperationRefused, match="Retry it instead"):
        await operations.replay_event(port.road.store, port.road.outboxes, "cranes", unlucky, actor="ada")
    assert await port.acts() == []


async def test_an_edited_copy_is_a_new_event_caused_by_the_old_one(port: Port) -> None:
    (id,) = await port.ship("a", correlation_id="c-1", headers={"lane": "3"}, tenant="north")
    payload = '{"crate_id": "a", "kilos": 7}'
    new = await operations.resend_event(port.road, id, payload, actor="ada", reason="wrong scale")
    copy, old = await port.detail(new), await port.detail(id)
    assert copy.payload == {"crate_id": "a", "kilos": 7}
    assert (copy.causation_id, copy.correlation_id, copy.tenant) == (str(id), "c-1", "north")
    assert copy.attributes["headers"] == {"lane": "3"}
    assert (copy.event.version, old.event.version, old.payload["kilos"]) == (2, 1, 1)
    assert await port.acts() == [("outbox.resend", "ada", str(id))]


async def test_a_copy_that_is_no_such_event_is_refused(port: Port) -> None:
    (id,) = await port.ship("a")
    for payload in ("{", '{"crate_id": 1}', '{"crate_id": "a", "klos": 2}', "[]", "@secret.txt"):
        with pytest.raises(WriteRefused, match="Nothing was stored"):
            await operations.resend_event(port.road, id, payload, actor="ada", reason="wrong")
    assert len(await operations.outbox_page(port.road.store, port.road.outboxes)) == 1
    assert await port.acts() == []


async def test_what_is_not_there_cannot_be_copied(port: Port) -> None:
    with pytest.raises(OperationRefused, match="There is no event"):
        await operations.resend_event(port.road, uuid4(), "{}", actor="ada", reason="wrong")


async def test_a_delayed_event_is_delivered_now_and_handled_once(port: Port) -> None:
    (id,) = await port.ship("a", delay=2.0)
    async with port.road.running():
        while (await port.detail(id)).event.state != "SENT":
            await port.road.clock.sleep(0.02)
        await operations.run_now(port.road, id, actor="ada")
        while not port.handled:
            await port.road.clock.sleep(0.02)
        assert (await port.detail(id)).event.deliver_at <= port.road.clock.now()  # type: ignore[operator]
        await port.road.drain()  # the broker's own copy comes when its time has come
    assert (port.handled, port.weighed) == (["a"], ["a"])
    assert await port.acts() == [("outbox.run_now", "ada", str(id))]


async def test_what_the_broker_keeps_for_later_is_scheduled_until_it_is_run_now(port: Port) -> None:
    (id,) = await port.ship("a", delay=3600)
    await port.carry(id)
    groups = (await port.status()).groups
    assert [(one.group, one.backlog, one.oldest_age) for one in groups] == [("cranes", 0, None), ("scales", 0, None)]
    assert [one.scheduled for one in groups] == [1, 1]
    (listed,) = await operations.scheduled(port.road.store, port.road.outboxes)
    assert (listed.state, operations.waits_in(listed)) == ("SENT", "broker")
    await operations.run_now(port.road, id, actor="ada")
    (own,) = (await port.status()).outboxes
    assert (own.waiting, own.scheduled) == (1, 0)
    assert own.oldest_unsent_age is not None
    assert own.oldest_unsent_age < 60
    assert await operations.scheduled(port.road.store, port.road.outboxes) == []
    await port.carry(id)
    assert await operations.scheduled(port.road.store, port.road.outboxes) == []
    assert [one.backlog for one in (await port.status()).groups] == [1, 1]


async def test_what_waits_in_the_outbox_is_run_now(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port.road.broker, "features", replace(port.road.broker.features, delay=False))
    (id,) = await port.ship("a", delay=timedelta(days=30))
    await operations.run_now(port.road, id, actor="ada")
    (own,) = (await port.status()).outboxes
    assert (own.waiting, own.scheduled) == (1, 0)
    await port.deliver()
    assert (port.handled, port.weighed) == (["a"], ["a"])
    assert await port.acts() == [("outbox.run_now", "ada", str(id))]


async def test_only_what_the_broker_holds_can_be_run_before_its_time(port: Port) -> None:
    soon, later, never = *await port.ship("a", "b", delay=3600), *await port.ship("c")
    await port.set(later, state="SENT", deliver_at=port.road.clock.now() + timedelta(days=16))
    await port.set(never, state="SENT")
    with pytest.raises(OperationRefused, match="is NEW"):
        await operations.run_now(port.road, soon, actor="ada")
    with pytest.raises(OperationRefused, match="would be handled twice"):
        await operations.run_now(port.road, later, actor="ada")
    with pytest.raises(OperationRefused, match="Only a delayed event"):
        await operations.run_now(port.road, never, actor="ada")
    assert await port.acts() == []


async def test_scheduled_events_are_listed_by_when_they_are_due(port: Port) -> None:
    late, soon = *await port.ship("a", delay=7200), *await port.ship("b", delay=3600)
    await port.ship("c")
    found = await operations.scheduled(port.road.store, port.road.outboxes, limit=1)
    assert [one.id for one in found] == [soon]
    place = (found[0].deliver_at, found[0].id)
    rest = await operations.scheduled(port.road.store, port.road.outboxes, after=place)  # type: ignore[arg-type]
    assert [one.id for one in rest] == [late]


async def test_an_aggregates_history_is_told_page_by_page(port: Port) -> None:
    ids = [(await port.ship("a"))[0] for _ in range(3)]
    await port.ship("b")
    store, outboxes = port.road.store, port.road.outboxes
    newest = await operations.aggregate_history(store, outboxes, "crate", "a", limit=2)
    assert [one.id for one in newest] == [ids[2], ids[1]]
    rest = await operations.aggregate_history(store, outboxes, "crate", "a", before=newest[-1].version or 0)
    assert [one.id for one in rest] == [ids[0]]


async def test_a_chain_tells_causes_before_their_effects(port: Port) -> None:
    (id,) = await port.ship("a", correlation_id="c-1")
    first = await operations.resend_event(port.road, id, '{"crate_id": "a"}', actor="ada", reason="wrong")
    second = await operations.resend_event(port.road, first, '{"crate_id": "a"}', actor="ada", reason="wrong")
    third = await operations.resend_event(port.road, id, '{"crate_id": "z"}', actor="ada", reason="wrong")
    await port.ship("x", correlation_id="c-2")
    found = await operations.trace(port.road.store, port.road.outboxes, "c-1")
    assert [(twig.step.id, twig.x // INDENT) for twig in tree(found.steps).twigs] == [
        (str(id), 0), (str(first), 1), (str(second), 2), (str(third), 1),
    ]  # fmt: skip


async def test_leases_tell_which_relay_holds_how_many_shards(port: Port) -> None:
    assert await operations.leases(port.road.store) == []
    async with port.road.running():
        while not (held := await operations.leases(port.road.store)):
            await port.road.clock.sleep(0.02)
    assert [(one.outbox, one.shards) for one in held] == [("postroad_outbox", 256)]
    assert held[0].seconds_left > 0


async def test_failures_are_told_by_their_cause(port: Port) -> None:
    parked = await port.ship("p", "q")
    for number, id in enumerate(parked):
        await port.set(id, state="FAILED", last_error=f"no queue takes '{id}' ({number})")
    await port.ship("c1", "c2", "c3", kilos=13)
    await port.deliver()
    found = await operations.causes(port.road.store, port.road.outboxes, port.road.broker)
    # The dead letters are not told a second time, as failures of their group.
    assert [(one.where, one.place, one.count, one.fingerprint, one.words) for one in found] == [
        ("dead letter", "cranes", 3, "PoisonError: crate c… is unlucky", "PoisonError: crate c"),
        ("parked", "port.crate.events", 2, "no queue takes … (…)", "no queue takes"),
    ]


async def test_what_was_refused_is_told_apart_and_hides_no_failure(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    await port.ship("c1", "c2", kilos=0)
    (dead,) = await port.ship("c3", kilos=13)
    await port.deliver()
    for most in (1_000, 1):
        monkeypatch.setattr("postroad.operations.failures.MOST", most)
        found = await operations.causes(port.road.store, port.road.outboxes, None)
        assert {one.where: (one.place, one.count, one.fingerprint) for one in found} == {
            "refused": ("cranes", min(2, most), "BusinessError: crate c… is empty"),
            "group": ("cranes", 1, "PoisonError: crate c… is unlucky"),
        }
    assert [one.id for cause in found if cause.where == "group" for one in cause.examples] == [str(dead)]


async def test_the_attempts_of_a_page_of_dead_letters_are_asked_for_at_once(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await port.ship("c1", "c2", "c3", kilos=13)
    await port.deliver()
    road = port.road
    for number, id in enumerate(ids):
        async with road.store.transaction() as connection:
            change = text("UPDATE postroad_inbox SET retry_count = :count WHERE event_id = :id AND status = 2")
            await connection.execute(change, {"count": 10 + number, "id": road.store.adapt(id)})
    page = await operations.dead_page(road.broker, await operations.topics_of(road.broker))
    nameless = replace(page[0], event_id="")  # a letter that nobody can look up
    elsewhere = replace(page[0], group="scales")  # which has handled it
    asked: list[str] = []
    read = road.store.read

    async def noting(statement: str, **values: Any) -> Any:
        asked.append(statement)
        return await read(statement, **values)

    monkeypatch.setattr(road.store, "read", noting)
    found = await operations.with_attempts(road.store, [*page, nameless, elsewhere])
    assert {one.event_id: one.attempts for one in found[:3]} == {str(id): 10 + n for n, id in enumerate(ids)}
    assert found[3:] == [nameless, elsewhere]
    assert asked == ["inbox_attempts"]
    assert await operations.with_attempts(road.store, []) == []


async def test_a_search_goes_on_where_it_stopped_and_finds_each_once(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where many were sent at the same moment."""
    ids = await port.ship(*(f"c{number}" for number in range(9)))
    moment = port.road.clock.now() - timedelta(hours=1)
    for number, id in enumerate(sorted(ids)):
        await port.set(id, state="SENT", published_at=moment + timedelta(seconds=number // 4))
    monkeypatch.setattr("postroad.operations.pages._WINDOW", 2)
    store, outboxes, place, found, looks = port.road.store, port.road.outboxes, None, [], 0
    while True:
        look = await operations.search(store, outboxes, Filter(text="crate"), limit=50, after=place)
        found += [event.id for event in look.events]
        looks += 1
        if (place := look.next) is None:
            break
    assert found == sorted(ids, reverse=True)
    assert looks > 2
    assert [e.id for e in await operations.matching(store, outboxes, Filter(text="crate"))] == found


async def test_a_long_backlog_is_listed_like_a_short_one(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = await port.ship("a", "b", "c")
    await port.set(ids[1], state="FAILED")
    store, outboxes = port.road.store, port.road.outboxes

    async def listed() -> list[list[UUID | str]]:
        return [[e.id for e in await operations.matching(store, outboxes, Filter(s))] for s in ("", "NEW", "FAILED")]

    short = await listed()
    assert sorted(short[0]) == sorted(ids)  # type: ignore[type-var]
    monkeypatch.setattr("postroad.operations.pages._MANY", 2)
    assert await listed() == short
