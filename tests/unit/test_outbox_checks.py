"""What is said beside the event is refused by name, whatever its type: never with an error of the machinery."""

from typing import Any

import pytest

from postroad.errors import InvalidPayload
from postroad.outbox import Outbox
from postroad.stores import open_store
from postroad.testing.office import Posted


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("idempotency_key", "\ud800", "surrogate"),
        ("idempotency_key", 5, "is int, not text"),
        ("idempotency_key", b"", "is bytes, not text"),
        ("idempotency_key", "", "must not be empty"),
        ("headers", {1: "x"}, "a name of type int"),
        ("headers", {None: "x"}, "a name of type NoneType"),
        ("headers", ["x"], "is list, not a mapping"),
        ("headers", "", "is str, not a mapping"),
        ("tenant", 0, "is int, not text"),
        ("tenant", False, "is bool, not text"),
        ("tenant", "t" * 256, "longer than 255 characters"),
        ("delay", "soon", "must be more than 0 seconds"),
        ("delay", True, "must be more than 0 seconds"),
        ("delay", [1], "must be more than 0 seconds"),
        ("version", "1", "must be a whole number"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(option: str, value: Any, rule: str) -> None:
    outbox = Outbox(open_store("sqlite://"), "office")
    with pytest.raises(InvalidPayload) as refusal:
        outbox.add(None, Posted("a"), **{option: value})
    assert refusal.value.path == option
    assert rule in refusal.value.rule
