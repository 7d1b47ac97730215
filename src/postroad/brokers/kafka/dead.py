"""Dead letters: a compacted topic beside each topic. A letter's key is its id; what is dealt with gets a tombstone."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from threading import Lock
from typing import Final

from confluent_kafka import Message as Record

from postroad.brokers.base import DeadLetter
from postroad.brokers.kafka.publisher import Publisher
from postroad.brokers.kafka.reader import Reader
from postroad.brokers.kafka.receiver import KafkaDelivery
from postroad.brokers.kafka.record import FOR, OWN, Letter, attributes_of, headers_of
from postroad.brokers.kafka.structure import Structure
from postroad.clock import Clock
from postroad.errors import BrokerError, BrokerUnavailable
from postroad.message import parse_rfc3339, rfc3339
from postroad.retry import fitting

_LONGEST_REASON: Final = 2_000
_LONG_AGO: Final = datetime.fromtimestamp(0, UTC)


class Graveyard:
    def __init__(self, structure: Structure, publisher: Publisher, reader: Reader, clock: Clock) -> None:
        self._structure, self._publisher, self._reader, self._clock = structure, publisher, reader, clock
        self._places: dict[str, _Places] = {}

    async def bury(self, delivery: KafkaDelivery, reason: str) -> None:
        """Returns when Kafka has it. Tried again, it is the same letter."""
        arrival = delivery.arrival
        group = delivery.subscription.removeprefix(f"{delivery.topic}.")
        own = {
            "subscription": delivery.subscription,
            "reason": fitting(reason.encode(errors="replace").decode(), _LONGEST_REASON),
            "attempts": str(delivery.attempt),
            "died_at": rfc3339(self._clock.now()),
            "topic": delivery.topic,
            "partition": str(arrival.partition.number),
            "offset": str(arrival.offset),
        }
        id = f"{group}-{arrival.partition.number}-{arrival.offset}"
        headers = _encoded(arrival.attributes) + _encoded({OWN + name: value for name, value in own.items()})
        try:
            await self._publisher.place(Letter(_grave(delivery.topic), id.encode(), arrival.data, headers))
        except BrokerUnavailable:
            raise
        except BrokerError as error:
            # The message is still in hand, so there is time to put that right.
            raise BrokerUnavailable(
                f"{_grave(delivery.topic)} does not take the letter: {error}. Run: postroad topology apply"
            ) from None

    async def letters(self, topic: str, limit: int, after: str) -> list[DeadLetter]:
        if limit <= 0 or not await self._structure.partitions(_grave(topic)):
            return []
        return await asyncio.to_thread(self._page, topic, limit, after)

    async def revive(self, topic: str, ids: Sequence[str]) -> int:
        letters = await self._wanted(topic, ids)
        for letter in letters:
            # Into its own topic, where its key's later events come: in another one somebody else might handle it beside
            # them. Other subscriptions see whom it is for, and pass it over.
            key = letter.attributes.get("aggregate_id", "").encode() or None
            headers = _encoded(letter.attributes) + _encoded({FOR: letter.subscription})
            await self._publisher.place(Letter(topic, key, letter.data, headers))
            await self._entomb(topic, letter)
        return len(letters)

    async def discard(self, topic: str, ids: Sequence[str]) -> int:
        letters = await self._wanted(topic, ids)
        for letter in letters:
            await self._entomb(topic, letter)
        return len(letters)

    async def _wanted(self, topic: str, ids: Sequence[str]) -> list[DeadLetter]:
        if not ids or not await self._structure.partitions(_grave(topic)):
            return []
        found = await asyncio.to_thread(self._read, topic, frozenset(ids))
        return [letter for letter in found.values() if letter is not None]

    async def _entomb(self, topic: str, letter: DeadLetter) -> None:
        await self._publisher.place(Letter(_grave(topic), letter.id.encode(), None, []))

    def _page(self, topic: str, limit: int, after: str) -> list[DeadLetter]:
        """Whether a letter is dealt with is said behind it, perhaps at the very end: so a walk begins with a look at
        all, of which only the places are kept; its further pages read themselves, and what is new."""
        places = self._places.get(topic)
        if not after or places is None or after not in places.of:
            places = self._places[topic] = _Places()
        with places.lock:
            for record in self._reader.all_of(_grave(topic), places.end):
                places.see(record)
        begin = places.of.get(after, -1) + 1 if after else 0
        letters: list[DeadLetter] = []
        if not places.any_left:
            return letters
        with closing(self._reader.all_of(_grave(topic), begin)) as records:
            for record in records:
                if places.holds(record):
                    letters.append(_letter(_id(record), topic, record))
                    if len(letters) == limit:
                        break
        return letters

    def _read(self, topic: str, only: Collection[str]) -> dict[str, DeadLetter | None]:
        """By id; None: it is dealt with."""
        found: dict[str, DeadLetter | None] = {}
        for record in self._reader.all_of(_grave(topic)):
            if (id := _id(record)) in only:
                found[id] = None if record.value() is None else _letter(id, topic, record)
        return found


class _Places:
    """Where the letters of a topic are, without what is in them."""

    def __init__(self) -> None:
        self.of: dict[str, int] = {}
        """Also of those that are dealt with: a page may go on behind one."""
        self._dealt: set[str] = set()
        self.end = 0
        self.lock = Lock()

    @property
    def any_left(self) -> bool:
        return len(self.of) > len(self._dealt)

    def see(self, record: Record) -> None:
        id, self.end = _id(record), (record.offset() or 0) + 1
        if record.value() is not None:
            self.of[id] = self.end - 1
            self._dealt.discard(id)
        elif id in self.of:
            self._dealt.add(id)

    def holds(self, record: Record) -> bool:
        """Of a letter that was buried twice, the later one counts."""
        return self.of.get(id := _id(record)) == record.offset() and id not in self._dealt


def _id(record: Record) -> str:
    return (record.key() or b"").decode(errors="replace")


def _letter(id: str, topic: str, record: Record) -> DeadLetter:
    headers = headers_of(record)
    own = {name.removeprefix(OWN): value for name, value in headers.items() if name.startswith(OWN)}
    return DeadLetter(
        id=id,
        topic=topic,
        subscription=own.get("subscription", ""),
        reason=own.get("reason", ""),
        attempts=int(own["attempts"]) if own.get("attempts", "").isdigit() else 1,
        died_at=_time(own.get("died_at", "")),
        attributes=attributes_of(headers),
        data=record.value() or b"",
    )


def _time(text: str) -> datetime:
    try:
        return parse_rfc3339(text)
    except ValueError:
        return _LONG_AGO


def _encoded(texts: Mapping[str, str]) -> list[tuple[str, bytes]]:
    return [(name, value.encode(errors="replace")) for name, value in texts.items()]


def _grave(topic: str) -> str:
    return f"{topic}.dlq"
