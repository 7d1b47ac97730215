"""Size and attribute limits, checked at write."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

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
