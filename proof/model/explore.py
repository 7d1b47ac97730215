"""Every reachable state, breadth first; the first violation found is therefore one with a shortest story."""

import gc
import time
from array import array
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from proof.model import broker, consumer, people, relay, writer
from proof.model.invariants import DRAINS, Violation, check, drained
from proof.model.state import Label, State, Steps
from proof.model.world import World


@dataclass(frozen=True)
class Explored:
    world: World
    states: int
    transitions: int
    depth: int
    """Steps from the start to the state farthest away."""
    seconds: float
    kinds: frozenset[str] = frozenset()
    """The kinds of steps that happened somewhere."""
    violation: Violation | None = None
    trace: Sequence[Label] = ()


def successors(world: World, state: State) -> Steps:
    out: Steps = []
    if not world.scenario.published:
        writer.steps(world, state, out)
        relay.steps(world, state, out)
        people.attend_outbox(world, state, out)
        broker.late_arrivals(state, out)
    if state.workers:
        consumer.steps(world, state, out)
        people.attend_inbox(world, state, out)
    return out


def explore(world: World, ignoring: Collection[str] = ()) -> Explored:
    with _without_collector():
        return _explored(world, ignoring)


@contextmanager
def _without_collector() -> Iterator[None]:
    """States are tuples without cycles; looking through all of them again and again takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _explored(world: World, ignoring: Collection[str]) -> Explored:
    began = time.perf_counter()
    start = world.start()
    number: dict[State, int] = {start: 0}
    states = [start]
    parents = array("l", [-1])
    quiet = Quiet() if world.scenario.drains else None
    transitions, depth, level_ends = 0, 0, 1
    kinds: set[object] = set()

    def found(violation: Violation | None, trace: Sequence[Label] = ()) -> Explored:
        seconds = time.perf_counter() - began
        return Explored(world, len(states), transitions, depth, seconds, frozenset(map(str, kinds)), violation, trace)

    here = 0
    while here < len(states):
        if here == level_ends:
            depth, level_ends = depth + 1, len(states)
        state = states[here]
        for label, after in successors(world, state):
            transitions += 1
            kinds.add(label[0])
            if (broken := check(world, state, label, after)) and broken.invariant not in ignoring:
                return found(broken, [*_trace(world, states, parents, here), label])
            there = number.get(after)
            if there is None:
                there = number[after] = len(states)
                states.append(after)
                parents.append(here)
            if quiet is not None and after.faults == state.faults and after.acts == state.acts:
                quiet.add(here, there)
        here += 1
    if quiet is not None and (stuck := quiet.first_stuck(world, states)) is not None:
        says = "from here, without any further fault, some event can never come to its end"
        return found(Violation(DRAINS, says), _trace(world, states, parents, stuck))
    return found(None)


class Quiet:
    """The steps that are nobody's fault: along them, everything must be able to come to its end."""

    def __init__(self) -> None:
        self._sources, self._targets = array("l"), array("l")

    def add(self, source: int, target: int) -> None:
        self._sources.append(source)
        self._targets.append(target)

    def first_stuck(self, world: World, states: Sequence[State]) -> int | None:
        before: list[list[int]] = [[] for _ in states]
        for source, target in zip(self._sources, self._targets, strict=True):
            before[target].append(source)
        reaching = [place for place, state in enumerate(states) if drained(world, state)]
        good = bytearray(len(states))
        for place in reaching:
            good[place] = 1
        while reaching:
            for source in before[reaching.pop()]:
                if not good[source]:
                    good[source] = 1
                    reaching.append(source)
        stuck = good.find(0)
        return None if stuck < 0 else stuck


def _trace(world: World, states: Sequence[State], parents: Sequence[int], place: int) -> list[Label]:
    """The steps from the start to a state, found again by asking each parent how it led to its child."""
    path = [place]
    while (parent := parents[path[-1]]) >= 0:
        path.append(parent)
    path.reverse()
    labels: list[Label] = []
    for here, there in pairwise(path):
        labels.append(next(label for label, after in successors(world, states[here]) if after == states[there]))
    return labels
