"""Keyed lanes: what has the same key stays in order, what has another key goes beside it."""

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


@dataclass(frozen=True, slots=True)
class Together:
    """Items with an equal `token` may be taken together, up to `limit` of them."""

    token: object
    limit: int


class Item(Protocol):
    @property
    def lane(self) -> Hashable: ...
    @property
    def together(self) -> Together | None: ...


T = TypeVar("T", bound=Item)


class Lanes(Generic[T]):
    """A lane exists while something waits in it or somebody works on it; only one works on it at a time."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[T]] = {}
        self._ready: deque[Hashable] = deque()
        """The lanes with something waiting and nobody at work, the one that waits longest first."""

    def put(self, item: T) -> None:
        if item.lane not in self._waiting:
            self._waiting[item.lane] = deque()
            self._ready.append(item.lane)
        self._waiting[item.lane].append(item)

    def take(self) -> list[T]:
        """The next work: one item, or all that may go together with it. Its lanes are busy until `done`."""
        if not self._ready:
            return []
        lane = self._ready.popleft()
        taken = [self._waiting[lane].popleft()]
        together = taken[0].together
        if together is not None:
            self._join(taken, lane, together)
            passed = []
            while self._ready and len(taken) < together.limit:
                lane = self._ready.popleft()
                if not self._join(taken, lane, together):
                    passed.append(lane)
            self._ready.extendleft(reversed(passed))
        return taken

    def done(self, lane: Hashable) -> None:
        if self._waiting[lane]:
            self._ready.append(lane)
        else:
            del self._waiting[lane]

    @property
    def waiting(self) -> list[Sequence[T]]:
        """What waits, lane by lane."""
        return [list(waiting) for waiting in self._waiting.values() if waiting]

    def drop(self, lane: Hashable) -> list[T]:
        """Empties a busy lane: what waited behind something that must go back, in order."""
        dropped = list(self._waiting[lane])
        self._waiting[lane].clear()
        return dropped

    def drop_all(self) -> list[T]:
        """Everything that nobody has begun with."""
        dropped = [item for waiting in self._waiting.values() for item in waiting]
        for lane in self._ready:
            del self._waiting[lane]
        for waiting in self._waiting.values():
            waiting.clear()
        self._ready.clear()
        return dropped

    def _join(self, taken: list[T], lane: Hashable, together: Together) -> bool:
        """Adds what may join from the front of a lane. Stops at the first that may not: order counts."""
        waiting, before = self._waiting[lane], len(taken)
        while waiting and len(taken) < together.limit and waiting[0].together == together:
            taken.append(waiting.popleft())
        return len(taken) > before
