"""The order of each key, and how far a partition has been settled, without a server."""

from postroad.brokers.kafka.lanes import Entry, Lanes
from postroad.brokers.kafka.partition import UNKNOWN, Arrival, Partition


def entry(lanes: Lanes, key: str, place: int, partition: Partition | None = None) -> Entry:
    arrival = Arrival(partition or Partition("t", 0), place, key, {}, b"", 1, None, "")
    new = Entry(key, arrival, place)
    lanes.arrive(new)
    return new


def hand_out(lanes: Lanes, now: float = 0.0) -> list[int]:
    ready = list(lanes.ready(now))
    for one in ready:
        lanes.hand_out(one)
    return [one.place for one in ready]


def test_what_is_given_back_comes_before_what_is_behind_it() -> None:
    lanes = Lanes()
    entries = [entry(lanes, "k", place) for place in range(4)]
    assert hand_out(lanes) == [0, 1, 2, 3]
    lanes.give_back(entries[2], 0.0)
    lanes.give_back(entries[1], 0.0)
    assert hand_out(lanes) == []  # the last one is still out
    lanes.give_back(entries[3], 0.0)
    lanes.settle(entries[0])
    assert hand_out(lanes) == [1, 2, 3]


def test_nothing_of_a_key_passes_one_that_waits_and_other_keys_do() -> None:
    lanes = Lanes()
    first, _ = entry(lanes, "k", 0), entry(lanes, "k", 1)
    lanes.hand_out(first)
    lanes.give_back(first, due=5.0)
    entry(lanes, "other", 2)
    assert hand_out(lanes, now=1.0) == [2]
    assert lanes.next_due(1.0) == 5.0
    assert hand_out(lanes, now=5.0) == [0, 1]
    assert lanes.next_due(5.0) is None


def test_what_has_gone_to_another_is_forgotten_and_what_of_it_was_in_hand_is_told() -> None:
    lanes, kept, lost = Lanes(), Partition("t", 0), Partition("t", 1)
    in_hand, _, stays = entry(lanes, "a", 0, lost), entry(lanes, "a", 1, lost), entry(lanes, "b", 2, kept)
    lanes.hand_out(in_hand)
    lost.alive = False
    assert lanes.forget(lambda one: not one.arrival.partition.alive) == [in_hand]
    assert not lanes.is_in_hand(in_hand)
    assert list(lanes.ready(0.0)) == [stays]


def test_a_partition_is_settled_up_to_its_first_open_message() -> None:
    partition = Partition("t", 0)
    assert partition.position == UNKNOWN
    for offset in (5, 6, 9):  # offsets may have holes
        assert partition.take(offset, 1)
    assert partition.settle(6) == 1
    assert (partition.position, partition.span, partition.settled_beyond) == (5, 5, 3)
    assert partition.settle(5) == 1
    assert partition.position == 9
    assert partition.settle(9) == 1
    assert partition.position == 10


def test_a_message_is_taken_and_settled_once() -> None:
    partition = Partition("t", 0)
    assert partition.take(0, 1)
    assert not partition.take(0, 1)
    assert partition.settle(0) == 1
    assert partition.settle(0) is None


def test_a_partition_that_has_gone_takes_and_settles_nothing() -> None:
    partition = Partition("t", 0)
    partition.take(0, 1)
    partition.alive = False
    assert not partition.take(1, 1)
    assert partition.settle(0) is None
