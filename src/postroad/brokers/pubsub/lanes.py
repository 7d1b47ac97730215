"""The order of each key, on this side of the wire.

Every unsettled message has its place in its key's lane, waiting or in the consumer's hand. Nothing goes past a message
that is waiting for its retry, but what was published before it: the emulator may hand that out later, when the stream
was lost on which it was first.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Final

from postroad.brokers.pubsub.consumer import Arrival


@dataclass(slots=True, eq=False)
class Entry:
    key: Hashable
    arrival: Arrival
    size: int
    due: float = 0.0
    """By the receiver's clock: not handed out before."""
    in_hand: bool = False

    @property
    def place(self) -> tuple[datetime, int]:
        """When it was published, to the millisecond; of the same one, by its version."""
        version = self.arrival.attributes.get("version", "")
        return self.arrival.published, int(version) if version.isdecimal() else 0


_place: Final = attrgetter("place")


@dataclass(slots=True)
class Lanes:
    here: int = 0
    bytes: int = 0
    _lanes: dict[Hashable, list[Entry]] = field(default_factory=dict)
    _live: dict[Hashable, None] = field(default_factory=dict)
    """The lanes with something that is not in hand: all that need to be looked at."""

    def arrive(self, entry: Entry) -> None:
        lane = self._lanes.setdefault(entry.key, [])
        lane.append(entry)
        if len(lane) > 1 and not lane[-2].in_hand and entry.place < lane[-2].place:
            _sort_what_waits(lane)
        self._live[entry.key] = None
        self.here += 1
        self.bytes += entry.size

    def ready(self, now: float) -> Iterator[Entry]:
        """What may be handed out, each lane in order."""
        for key in list(self._live):
            yield from self._ready_in(self._lanes[key], now)

    def _ready_in(self, lane: list[Entry], now: float) -> Iterable[Entry]:
        waiting = next((place for place, entry in enumerate(lane) if not entry.in_hand), len(lane))
        if any(entry.in_hand for entry in lane[waiting:]):
            # One was given back while later ones are still out: it must not come behind those.
            return
        for entry in lane[waiting:]:
            if entry.due > now:
                return
            yield entry

    def next_due(self, now: float) -> float | None:
        """When time alone will make something ready."""
        return min((head.due for head in self._heads() if head.due > now), default=None)

    def waiting(self, now: float) -> int:
        """How many are in lanes whose next one is not due: they take no room from other keys."""
        return sum(len(self._lanes[head.key]) for head in self._heads() if head.due > now)

    def _heads(self) -> Iterator[Entry]:
        for key in self._live:
            yield next(entry for entry in self._lanes[key] if not entry.in_hand)

    def hand_out(self, entry: Entry) -> None:
        entry.in_hand = True
        self._look_at(entry.key)

    def give_back(self, entry: Entry, due: float) -> None:
        entry.in_hand, entry.due = False, due
        _sort_what_waits(self._lanes[entry.key])
        self._live[entry.key] = None

    def remove(self, entry: Entry) -> None:
        self._lanes[entry.key].remove(entry)
        self.here -= 1
        self.bytes -= entry.size
        self._look_at(entry.key)

    def _look_at(self, key: Hashable) -> None:
        lane = self._lanes[key]
        if not lane:
            del self._lanes[key]
        # From the end, because what is in hand is in front.
        if any(not entry.in_hand for entry in reversed(lane)):
            self._live[key] = None
        else:
            self._live.pop(key, None)


def _sort_what_waits(lane: list[Entry]) -> None:
    """Behind all that is in hand. Those of one place stay as they came."""
    first = next((place for place in range(len(lane), 0, -1) if lane[place - 1].in_hand), 0)
    if len(lane) - first > 1:
        lane[first:] = sorted(lane[first:], key=_place)
