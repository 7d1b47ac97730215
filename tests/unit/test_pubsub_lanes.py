"""The order of each key on this side of Pub/Sub, without a server."""

from datetime import UTC, datetime, timedelta

import pytest

from postroad.brokers.pubsub.consumer import Arrival
from postroad.brokers.pubsub.lanes import Entry, Lanes

BEGINNING = datetime(2025, 1, 1, tzinfo=UTC)


def arrive(lanes: Lanes, name: str, published: float, version: str | None = None) -> Entry:
    attributes = {} if version is None else {"version": version}
    arrival = Arrival(name, "k", attributes, name.encode(), BEGINNING + timedelta(seconds=published))
    entry = Entry(("k", True), arrival, 1)
    lanes.arrive(entry)
    return entry


def hand_out(lanes: Lanes, now: float = 0.0) -> str:
    ready = list(lanes.ready(now))
    for one in ready:
        lanes.hand_out(one)
    return "".join(one.arrival.id for one in ready)


@pytest.mark.spec("P6")
def test_what_was_published_earlier_and_comes_later_goes_before_what_waits() -> None:
    lanes = Lanes()
    late = arrive(lanes, "d", 4)
    arrive(lanes, "e", 5)
    assert hand_out(lanes, now=0.0) == "de"
    for entry in [late, *(one for one in lanes._lanes[("k", True)] if one is not late)]:
        lanes.give_back(entry, due=9.0)
    arrive(lanes, "a", 1)
    arrive(lanes, "b", 2)
    assert hand_out(lanes, now=1.0) == "ab"


@pytest.mark.spec("P6")
def test_what_comes_while_a_later_one_is_in_hand_goes_first_once_that_is_given_back() -> None:
    lanes = Lanes()
    late = arrive(lanes, "d", 4)
    assert hand_out(lanes) == "d"
    arrive(lanes, "a", 1)
    lanes.give_back(late, due=0.0)
    assert hand_out(lanes) == "ad"


def test_of_one_moment_the_lower_version_goes_first() -> None:
    lanes = Lanes()
    for name, version in ("d", "12"), ("a", "9"), ("e", "13"):
        arrive(lanes, name, 1, version)
    assert hand_out(lanes) == "ade"


@pytest.mark.parametrize("version", [None, "", "x"])
def test_what_has_no_version_stays_as_it_came(version: str | None) -> None:
    lanes = Lanes()
    first = arrive(lanes, "x", 1, version)
    arrive(lanes, "b", 1, version)
    assert hand_out(lanes) == "xb"
    for entry in (first, lanes._lanes[("k", True)][1]):
        lanes.give_back(entry, due=0.0)
    assert hand_out(lanes) == "xb"
