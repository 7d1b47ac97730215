"""What is said beside the event is refused by name, whatever its type: never with an error of the machinery."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from postroad.errors import InvalidPayload
from postroad.events import event_type_of
from postroad.outbox import Outbox
from postroad.outbox.checks import checked_headers, checked_id, checked_tenant, checked_version, deliver_at
from postroad.stores import open_store
from postroad.testing.office import Posted


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("idempotency_key", "\ud800", "surrogate"),
        ("idempotency_key", 5, "is int, not text or UUID"),
        ("idempotency_key", b"", "is bytes, not text or UUID"),
        ("idempotency_key", "", "must not be empty"),
        ("correlation_id", 5, "is int, not text or UUID"),
        ("correlation_id", "", "must not be empty; leave it out for none"),
        ("correlation_id", "\ud800", "surrogate"),
        ("user_id", object(), "is object, not text or UUID"),
        ("user_id", "", "must not be empty; leave it out for none"),
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


KIND = event_type_of(Posted)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
YEAR = 366 * 86_400


@pytest.mark.parametrize("version", [None, 1, 10**18 - 1])
def test_the_least_and_the_highest_version_are_taken(version: int | None) -> None:
    assert checked_version(KIND, version) == version


@pytest.mark.parametrize("version", [0, -1, True, 10**18, 1.0])
def test_a_version_outside_of_them_is_refused(version: Any) -> None:
    with pytest.raises(InvalidPayload):
        checked_version(KIND, version)


@pytest.mark.parametrize("delay", [0.001, 1, YEAR, timedelta(days=366)])
def test_a_delay_is_counted_from_now(delay: Any) -> None:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    assert deliver_at(KIND, NOW, delay) == NOW + timedelta(seconds=seconds)
    assert deliver_at(KIND, NOW, None) is None


@pytest.mark.parametrize("delay", [0, -1, YEAR + 1, timedelta(0), timedelta(days=366, seconds=1), float("nan")])
def test_a_delay_of_nothing_or_of_more_than_a_year_is_refused(delay: Any) -> None:
    with pytest.raises(InvalidPayload):
        deliver_at(KIND, NOW, delay)


def test_what_is_as_long_as_it_may_be_is_taken() -> None:
    assert checked_tenant(KIND, "t" * 255) == "t" * 255
    assert checked_id(KIND, "user_id", "u") == "u"
    assert checked_id(KIND, "user_id", UUID(int=7)) == str(UUID(int=7))
    assert checked_id(KIND, "user_id", None) is None
    assert checked_headers(KIND, {"a": "b"}) == {"a": "b"}
    assert checked_headers(KIND, None) == {}
