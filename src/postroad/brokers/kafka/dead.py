"""Dead letters: a compacted topic beside each topic. A letter's key is its id; what is dealt with gets a tombstone."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
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
            raise BrokerUnavailable(f"{_grave(delivery.topic)} does not take the letter: {error}. Run apply.") from None

    async def letters(self, topic: str, limit: int, after: str) -> list[DeadLetter]:
        found = await self._found(topic)
        ids = list(found)
        begin = ids.index(after) + 1 if after in found else 0
        left = [letter for letter in (found[id] for id in ids[begin:]) if letter is not None]
        return left[: max(0, limit)]

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
        found = await self._found(topic, frozenset(ids)) if ids else {}
        return [letter for letter in found.values() if letter is not None]

    async def _entomb(self, topic: str, letter: DeadLetter) -> None:
        await self._publisher.place(Letter(_grave(topic), letter.id.encode(), None, []))

    async def _found(self, topic: str, only: Collection[str] = ()) -> dict[str, DeadLetter | None]:
        """By id, in the order in which they came; None: it is dealt with."""
        if not await self._structure.partitions(_grave(topic)):
            return {}
        return await asyncio.to_thread(self._read, topic, only)

    def _read(self, topic: str, only: Collection[str]) -> dict[str, DeadLetter | None]:
        found: dict[str, DeadLetter | None] = {}
        for record in self._reader.all_of(_grave(topic)):
            id = (record.key() or b"").decode(errors="replace")
            if not only or id in only:
                found[id] = None if record.value() is None else _letter(id, topic, record)
        return found


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
