"""A row is marked only when the broker has it, and a key's order survives every failure in between."""

import asyncio

import pytest

from postroad.brokers.base import Confirmed, Outcome, Refused, Unavailable
from postroad.errors import StoreBusy, StoreUnavailable
from postroad.message import Message
from postroad.testing import FaultyBroker
from postroad.testing.faulty_store import FaultyStore
from postroad.testing.office import Moved, Office, Posted, RecordingBroker
from tests.support.outbox import APPEND_ONLY, Opened, Weighed


class Scripted(RecordingBroker):
    """Answers each event by its note, and writes down only what it took."""

    def __init__(self, answers: dict[int, Outcome], *, ordered_runs: bool = True) -> None:
        super().__init__(ordered_runs=ordered_runs)
        self.answers = answers
        self.asked: list[list[int | None]] = []

    async def send(self, batch: list[Message]) -> list[Outcome]:
        self.asked.append([message.version for message in batch])
        outcomes: list[Outcome] = [self.answers.get(message.version or 0, Confirmed()) for message in batch]
        taken = [message for message, answer in zip(batch, outcomes, strict=True) if answer == Confirmed()]
        await super().send(taken)
        return outcomes


@pytest.mark.spec("F5", "R2")
async def test_a_row_is_marked_after_the_confirmation_and_not_before(office: Office) -> None:
    seen: list[list[str]] = []

    class Looking(RecordingBroker):
        async def send(self, batch: list[Message]) -> list[Outcome]:
            seen.append(await office.states())
            return list(await super().send(batch))

    await office.post("a", "b")
    await office.carry(Looking())
    assert seen == [["NEW", "NEW"]]
    assert await office.states() == ["SENT", "SENT"]


@pytest.mark.spec("F5", "F15")
@pytest.mark.parametrize("fate", ["unavailable", "busy", "failed_commit"])
async def test_what_was_confirmed_but_not_marked_is_sent_again(office: Office, fate: str) -> None:
    """A crash between confirmation and mark costs a duplicate, never an event."""
    await office.post("a", "a")
    office.store = faulty = FaultyStore(office.store)
    faulty.script("mark_sent", fate)
    relay = office.relay()
    with pytest.raises((StoreUnavailable, StoreBusy)):
        await relay.run_once()
    assert await office.states() == ["NEW", "NEW"]
    while await relay.run_once():
        pass
    assert office.broker.versions("a") == [1, 2, 1, 2]
    assert await office.states() == ["SENT", "SENT"]


async def test_a_mark_whose_answer_was_lost_counts(office: Office) -> None:
    await office.post("a")
    office.store = faulty = FaultyStore(office.store)
    faulty.script("mark_sent", "lost_commit")
    relay = office.relay()
    with pytest.raises(StoreUnavailable):
        await relay.run_once()
    assert await relay.run_once() == 0
    assert office.broker.versions("a") == [1]


async def test_shards_of_a_commit_that_failed_are_not_ours(office: Office) -> None:
    await office.post("a")
    office.store = faulty = FaultyStore(office.store)
    faulty.script("lease_take", "failed_commit")
    relay = office.relay()
    with pytest.raises(StoreUnavailable):
        await relay.run_once()
    assert relay.leases.epochs == {}
    assert await relay.run_once() == 1


@pytest.mark.spec("F5", "F15")
@pytest.mark.parametrize("answer", [Refused("no"), Unavailable("away")], ids=["refused", "unavailable"])
async def test_a_failure_inside_a_run_holds_back_the_rest_of_it(office: Office, answer: Outcome) -> None:
    await office.post(*"aaaa", "b")
    broker = Scripted({2: answer, 3: Unavailable("held back"), 4: Unavailable("held back")})
    relay = office.relay(broker)
    await relay.run_once()
    assert [row.state for row in await office.rows()][2:] == ["NEW", "NEW", "SENT"]
    broker.answers.clear()
    await office.make_due()
    relay.breaker.recovered("office.parcel.events")
    await relay.run_once()
    assert broker.versions("a") == [1, 2, 3, 4]


async def test_what_a_broker_took_out_of_turn_is_not_marked(office: Office) -> None:
    await office.post(*"aaa")
    broker = Scripted({2: Unavailable("lost on the way")})
    await office.relay(broker).run_once()
    assert await office.states() == ["SENT", "NEW", "NEW"]


@pytest.mark.spec("F5")
async def test_without_ordered_runs_one_event_per_key_is_in_flight(office: Office) -> None:
    await office.post(*"aabbb")
    broker = Scripted({}, ordered_runs=False)
    await office.carry(broker)
    assert [len(asked) for asked in broker.asked] == [2, 2, 1]
    assert broker.first_arrivals() == {"parcel/a": [1, 2], "parcel/b": [1, 2, 3]}


