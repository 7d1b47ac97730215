"""How long a destination that is out is left alone, told on a clock that stands still."""

import random

import pytest

from postroad.relay.breaker import Breaker
from postroad.testing import VirtualClock


class Always(random.Random):
    """A chance that is none."""

    def __init__(self, chance: float) -> None:
        super().__init__()
        self._chance = chance

    def random(self) -> float:
        return self._chance


def pause(breaker: Breaker, clock: VirtualClock, step: float = 0.01) -> float:
    """How long the next failure keeps it shut, to the step."""
    breaker.tripped("orders")
    steps = 0
    while not breaker.allows("orders"):
        clock.shift(step)
        steps += 1
    return round(steps * step, 6)


@pytest.mark.parametrize(
    ("chance", "pauses"),
    [(1.0, [0.1, 0.2, 0.4, 0.5, 0.5]), (0.0, [0.05, 0.1, 0.2, 0.25, 0.25])],
)
def test_each_failure_doubles_the_pause_up_to_the_longest(chance: float, pauses: list[float]) -> None:
    clock = VirtualClock()
    breaker = Breaker(clock, Always(chance))
    assert [pause(breaker, clock) for _ in pauses] == pytest.approx(pauses, abs=0.011)


def test_after_a_recovery_it_begins_anew() -> None:
    clock = VirtualClock()
    breaker = Breaker(clock, Always(1.0))
    assert [pause(breaker, clock), pause(breaker, clock)] == pytest.approx([0.1, 0.2], abs=0.011)
    breaker.recovered("orders")
    assert breaker.allows("orders")
    assert not breaker.is_probing("orders")
    assert pause(breaker, clock) == pytest.approx(0.1, abs=0.011)


def test_destinations_are_out_one_by_one() -> None:
    breaker = Breaker(VirtualClock(), Always(1.0))
    breaker.tripped("orders")
    assert not breaker.allows("orders")
    assert breaker.allows("parcels")
    assert breaker.open_destinations == ["orders"]
