"""The envelope: wire form and back, ids, shards."""

import random
import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import UnreadableMessage
from postroad.message import (
    OPTIONAL_ATTRIBUTES,
    SHARDS,
    Message,
    id_from_key,
    new_id,
    ordering_key,
    parse_id,
    parse_rfc3339,
    rfc3339,
    shard_of,
)

NOW = datetime(2025, 10, 24, 10, 30, tzinfo=UTC)
ID = uuid.UUID("550e8400-e29b-41d4-a716-446655440000")


def message(**changes: object) -> Message:
    fields: dict[str, object] = {
        "id": ID,
        "type": "video.created",
        "topic": "catalog.video.events",
        "aggregate_type": "video",
        "aggregate_id": "a3d5e6f7-1234-5678-9abc-def012345678",
        "version": 1,
        "occurred_at": NOW,
        "payload": b"{}",
    }
    return Message(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.spec("P4")
def test_the_required_attributes_are_always_there() -> None:
    assert message().attributes() == {
        "event_id": "550e8400-e29b-41d4-a716-446655440000",
        "event_type": "video.created",
        "aggregate_id": "a3d5e6f7-1234-5678-9abc-def012345678",
        "aggregate_type": "video",
        "version": "1",
        "occurred_at": "2025-10-24T10:30:00Z",
        "schema_version": "v1",
    }


@pytest.mark.spec("P5")
@pytest.mark.parametrize("name", OPTIONAL_ATTRIBUTES)
def test_an_optional_attribute_travels_when_it_is_set(name: str) -> None:
    sent = message(**{name: "x-1"})
    assert sent.attributes()[name] == "x-1"
    assert Message.from_wire(sent.topic, sent.attributes(), sent.payload) == sent


@pytest.mark.spec("P5")
def test_the_optional_attributes_are_the_seven_agreed_ones() -> None:
    assert set(OPTIONAL_ATTRIBUTES) == {
        "correlation_id",
        "causation_id",
        "user_id",
        "source_service",
        "source_version",
        "trace_id",
        "span_id",
    }


text = st.text(max_size=20)
moments = st.datetimes(min_value=datetime(1970, 1, 2), timezones=st.just(UTC))


@pytest.mark.spec("T2")
@given(
    id=st.uuids(),
    version=st.integers(0, 10**18 - 1),
    schema_version=st.integers(1, 99),
    occurred_at=moments,
    payload=st.binary(max_size=50),
    aggregate_id=st.text(min_size=1, max_size=20),
    tenant=text,
    headers=st.dictionaries(text, text, max_size=4),
    user_id=st.none() | text,
    deliver_at=st.none() | moments,
    content_type=st.sampled_from(["application/json", "application/x-protobuf"]),
)
def test_what_is_sent_is_what_arrives(**fields: object) -> None:
    sent = message(**fields)
    assert Message.from_wire(sent.topic, sent.attributes(), sent.payload) == sent


@pytest.mark.spec("P4")
@pytest.mark.parametrize("name", sorted(message().attributes()))
def test_a_missing_required_attribute_is_named(name: str) -> None:
    attributes = message().attributes()
    del attributes[name]
    with pytest.raises(UnreadableMessage, match=f"attribute {name} is missing"):
        Message.from_wire("t", attributes, b"")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("event_id", "not-an-id"),
        ("event_type", ""),
        ("aggregate_id", ""),
        ("aggregate_type", ""),
        ("version", "-1"),
        ("version", "one"),
        ("version", "1_0"),
        ("version", " 1"),
        ("version", "٣"),
        ("version", "9" * 5_000),
        ("occurred_at", "yesterday"),
        ("occurred_at", "2025-10-24T10:30:00"),
        ("occurred_at", "0001-01-01T00:00:00+14:00"),
        ("schema_version", "v0"),
        ("schema_version", "vv1"),
        ("schema_version", ""),
        ("deliver_at", "soon"),
    ],
)
def test_a_malformed_attribute_is_named(name: str, value: str) -> None:
    with pytest.raises(UnreadableMessage, match=f"attribute {name} is malformed"):
        Message.from_wire("t", {**message().attributes(), name: value}, b"")


