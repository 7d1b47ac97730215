"""What Pub/Sub takes, checked before it is sent; and what the adapter adds for itself."""

import pytest

from postroad.brokers.base import Refused
from postroad.brokers.pubsub.letter import MAX_MESSAGE_BYTES, fitting_value, read, with_notes, write
from postroad.message import Message
from postroad.testing.post import Post


def message(**changes: object) -> Message:
    return Post(None).message(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"headers": {"h" * 249: "x"}},
        {"headers": {"é" * 124: "x"}},
        {"headers": {"h": "é" * 512}},
        {"headers": {f"h{n}": "" for n in range(93)}},
        {"key": "é" * 512},
        {"payload": bytes(MAX_MESSAGE_BYTES - 1_000)},
    ],
)
def test_what_is_as_long_as_it_may_be_is_taken(changes: dict[str, object]) -> None:
    sent = message(**changes)
    letter = write(sent)
    assert not isinstance(letter, Refused)
    assert read(letter) == (sent.attributes(), sent.payload, {})
    assert letter.ordering_key == sent.aggregate_id


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"headers": {"h" * 250: "x"}}, "longer than the 256 bytes"),
        ({"headers": {"é" * 125: "x"}}, "longer than the 256 bytes"),
        ({"headers": {"h": "é" * 512 + "x"}}, "attribute header.h is 1,025 bytes, Pub/Sub takes 1,024"),
        ({"headers": {f"h{n}": "" for n in range(94)}}, "has 101 attributes, Pub/Sub takes 100"),
        ({"key": "k" * 1_025}, "attribute aggregate_id is 1,025 bytes"),
        ({"payload": bytes(MAX_MESSAGE_BYTES)}, "Pub/Sub takes 9,980,000"),
        ({"headers": {"h": "\ud800"}}, "not valid Unicode"),
    ],
)
def test_what_is_too_much_is_refused_by_name(changes: dict[str, object], told: str) -> None:
    letter = write(message(**changes))
    assert isinstance(letter, Refused)
    assert told in letter.reason


def test_a_delayed_message_has_no_key() -> None:
    sent = message()
    letter = write(message(deliver_at=sent.occurred_at))
    assert not isinstance(letter, Refused)
    assert letter.ordering_key == ""


def test_notes_travel_beside_the_attributes_or_around_them() -> None:
    few, many = {"a": "b"}, {f"a{n}": "b" for n in range(100)}
    for attributes in (few, many):
        letter = with_notes(attributes, b"\0data", "k", reason="no")
        assert len(letter.attributes) <= 100
        found, data, notes = read(letter)
        assert (found, data, notes["reason"]) == (attributes, b"\0data", "no")


def test_what_only_looks_packed_stays_as_it_came() -> None:
    letter = with_notes({"a": "b"}, b"not packed", "", packed="1")
    assert read(letter)[:2] == ({"a": "b"}, b"not packed")


def test_a_long_reason_is_cut_between_characters() -> None:
    assert fitting_value("é" * 600) == "é" * 512
    assert fitting_value("x" + "é" * 600) == "x" + "é" * 511
    assert fitting_value("\ud800") == "?"
