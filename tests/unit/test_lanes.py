import random
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass

import pytest

from postroad.subscriber.lanes import Lanes, Together


@dataclass(frozen=True)
class Thing:
    lane: Hashable
    n: int
    together: Together | None = None


def lanes(*things: Thing) -> Lanes[Thing]:
    made: Lanes[Thing] = Lanes()
    for thing in things:
        made.put(thing)
    return made


@pytest.mark.spec("P6")
def test_a_lane_gives_one_at_a_time_and_others_go_beside_it() -> None:
    made = lanes(Thing("a", 1), Thing("a", 2), Thing("b", 1))
    assert made.take() == [Thing("a", 1)]
    assert made.take() == [Thing("b", 1)]
    assert made.take() == []
    made.done("a")
    assert made.take() == [Thing("a", 2)]


def test_what_arrives_for_a_busy_lane_waits() -> None:
    made = lanes(Thing("a", 1))
    made.take()
    made.put(Thing("a", 2))
    assert made.take() == []
    made.done("a")
    assert made.take() == [Thing("a", 2)]


def test_a_busy_lane_can_be_emptied() -> None:
    made = lanes(Thing("a", 1), Thing("a", 2), Thing("a", 3))
    made.take()
    assert made.drop("a") == [Thing("a", 2), Thing("a", 3)]
    made.done("a")
    assert made.take() == []
    made.put(Thing("a", 4))
    assert made.take() == [Thing("a", 4)]


def test_all_that_nobody_began_with_can_be_dropped() -> None:
    made = lanes(Thing("a", 1), Thing("a", 2), Thing("b", 1))
    made.take()
    assert made.drop_all() == [Thing("a", 2), Thing("b", 1)]
    assert made.take() == []
    made.done("a")
    made.put(Thing("a", 3))
    assert made.take() == [Thing("a", 3)]


def test_what_goes_together_is_taken_across_lanes_in_order() -> None:
    both, alone = Together("x", 4), Together("y", 4)
    made = lanes(
        Thing("a", 1, both), Thing("a", 2, both), Thing("a", 3), Thing("a", 4, both),
        Thing("b", 1, alone), Thing("c", 1, both), Thing("d", 1, both), Thing("e", 1, both),
    )  # fmt: skip
    taken = made.take()
    assert [(thing.lane, thing.n) for thing in taken] == [("a", 1), ("a", 2), ("c", 1), ("d", 1)]
    assert made.take() == [Thing("b", 1, alone)]
    assert made.take() == [Thing("e", 1, both)]


@pytest.mark.parametrize("seed", range(50))
def test_order_holds_within_each_lane_whatever_happens(seed: int) -> None:
    dice = random.Random(seed)
    made, busy, taken, n = lanes(), [], defaultdict(list), 0
    for _ in range(400):
        if dice.random() < 0.5:
            n += 1
            shares = dice.choice([None, Together("x", 3), Together("y", 5)])
            made.put(Thing(dice.choice("abcde"), n, shares))
        elif dice.random() < 0.5:
            things = made.take()
            for thing in things:
                assert thing.lane not in busy
                taken[thing.lane].append(thing.n)
            busy += {thing.lane for thing in things}
        elif busy:
            made.done(busy.pop(dice.randrange(len(busy))))
    while busy or (things := made.take()):
        if busy:
            made.done(busy.pop())
            continue
        for thing in things:
            taken[thing.lane].append(thing.n)
        busy += {thing.lane for thing in things}
    assert sum(map(len, taken.values())) == n
    assert all(numbers == sorted(numbers) for numbers in taken.values())