def test_other_producers_spellings_are_understood() -> None:
    attributes = message().attributes() | {
        "schema_version": "2",
        "event_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "occurred_at": "2025-10-24T12:30:00.123456789+02:00",
        "googclient_schemaencoding": "BINARY",
    }
    received = Message.from_wire("t", attributes, b"")
    assert received.schema_version == 2
    assert received.id == uuid.UUID("01563e3a-b5d3-d676-4c61-efb99302bd5b")
    assert received.occurred_at == NOW + timedelta(microseconds=123456)
    assert received.headers == {}


def test_headers_cannot_overwrite_attributes() -> None:
    sent = message(headers={"event_id": "forged", "tenant_id": "forged"})
    received = Message.from_wire(sent.topic, sent.attributes(), b"{}")
    assert received.id == ID
    assert received.tenant == ""
    assert received.headers == {"event_id": "forged", "tenant_id": "forged"}


@pytest.mark.spec("P6")
def test_the_wire_key_is_the_aggregate_unless_the_message_is_delayed() -> None:
    assert message(aggregate_id="7").wire_key == "7"
    assert message(aggregate_id="7", deliver_at=NOW).wire_key == ""
    assert message(aggregate_id="7").ordering_key == ordering_key("video", "7") == "video/7"


def test_shards_never_change() -> None:
    # These figures are in the databases of every installation.
    assert SHARDS == 256
    assert [shard_of(key) for key in ("", "order/1", "video/ä")] == [0, 109, 205]


@given(st.integers(0, 2**48 - 1), st.integers())
def test_an_id_is_a_version_seven_uuid_with_its_time(milliseconds: int, seed: int) -> None:
    now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds % (200 * 365 * 86_400_000))
    made = new_id(now, random.Random(seed))
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert abs((made.int >> 80) - now.timestamp() * 1000) <= 1
    assert made == new_id(now, random.Random(seed))


def test_ids_of_one_moment_differ() -> None:
    noise = random.Random(1)
    assert len({new_id(NOW, noise) for _ in range(10_000)}) == 10_000


def test_later_ids_sort_later() -> None:
    noise = random.Random(1)
    ids = [new_id(NOW + timedelta(milliseconds=n), noise) for n in range(1_000)]
    assert ids == sorted(ids)


@pytest.mark.spec("P9")
def test_the_same_operation_gets_the_same_id() -> None:
    assert id_from_key("shop", "order.placed", "req-1") == id_from_key("shop", "order.placed", "req-1")
    # Stored ids must stay reachable for a repeated request after an upgrade.
    assert id_from_key("shop", "order.placed", "req-1") == uuid.UUID("79563550-89db-56a9-853c-d32576bcf351")


@pytest.mark.spec("P9")
def test_another_operation_type_or_source_gets_another_id() -> None:
    ids = {
        id_from_key(source, type, key)
        for source in ("shop", "billing")
        for type in ("order.placed", "order.paid")
        for key in ("req-1", "req-2", "")
    }
    assert len(ids) == 12


def test_ids_are_read_as_uuid_or_ulid() -> None:
    assert parse_id(str(ID)) == ID
    assert parse_id(ID.hex) == ID
    assert parse_id("01ARZ3NDEKTSV4RRFFQ69G5FAV") == parse_id("01arz3ndektsv4rrffq69g5fav")
    assert parse_id("7ZZZZZZZZZZZZZZZZZZZZZZZZZ").int == 2**128 - 1


@pytest.mark.parametrize(
    "text", ["", "x", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "01ARZ3NDEKTSV4RRFFQ69G5FAI", "01ARZ3NDEKTSV4RRFFQ69G5FA"]
)
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither a UUID nor a ULID"):
        parse_id(text)


def test_times_are_written_in_utc_and_never_guessed() -> None:
    india = timezone(timedelta(hours=5, minutes=30))
    assert rfc3339(datetime(2025, 10, 24, 16, 0, tzinfo=india)) == "2025-10-24T10:30:00Z"
    assert rfc3339(NOW.replace(microsecond=5)) == "2025-10-24T10:30:00.000005Z"
    with pytest.raises(ValueError, match="no time zone"):
        rfc3339(datetime(2025, 10, 24))


@given(st.datetimes(timezones=st.just(UTC)))
def test_every_moment_survives(moment: datetime) -> None:
    assert parse_rfc3339(rfc3339(moment)) == moment
