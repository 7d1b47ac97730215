"""What an event becomes when it is written: its id, its links, its time, its table; and what is refused."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import msgspec
import pytest

from postroad.context import current_message
from postroad.errors import ConfigurationError, InvalidPayload, MessageTooLarge
from postroad.events import event
from postroad.message import Message, id_from_key, shard_of
from postroad.outbox import Outbox
from postroad.testing.office import Office, Posted
from tests.support.outbox import APPEND_ONLY, Opened, Weighed


@event("parcel.lost", topic="office.parcel.events", aggregate="parcel", outbox="nowhere")
class Lost(msgspec.Struct, frozen=True):
    parcel: str = ""


def cause() -> Message:
    return Message(
        id=uuid4(),
        type="parcel.ordered",
        topic="office.orders.events",
        aggregate_type="order",
        aggregate_id="1",
        version=1,
        occurred_at=datetime.now(UTC),
        payload=b"{}",
        tenant="acme",
        user_id="u-7",
        correlation_id="the-beginning",
    )


@pytest.mark.spec("P9")
async def test_the_same_operation_has_the_same_id_and_another_has_another(office: Office) -> None:
    (first,) = await office.post("a", idempotency_key="order 1")
    (again,) = await office.post("a", idempotency_key="order 1")
    (other,) = await office.post("a", idempotency_key="order 2")
    assert first.id == again.id == id_from_key("office", "parcel.posted", "order 1")
    assert other.id != first.id
    assert [row.version for row in await office.rows()] == [1, 2]


@pytest.mark.spec("P9")
async def test_a_repeat_in_the_same_flush_is_no_second_event(office: Office) -> None:
    await office.post("a", "a", "a", idempotency_key="once")
    await office.post("a")
    assert [row.version for row in await office.rows()] == [1, 2]


async def test_a_repeat_with_another_version_does_not_move_the_count(office: Office) -> None:
    await office.post("a", idempotency_key="once", version=4)
    await office.post("a", idempotency_key="once", version=9)
    await office.post("a")
    assert [row.version for row in await office.rows()] == [4, 5]


async def test_a_repeat_after_it_was_sent_is_not_sent_again(office: Office) -> None:
    await office.post("a", idempotency_key="once", version=4)
    await office.carry()
    await office.post("a", idempotency_key="once", version=4)
    await office.carry()
    assert office.broker.versions("a") == [4]


async def test_a_follow_up_carries_the_chain_of_its_cause(office: Office) -> None:
    token = current_message.set(original := cause())
    try:
        await office.post("a")
    finally:
        current_message.reset(token)
    await office.post("b")
    await office.post("c", correlation_id="my own", user_id="me")
    await office.carry()
    sent = {message.aggregate_id: message for message in office.broker.sent}
    assert (sent["a"].correlation_id, sent["a"].causation_id) == ("the-beginning", str(original.id))
    assert (sent["a"].tenant, sent["a"].user_id) == ("acme", "u-7")
    assert (sent["b"].correlation_id, sent["b"].causation_id) == (str(sent["b"].id), None)
    assert (sent["c"].correlation_id, sent["c"].user_id, sent["c"].source_service) == (
        "my own",
        "me",
        "office",
    )


async def test_a_delayed_event_has_a_key_of_its_own(office: Office) -> None:
    (added,) = await office.post("a", delay=timedelta(minutes=15))
    await office.post("a")
    rows = {row.version: row.ordering_key for row in await office.rows()}
    assert rows == {1: f"delayed/{added.id}", 2: "parcel/a"}
    assert added.message.deliver_at == added.message.occurred_at + timedelta(minutes=15)


@pytest.mark.parametrize("delay", [0, -1, float("nan"), float("inf"), 367 * 86_400])
async def test_a_delay_that_makes_no_sense_is_refused(office: Office, delay: float) -> None:
    with pytest.raises(InvalidPayload, match="field delay"):
        await office.post("a", delay=delay)
    assert not await office.rows()


async def test_what_cannot_travel_is_refused_and_nothing_is_stored(office: Office) -> None:
    refused = {
        "note": lambda session: office.outbox.add(session, Posted("a", "\ud800")),
        "parcel": lambda session: office.outbox.add(session, Posted("")),
        "headers.x": lambda session: office.outbox.add(session, Posted("a"), headers={"x": "\0"}),
        "correlation_id": lambda session: office.outbox.add(session, Posted("a"), correlation_id="c" * 1_025),
    }
    async with office.store.session() as session, session.begin():
        for field, add in refused.items():
            with pytest.raises(InvalidPayload, match=f"field {field}"):
                add(session)
        small = Outbox(office.store, "office", max_message_bytes=500)
        with pytest.raises(MessageTooLarge, match="the broker takes 500"):
            small.add(session, Posted("a", "x" * 600))
        office.outbox.add(session, Posted("fine"))
    assert [row.ordering_key for row in await office.rows()] == ["parcel/fine"]


async def test_the_largest_attributes_that_travel_fit_into_the_store(office: Office) -> None:
    headers = {f"h{n:02}": "☃" * 341 for n in range(80)}
    await office.post("☃" * 255, headers=headers, tenant="☃" * 255, correlation_id="☃" * 341)
    await office.carry()
    (message,) = office.broker.sent
    assert (message.headers, len(message.tenant), message.correlation_id) == (headers, 255, "☃" * 341)


@pytest.mark.spec("F3")
async def test_an_event_goes_to_the_table_it_was_declared_for(office: Office) -> None:
    async with office.store.session() as session, session.begin():
        office.outbox.add(session, Weighed("a"))
        with pytest.raises(ConfigurationError, match="belongs to outbox 'nowhere', but this service has only"):
            office.outbox.add(session, Lost())
    assert not await office.rows()
    assert len(await office.rows(office.outbox.tables["postroad_second"])) == 1


async def test_a_keyless_event_stands_under_its_own_id(office: Office) -> None:
    async with office.store.session() as session, session.begin():
        added = office.outbox.add(session, Opened("x"))
    (row,) = await office.rows()
    assert row.ordering_key == f"office/{added.id}"
    assert UUID(added.message.aggregate_id) == added.id


@pytest.mark.parametrize("layout", [None, APPEND_ONLY], ids=["in_row", "append_only"])
async def test_a_row_lies_in_the_shard_of_its_key(office: Office, layout: object) -> None:
    if layout:
        office = Office(office.store, APPEND_ONLY)
    await office.post("a", "ä", "☃")
    rows = await office.query("SELECT {ordering_key} AS k, {shard} AS shard FROM {delivery}")
    assert {row.k: row.shard for row in rows} == {f"parcel/{p}": shard_of(f"parcel/{p}") for p in ("a", "ä", "☃")}


async def test_a_service_needs_an_outbox(office: Office) -> None:
    with pytest.raises(ConfigurationError, match="at least one outbox table"):
        Outbox(office.store, "office", [])
