"""The order of each key while its messages are here, in hand or away."""

import math
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from postroad.brokers.rabbitmq.consumer import Arrival
from postroad.brokers.rabbitmq.lanes import Entry, Lanes

NOW = 1_000.0


def arrival(ticket: str = "", *, redelivered: bool = False, published: float = NOW) -> Arrival:
    return Arrival(1, 1, {}, b"", ticket, "", datetime.fromtimestamp(published, UTC), redelivered)


def put(lanes: Lanes, name: str, *, key: str = "k", version: int = 0, due: float = 0.0, ticket: str = "") -> Entry:
    """An entry that is known by its name."""
    entry = Entry(key, ticket or name, version or ord(name[0]), 1, due, arrival(ticket))
    lanes.arrive(entry)
    return entry


def ready(lanes: Lanes, now: float = NOW) -> str:
    return "".join(entry.ticket for entry in lanes.ready(now))


def test_what_is_here_is_ready_in_the_order_of_its_arrival() -> None:
    lanes = Lanes()
    for name in "abc":
        put(lanes, name)
    assert (ready(lanes), lanes.here, lanes.away) == ("abc", 3, 0)


def test_what_was_given_back_comes_before_what_came_after_it() -> None:
    lanes = Lanes()
    a, b = put(lanes, "a"), put(lanes, "b")
    for entry in (a, b):
        lanes.hand_out(entry)
    lanes.give_back(a, NOW + 1)
    assert ready(lanes, NOW + 2) == ""  # b is still out and would come behind it
    lanes.give_back(b, 0.0)
    assert ready(lanes) == ""
    assert lanes.next_due(NOW) == NOW + 1
    assert ready(lanes, NOW + 1) == "ab"


def test_what_is_away_keeps_its_place() -> None:
    lanes = Lanes()
    a = put(lanes, "a")
    lanes.hand_out(a)
    lanes.leave(a)
    put(lanes, "b")
    put(lanes, "x", key="other")
    assert ready(lanes) == "x"
    assert (lanes.here, lanes.away, lanes.next_due(NOW)) == (2, 1, None)
    lanes.arrive(Entry("k", "a", 1, 1, 0.0, arrival("a")))
    assert ready(lanes) == "abx"
    assert (lanes.here, lanes.away) == (3, 0)


def test_what_another_receiver_sent_away_stands_before_its_successors() -> None:
    lanes = Lanes()
    put(lanes, "b", version=2)
    put(lanes, "c", version=3)
    put(lanes, "a", version=1, ticket="a")
    assert ready(lanes) == "abc"


def test_what_comes_back_behind_its_successors_in_hand_waits_for_their_verdict_and_goes_first() -> None:
    lanes = Lanes()
    b, c = put(lanes, "b", version=2), put(lanes, "c", version=3)
    for entry in (b, c):
        lanes.hand_out(entry)
    put(lanes, "a", version=1, ticket="a")
    assert ready(lanes) == ""
    for entry in (b, c):
        assert lanes.is_behind_another(entry)
        lanes.give_back(entry, 0.0)
    assert ready(lanes) == "abc"


def test_after_an_interruption_only_what_is_away_is_remembered() -> None:
    lanes = Lanes()
    a, b = put(lanes, "a"), put(lanes, "b")
    lanes.hand_out(a)
    lanes.leave(a)
    lanes.hand_out(b)
    put(lanes, "c")
    lanes.forget_what_is_here()
    assert (lanes.here, lanes.away) == (0, 1)
    put(lanes, "b")
    assert ready(lanes) == ""
    lanes.come_back(a, arrival("a"))
    assert ready(lanes) == "ab"


