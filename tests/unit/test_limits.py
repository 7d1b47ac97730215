"""Size and attribute limits, checked at write."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest

from postroad.codec import check_size
from postroad.codec.limits import MAX_ATTRIBUTES
from postroad.errors import InvalidPayload, MessageTooLarge
from postroad.message import Message

ROOM = 10_000_000


def message(**changes: Any) -> Message:
    fields: dict[str, Any] = {
        "id": UUID(int=1),
        "type": "video.created",
        "topic": "catalog.video.events",
        "aggregate_type": "video",
        "aggregate_id": "1",
        "version": 1,
        "occurred_at": datetime(2025, 1, 1, tzinfo=UTC),
        "payload": b"{}",
    }
    return Message(**{**fields, **changes})


def attribute_bytes(sent: Message) -> int:
    return sum(len(name.encode()) + len(value.encode()) for name, value in sent.attributes().items())


def test_payload_and_attributes_count_together() -> None:
    sent = message(payload=b"x" * 1_000, headers={"ä": "事件"})
    size = 1_000 + attribute_bytes(sent)
    check_size(sent, size)
    with pytest.raises(MessageTooLarge) as refusal:
        check_size(sent, size - 1)
    assert (refusal.value.size, refusal.value.limit) == (size, size - 1)
    assert "video.created" in str(refusal.value)
    assert "Send a reference" in str(refusal.value)


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ({"id": 1, "cover": {"name": "x", "image": "i" * 500}}, "field cover.image alone has 502"),
        ({"id": 1, "pages": [{"n": n} for n in range(100)]}, "field pages alone has 891"),
        ({"first": "a" * 300, "second": "b" * 400}, "field second alone has 402"),
        ({"pages": ["", "ä" * 300]}, "field pages[1] alone has 602"),
        ({"n" * 300: 1, "": "\n" * 300}, "field [''] alone has 602"),
        ({"n" * 600: 1}, f"field {'n' * 79}… alone has 1"),
    ],
)
def test_the_field_that_takes_most_of_the_room_is_named(payload: dict[str, Any], told: str) -> None:
    with pytest.raises(MessageTooLarge) as refusal:
        check_size(message(payload=msgspec.json.encode(payload)), 500)
    assert f"the broker takes 500; {told}. Send a reference" in str(refusal.value)


def test_what_is_not_json_or_has_no_fields_is_told_without_one() -> None:
    for payload in (b"\x08\x96", b"{}"):
        with pytest.raises(MessageTooLarge, match=r"the broker takes 20\. Send"):
            check_size(message(payload=payload), 20)


def test_attributes_are_counted() -> None:
    own = len(message().attributes())
    fitting = {f"h{n}": "" for n in range(MAX_ATTRIBUTES - own)}
    sent = message(headers=fitting)
    check_size(sent, ROOM)
    assert len(sent.attributes()) == MAX_ATTRIBUTES
    with pytest.raises(InvalidPayload, match="field headers: has 94 entries; beside 7 other attributes 93 fit"):
        check_size(message(headers={**fitting, "more": ""}), ROOM)


@pytest.mark.parametrize(
    ("changes", "path", "rule"),
    [
        ({"headers": {"note": "x" * 1_025}}, "headers.note", "longer than 1,024 bytes"),
        ({"headers": {"note": "ä" * 513}}, "headers.note", "longer than 1,024 bytes"),
        ({"headers": {"note": "a\0"}}, "headers.note", "NUL"),
        ({"headers": {"note": "\ud800"}}, "headers.note", "surrogate"),
        ({"headers": {"note": 7}}, "headers.note", "is int, not text"),
        ({"headers": {"no\0te": ""}}, "headers.no\\x00te", "NUL"),
        ({"headers": {"\ud800": ""}}, "headers.\\ud800", "surrogate"),
        ({"headers": {"n" * 250: ""}}, "headers." + "n" * 71 + "…", "name longer than 256 bytes"),
        ({"correlation_id": "x" * 1_025}, "correlation_id", "longer than 1,024 bytes"),
        ({"tenant": "x" * 1_025}, "tenant_id", "longer than 1,024 bytes"),
        ({"user_id": "\0"}, "user_id", "NUL"),
    ],
)
def test_an_attribute_no_broker_takes_is_refused_by_name(changes: dict[str, Any], path: str, rule: str) -> None:
    with pytest.raises(InvalidPayload) as refusal:
        check_size(message(**changes), ROOM)
    assert refusal.value.path == path
    assert rule in refusal.value.rule


def test_the_longest_attributes_fit() -> None:
    sent = message(headers={"n" * (256 - len("header.")): "ä" * 512}, aggregate_id="事" * 255)
    check_size(sent, ROOM)
    assert len(sent.wire_key.encode()) <= 1_024
