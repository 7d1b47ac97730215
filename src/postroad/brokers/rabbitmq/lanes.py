"""The order of each key, on this side of the wire.

A queue knows no keys. Here every unsettled message has its place in its key's lane: it is here, or in the consumer's
hand, or away in a delay queue, from where it comes back to its place. Nothing goes past a message that is waiting.
"""

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from postroad.brokers.rabbitmq.consumer import Arrival


@dataclass(slots=True, eq=False)
class Entry:
    key: Hashable
    ticket: str
    """By which it is known when it comes back."""
    version: int
    size: int
    due: float
    """By the receiver's clock: not handed out before."""
    arrival: Arrival | None
    """None while it is away."""
    in_hand: bool = False


@dataclass(slots=True)
class Lanes:
    _lanes: dict[Hashable, list[Entry]] = field(default_factory=dict)
    _live: dict[Hashable, None] = field(default_factory=dict)
    """The lanes with something here that is not in hand: all that need to be looked at."""
    _away: dict[Entry, None] = field(default_factory=dict)
    _tickets: dict[str, list[Entry]] = field(default_factory=dict)
    """What is away, by ticket: a lane may be long, and each of it comes back one day. More than one of a ticket where a
    copy was sent twice for want of an answer."""
    here: int = 0
    """Here or in hand: what the server has handed over and not got back."""
    earliest_away: float = math.inf
    """Nothing that is away is due before this."""

    @property
    def away(self) -> int:
        return len(self._away)

    def arrive(self, new: Entry) -> None:
        """Into the place it left; else, if it was sent away by a receiver that is gone, before what was behind it
        then; else at the end."""
        assert new.arrival is not None
        lane = self._lanes.setdefault(new.key, [])
        returned = bool(new.arrival.ticket)
        if returned:
            for entry in self._tickets.get(new.ticket, ()):
                if entry.key == new.key:
                    self.come_back(entry, new.arrival)
                    return
        # Also before what is in hand: that may be given back because this one must come first.
        later = (place for place, entry in enumerate(lane) if entry.version > new.version)
        lane.insert(next(later, len(lane)) if returned else len(lane), new)
        self._live[new.key] = None
        self.here += 1

    def come_back(self, entry: Entry, arrival: Arrival) -> None:
        entry.arrival = arrival
        self._live[entry.key] = None
        self.here += 1
        self._no_longer_away(entry)

    def overdue(self, before: float) -> list[Entry]:
        """Removes and tells what is away and was due before a time: it will not come back any more."""
        if self.earliest_away >= before:
            return []
        gone = [entry for entry in self._away if entry.due < before]
        for entry in gone:
            self.remove(entry)
        self.earliest_away = min((entry.due for entry in self._away), default=math.inf)
        return gone

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
            if entry.arrival is None or entry.due > now:
                return
            yield entry

    def next_due(self, now: float) -> float | None:
        """When time alone will make something ready."""
        found = []
        for key in self._live:
            first = next((entry for entry in self._lanes[key] if not entry.in_hand), None)
            if first is not None and first.arrival is not None and first.due > now:
                found.append(first.due)
        return min(found, default=None)

    def hand_out(self, entry: Entry) -> None:
        entry.in_hand = True
        self._look_at(entry.key)

    def give_back(self, entry: Entry, due: float) -> None:
        entry.in_hand, entry.due = False, due
        self._live[entry.key] = None

    def leave(self, entry: Entry) -> None:
        """It has gone to a delay queue. Its place is kept."""
        entry.arrival, entry.in_hand = None, False
        self.here -= 1
        self._away[entry] = None
        self._tickets.setdefault(entry.ticket, []).append(entry)
        self.earliest_away = min(self.earliest_away, entry.due)
        self._look_at(entry.key)

    def remove(self, entry: Entry) -> None:
        lane = self._lanes.get(entry.key, [])
        if entry not in lane:
            return
        lane.remove(entry)
        if entry.arrival is None:
            self._no_longer_away(entry)
        else:
            self.here -= 1
        self._look_at(entry.key)

    def _no_longer_away(self, entry: Entry) -> None:
        if entry not in self._away:
            return
        del self._away[entry]
        same = self._tickets[entry.ticket]
        same.remove(entry)
        if not same:
            del self._tickets[entry.ticket]

    def forget_what_is_here(self) -> None:
        """The server will deliver all of it again; what is away is still away."""
        for key, lane in list(self._lanes.items()):
            lane[:] = [entry for entry in lane if entry.arrival is None]
            self._look_at(key)
        self.here = 0

    def far(self, now: float, distance: float) -> list[Entry]:
        """What is here, first of its lane, and not due for so many seconds."""
        firsts = (next((entry for entry in self._lanes[key] if not entry.in_hand), None) for key in self._live)
        return [e for e in firsts if e is not None and e.arrival is not None and e.due - now >= distance]

    def is_behind_another(self, entry: Entry) -> bool:
        """Whether an earlier one of its key waits, here or elsewhere."""
        for other in self._lanes[entry.key]:
            if other is entry:
                return False
            if not other.in_hand:
                return True
        return False

    def idle(self, now: float, distance: float) -> dict[Entry, float]:
        """What is here and waits for what is away, or not due for so many seconds, the latest of each lane first: it
        takes room from other keys. What is due sooner would not be back sooner. With the time until which it must wait
        at least: its own, or that of one before it.

        In one pass, because a lane may be long.
        """
        found: dict[Entry, float] = {}
        for key in self._live:
            waiting: list[tuple[Entry, float]] = []
            until, blocked = 0.0, False
            for entry in self._lanes[key]:
                if entry.due > until:
                    until = entry.due
                if entry.arrival is None:
                    blocked = True
                elif not entry.in_hand and (blocked := blocked or entry.due - now >= distance):
                    waiting.append((entry, until))
            found.update(reversed(waiting))
        return found

    def held(self) -> Iterator[Entry]:
        """Here or in hand."""
        for lane in self._lanes.values():
            yield from (entry for entry in lane if entry.arrival is not None)

    def _look_at(self, key: Hashable) -> None:
        lane = self._lanes.get(key)
        if not lane:
            self._lanes.pop(key, None)
            self._live.pop(key, None)
        elif any(entry.arrival is not None and not entry.in_hand for entry in reversed(lane)):
            # From the end, because of a long lane most is away, and what is here came last.
            self._live[key] = None
        else:
            self._live.pop(key, None)