async def test_without_ordered_runs_nothing_follows_a_refused_event(office: Office) -> None:
    await office.post(*"aaa")
    broker = Scripted({2: Refused("no")}, ordered_runs=False)
    await office.carry(broker)
    assert broker.asked == [[1], [2]]
    assert await office.states() == ["SENT", "RETRY", "NEW"]


async def test_a_key_that_changes_topic_waits_for_the_confirmation(office: Office) -> None:
    """Topics fail apart: what goes to the second must not be there before what goes to the first."""
    async with office.store.session() as session, session.begin():
        for event in (Posted("a"), Moved("a"), Posted("a"), Posted("a")):
            office.outbox.add(session, event)
    await office.carry()
    assert [[message.version for message in batch] for batch in office.broker.batches] == [[1], [2], [3, 4]]
    broker = FaultyBroker(office.broker)
    broker.down = True
    async with office.store.session() as session, session.begin():
        office.outbox.add(session, Moved("b"))
        office.outbox.add(session, Posted("b"))
    await office.carry(broker)
    assert office.broker.versions("b") == []


@pytest.mark.spec("F3")
async def test_several_outboxes_are_carried_apart(office: Office) -> None:
    async with office.store.session() as session, session.begin():
        office.outbox.add(session, Posted("a"))
        office.outbox.add(session, Weighed("a"))
    await office.carry()
    assert [message.type for message in office.broker.sent] == ["parcel.posted"]
    await office.carry(outbox=office.outbox.tables["postroad_second"])
    assert [message.type for message in office.broker.sent] == ["parcel.posted", "parcel.weighed"]


async def test_a_delayed_event_holds_nobody_back(office: Office) -> None:
    await office.post("a", delay=3_600)
    await office.post("a")
    broker = Scripted({1: Refused("no")})
    await office.carry(broker)
    (sent,) = broker.sent
    assert (sent.version, sent.deliver_at, sent.wire_key) == (2, None, "a")
    await office.make_due()
    await office.carry()
    (delayed,) = office.broker.sent
    assert delayed.wire_key == ""
    assert delayed.deliver_at is not None
    assert 3_599 < (delayed.deliver_at - delayed.occurred_at).total_seconds() < 3_601


async def test_keyless_events_stand_alone(office: Office) -> None:
    async with office.store.session() as session, session.begin():
        added = [office.outbox.add(session, Opened("x")) for _ in range(3)]
    await office.carry(FaultyBroker(office.broker, refuse=lambda m: "no" if m.id == added[0].id else None))
    assert {(message.aggregate_id, message.version) for message in office.broker.sent} == {
        (str(one.id), 1) for one in added[1:]
    }


@pytest.mark.spec("F3")
@pytest.mark.parametrize("store_kind", ["postgresql"])
async def test_append_only_facts_are_never_updated(office: Office, store_kind: str) -> None:
    await office.run(
        "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'a fact was updated'; END $$"
    )
    await office.run("CREATE TRIGGER untouched BEFORE UPDATE ON postroad_facts FOR EACH ROW EXECUTE FUNCTION refuse()")
    facts = Office(office.store, APPEND_ONLY)
    await facts.post("a", "a", "b")
    broker = FaultyBroker(facts.broker, refuse=lambda m: "no" if m.aggregate_id == "b" else None)
    await facts.carry(broker)
    await facts.make_due()
    await facts.carry()
    assert facts.broker.first_arrivals() == {"parcel/a": [1, 2], "parcel/b": [1]}
    (fact,) = await facts.query(
        "SELECT count(*) AS n, count(DISTINCT CAST(xmin AS text)) AS writes FROM postroad_facts"
    )
    assert (fact.n, fact.writes) == (3, 1)
    assert await facts.states() == ["SENT"] * 3
    facts.outbox.close()
    await office.run("DROP TRIGGER untouched ON postroad_facts")


async def test_two_relays_at_once_send_each_event_once(office: Office) -> None:
    relays = [office.relay(batch=20) for _ in range(2)]
    for relay in (*relays, *relays):
        await relay.leases.keep()
    await office.post(*(f"p{n % 30}" for n in range(120)))

    async def carry(relay) -> None:
        while await relay.run_once():
            pass

    await asyncio.gather(*map(carry, relays))
    assert all(relay.statistics.sent for relay in relays)
    assert office.broker.first_arrivals() == {f"parcel/p{n}": [1, 2, 3, 4] for n in range(30)}
    assert len(office.broker.sent) == 120


async def test_what_is_in_the_row_travels_and_what_is_not_has_its_usual_value(office: Office) -> None:
    await office.post("a", "b")
    await office.run("UPDATE {outbox} SET {content_type} = 'text/plain', {schema_version} = 7, {tenant_id} = 'north'"
                     " WHERE {aggregate_id} = 'a'")  # fmt: skip
    await office.carry()
    told = {m.aggregate_id: (m.content_type, m.schema_version, m.tenant) for m in office.broker.sent}
    assert told == {"a": ("text/plain", 7, "north"), "b": ("application/json", 1, "")}
