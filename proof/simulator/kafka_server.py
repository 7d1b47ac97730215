"""Kafka's rules: logs, and groups that share them. What is modelled here:

- A log keeps what it took, in order. Anybody may read it, members and those who do not know yet that they are none.
- A member is in its group as long as it is heard of. Its place is taken by others when it was silent for too long;
  it learns that late, and goes on meanwhile.
- Partitions that move are asked back from a living member, who may commit before it gives them; then another has them.
- Each change begins a new generation, of which members learn later. Offsets are taken from every member that knows the
  present one, of whatever partition, forward or back: Kafka does not ask whose it is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from zlib import crc32

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError

from postroad.brokers.kafka.record import Letter
from proof.simulator.process import Process

PARTITIONS = 3
SESSION = 2.0


@dataclass(frozen=True)
class Record:
    """As the client hands it out."""

    letter: Letter
    number: int
    place: int

    def topic(self) -> str:
        return self.letter.topic

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.place

    def key(self) -> bytes | None:
        return self.letter.key

    def value(self) -> bytes | None:
        return self.letter.value

    def headers(self) -> Sequence[tuple[str, bytes]]:
        return self.letter.headers

    def error(self) -> None:
        """None: whatever fails, fails otherwise here."""

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_NOT_AVAILABLE, 0


@dataclass(eq=False)
class Seat:
    """One stay of a member in a group."""

    process: Process
    tell: Callable[[str, list[int]], None]
    """Which partitions it is given, or shall give back."""
    id: str = ""
    seen: float = 0.0
    taken: bool = False
    """By its silence, although it may not know."""
    silent: bool = False
    """Its member is closed, and sends no more signs of life."""


class Group:
    def __init__(self, chance: Random, tell: Callable[[str], None]) -> None:
        self.committed: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        self.generation = 0
        self._seats: list[Seat] = []
        self._owners: dict[int, Seat | None] = dict.fromkeys(range(PARTITIONS))
        self._asked_back: set[int] = set()
        self._chance, self._tell, self._numbers = chance, tell, count(1)

    def join(self, seat: Seat, now: float) -> None:
        seat.id, seat.seen = f"member-{next(self._numbers)}", now
        self._seats.append(seat)
        self._tell(f"{seat.id} is {seat.process.name}")
        self._share_out()

    def leave(self, seat: Seat) -> None:
        """Or was made to."""
        seat.taken = True
        if seat in self._seats:
            self._seats.remove(seat)
            self._tell(f"{seat.id} is no member any more")
            for number, owner in self._owners.items():
                if owner is seat:
                    self._free(number)
            self._share_out()

    def give_back(self, seat: Seat, numbers: Sequence[int]) -> None:
        for number in numbers:
            if self._owners[number] is seat:
                self._free(number)
        self._share_out()

    def commit(self, seat: Seat | None, generation: int, offsets: Mapping[int, int]) -> int | None:
        """Why it was refused."""
        if seat is None or seat not in self._seats:
            return KafkaError.UNKNOWN_MEMBER_ID
        if generation != self.generation:
            return KafkaError.ILLEGAL_GENERATION
        self.committed |= offsets
        return None

    def listen(self, now: float, *, all_heard: bool) -> None:
        """For signs of life."""
        for seat in list(self._seats):
            if all_heard or (seat.process.alive and not seat.silent and not seat.process.frozen_for()):
                seat.seen = now
            elif now - seat.seen > SESSION:
                self.leave(seat)

    def dismiss(self) -> None:
        """Somebody of whom nothing was heard, although it lives."""
        if self._seats:
            self.leave(self._chance.choice(self._seats))

    def stir(self) -> None:
        """As if others had come and gone."""
        if held := [number for number, owner in self._owners.items() if owner is not None]:
            self._ask_back(self._chance.choice(held))

    def _share_out(self) -> None:
        """Evenly, and so that as little moves as possible."""
        if not self._seats:
            return
        most, loads = -(-PARTITIONS // len(self._seats)), dict.fromkeys(self._seats, 0)
        for number, owner in self._owners.items():
            if owner is not None and loads[owner] < most:
                loads[owner] += 1
            elif owner is not None:
                self._ask_back(number)
        given: dict[Seat, list[int]] = {}
        for number, owner in self._owners.items():
            if owner is None:
                seat = self._owners[number] = min(self._seats, key=lambda one: (loads[one], self._chance.random()))
                loads[seat] += 1
                given.setdefault(seat, []).append(number)
        self.generation += 1
        for seat, numbers in given.items():
            self._tell(f"{seat.id} is given {numbers}")
            seat.tell("assign", numbers)

    def _ask_back(self, number: int) -> None:
        owner = self._owners[number]
        if owner is not None and number not in self._asked_back:
            self._asked_back.add(number)
            self._tell(f"{owner.id} is asked for {number}")
            owner.tell("revoke", [number])

    def _free(self, number: int) -> None:
        self._owners[number] = None
        self._asked_back.discard(number)


@dataclass(eq=False)
class Server:
    chance: Random
    tell: Callable[[str], None]
    logs: dict[tuple[str, int], list[Record]] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    readers: list[Callable[[], None]] = field(default_factory=list)
    """Who wants to know that something was written."""

    def create(self, topic: str) -> None:
        for number in range(PARTITIONS):
            self.logs[topic, number] = []

    def found(self, subscription: str) -> None:
        self.groups[subscription] = Group(self.chance, lambda what: self.tell(f"{subscription}: {what}"))

    def write(self, letter: Letter) -> None:
        number = self.chance.randrange(PARTITIONS) if letter.key is None else crc32(letter.key) % PARTITIONS
        log = self.logs[letter.topic, number]
        log.append(Record(letter, number, len(log)))
        for wake in self.readers:
            wake()

    def left(self, subscription: str) -> int:
        topic, committed = subscription.rpartition(".")[0], self.groups[subscription].committed
        return sum(len(self.logs[topic, number]) - offset for number, offset in committed.items())

    def listen(self, now: float, *, away: bool) -> None:
        # Whoever comes back from somewhere has heard nobody, and gives all of them their time.
        for group in self.groups.values():
            group.listen(now, all_heard=away)