def test_what_is_overdue_is_given_up_and_its_key_goes_on() -> None:
    lanes = Lanes()
    a, x = put(lanes, "a"), put(lanes, "x", key="other")
    for entry, due in ((a, NOW), (x, NOW + 5)):
        lanes.hand_out(entry)
        entry.due = due
        lanes.leave(entry)
    put(lanes, "b")
    assert (lanes.overdue(NOW), lanes.earliest_away) == ([], NOW)
    assert (lanes.overdue(NOW + 1), lanes.earliest_away) == ([a], NOW + 5)
    assert (ready(lanes), lanes.away) == ("b", 1)
    assert (lanes.overdue(NOW + 9), lanes.earliest_away) == ([x], math.inf)


def test_what_cannot_be_handed_out_is_idle_the_latest_first() -> None:
    lanes = Lanes()
    a = put(lanes, "a", due=NOW + 5)
    b, c = put(lanes, "b"), put(lanes, "c")
    put(lanes, "x", key="other")
    assert list(lanes.idle(NOW, 1.0)) == [c, b, a]
    assert lanes.idle(NOW, 6.0) == {}
    assert set(lanes.idle(NOW, 1.0).values()) == {NOW + 5}
    assert lanes.far(NOW, 1.0) == [a]
    assert lanes.far(NOW, 6.0) == []
    assert lanes.is_behind_another(b)
    assert not lanes.is_behind_another(a)


def test_of_two_copies_with_one_ticket_each_comes_back_to_a_place() -> None:
    lanes = Lanes()
    first, second = put(lanes, "a"), put(lanes, "b", ticket="a")
    for entry in (first, second):
        lanes.hand_out(entry)
        lanes.leave(entry)
    put(lanes, "c")
    for returned, expected in ((1, ""), (2, "aac")):
        lanes.arrive(Entry("k", "a", 1, 1, 0.0, arrival("a")))
        assert (lanes.here, lanes.away) == (1 + returned, 2 - returned)
        assert ready(lanes) == (expected or "a")


def test_removing_twice_changes_nothing() -> None:
    lanes = Lanes()
    a = put(lanes, "a")
    lanes.remove(a)
    lanes.remove(a)
    assert (lanes.here, lanes.away, ready(lanes)) == (0, 0, "")


@given(st.lists(st.sampled_from(["arrive", "take", "settle", "back", "away", "return", "cut"]), max_size=60))
def test_whatever_happens_a_key_is_settled_in_order(steps: list[str]) -> None:
    """A consumer that handles the first in hand, and gives back all when it gives back one."""
    lanes = Lanes()
    coming, settled = iter(range(1, 100)), list[int]()
    on_server: list[int] = []
    hand: list[Entry] = []
    away: list[Entry] = []
    for step in steps:
        if step == "arrive":
            number = on_server.pop(0) if on_server else next(coming)
            lanes.arrive(Entry("k", f"t{number}", number, 1, 0.0, arrival()))
        elif step == "take":
            for entry in list(lanes.ready(NOW)):
                lanes.hand_out(entry)
                hand.append(entry)
        elif step == "settle" and hand:
            entry = hand.pop(0)
            lanes.remove(entry)
            settled.append(entry.version)
        elif step == "back":
            for entry in hand:
                lanes.give_back(entry, 0.0)
            hand.clear()
        elif step == "away" and hand:
            first, *rest = hand
            lanes.leave(first)
            away.append(first)
            for entry in rest:
                lanes.give_back(entry, 0.0)
            hand.clear()
        elif step == "return" and away:
            entry = away.pop()
            lanes.arrive(Entry("k", entry.ticket, entry.version, 1, 0.0, arrival(entry.ticket)))
        elif step == "cut":
            held = sorted(entry.version for entry in lanes.held() if entry.arrival and not entry.arrival.ticket)
            # What came back from a delay queue and is cut off comes again with its ticket; here it is simply away.
            for entry in list(lanes.held()):
                if entry.arrival and entry.arrival.ticket:
                    entry.in_hand = False
                    lanes.leave(entry)
                    away.append(entry)
            lanes.forget_what_is_here()
            hand.clear()
            on_server = held + on_server
        assert settled == sorted(settled)
