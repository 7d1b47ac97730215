"""The order of each key, on this side of the wire.

A partition holds many keys. Here every unsettled message has its place in its key's lane: it waits, or is in the
consumer's hand, or must not be handed out again before its time. Nothing goes past a message that is waiting.
"""

from bisect import insort
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

from postroad.brokers.kafka.partition import Arrival


@dataclass(slots=True, eq=False)
class Entry:
    key: Hashable
    arrival: Arrival
    place: int
    """The later it came, the higher."""
    due: float = 0.0
    """By the receiver's clock: not handed out before."""


@dataclass(slots=True)
class _Lane:
    waiting: list[Entry] = field(default_factory=list)
    in_hand: dict[Entry, None] = field(default_factory=dict)
    """In the order of their places, because they are handed out in it."""

    def ready(self, now: float) -> Iterator[Entry]:
        if self.in_hand and next(reversed(self.in_hand)).place > self.waiting[0].place:
            # One was given back while later ones are still out: it must not come behind those.
            return
        for entry in self.waiting:
            if entry.due > now:
                return
            yield entry


@dataclass(slots=True)
class Lanes:
    _lanes: dict[Hashable, _Lane] = field(default_factory=dict)
    _live: dict[Hashable, None] = field(default_factory=dict)
    """The lanes where something waits: all that need to be looked at."""

    def arrive(self, entry: Entry) -> None:
        self._lanes.setdefault(entry.key, _Lane()).waiting.append(entry)
        self._live[entry.key] = None

    def ready(self, now: float) -> Iterator[Entry]:
        """What may be handed out, each lane in order."""
        for key in self._live:
            yield from self._lanes[key].ready(now)

    def next_due(self, now: float) -> float | None:
        """When time alone will make something ready."""
        dues = (self._lanes[key].waiting[0].due for key in self._live)
        return min((due for due in dues if due > now), default=None)

    def hand_out(self, entry: Entry) -> None:
        lane = self._lanes[entry.key]
        lane.waiting.remove(entry)  # the first one
        lane.in_hand[entry] = None
        self._look_at(entry.key)

    def is_in_hand(self, entry: Entry) -> bool:
        lane = self._lanes.get(entry.key)
        return lane is not None and entry in lane.in_hand

    def give_back(self, entry: Entry, due: float) -> None:
        lane = self._lanes[entry.key]
        del lane.in_hand[entry]
        entry.due = due
        insort(lane.waiting, entry, key=lambda other: other.place)
        self._live[entry.key] = None

    def settle(self, entry: Entry) -> None:
        """It was in hand."""
        del self._lanes[entry.key].in_hand[entry]
        self._look_at(entry.key)

    def forget(self, is_gone: Callable[[Entry], bool]) -> list[Entry]:
        """Removes what belongs to somebody else now, and tells what of it was in hand."""
        told = []
        for key, lane in list(self._lanes.items()):
            told += [entry for entry in lane.in_hand if is_gone(entry)]
            lane.waiting = [entry for entry in lane.waiting if not is_gone(entry)]
            lane.in_hand = {entry: None for entry in lane.in_hand if not is_gone(entry)}
            self._look_at(key)
        return told

    def _look_at(self, key: Hashable) -> None:
        lane = self._lanes[key]
        if not lane.waiting:
            self._live.pop(key, None)
            if not lane.in_hand:
                del self._lanes[key]
