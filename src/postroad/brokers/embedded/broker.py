"""The broker itself: each call is one transaction, done elsewhere in this package."""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from postroad.brokers.base import (
    Change,
    DeadLetter,
    Depth,
    Features,
    Flow,
    Outcome,
    Subscription,
    Topology,
    Unavailable,
    checked_moment,
)
from postroad.brokers.embedded import publish, replay, structure
from postroad.brokers.embedded.database import Database, of_topics
from postroad.brokers.embedded.leases import Leases
from postroad.brokers.embedded.purge import Purger
from postroad.brokers.embedded.receiver import EmbeddedReceiver, Settler
from postroad.clock import Clock
from postroad.errors import BrokerUnavailable
from postroad.message import Message


class EmbeddedBroker:
    features = Features(
        ordered_runs=True,
        delay=True,
        seek=True,
        attempts=True,
        max_message_bytes=publish.MAX_MESSAGE_BYTES,
        # Workers share a machine with the file: what is silent for so long is dead, and not far away.
        ack_deadline=10.0,
    )

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._database = Database(path, clock)
        self._settler = Settler(self._database)
        self._leases = Leases(self._database)
        self._purger = Purger()
        self._topics: dict[str, int] = {}
        self._receivers: list[EmbeddedReceiver] = []

    @property
    def address(self) -> str:
        return f"embedded:{self._database.path or ''}"

    async def send(self, batch: Sequence[Message]) -> Sequence[Outcome]:
        try:
            topics = await self._topic_ids({message.topic for message in batch})
            outcomes, letters = publish.judge(batch, topics)
            if letters:
                concerned = of_topics({letter.topic for letter in letters})
                await self._database.write(partial(self._store, letters), wakes=concerned)
        except BrokerUnavailable as error:
            return [Unavailable(str(error))] * len(batch)
        return outcomes

    async def subscribe(self, subscription: str, flow: Flow) -> EmbeddedReceiver:
        found = await self._database.read(partial(structure.find, name=subscription))
        receiver = EmbeddedReceiver(self._database, self._settler, self._leases, found, flow)
        await receiver.register()
        self._receivers = [*(other for other in self._receivers if not other.closed), receiver]
        return receiver

    async def plan(self, topology: Topology) -> Sequence[Change]:
        return await self._database.read(partial(structure.plan, wanted=topology))

    async def apply(self, topology: Topology) -> Sequence[Change]:
        return await self._database.write(partial(structure.apply, wanted=topology))

    async def subscriptions(self) -> Sequence[Subscription]:
        return await self._database.read(structure.subscriptions)

    async def depth(self, subscription: str) -> Depth:
        return await self._database.read(partial(structure.depth, name=subscription))

    async def estimate(self, subscription: str) -> Depth:
        return await self._database.read(partial(structure.depth, name=subscription, statement="estimate"))

    async def seek(self, subscription: str, to: datetime | str) -> int:
        return await self._database.write(partial(replay.seek, name=subscription, to=checked_moment(to)))

    async def drop(self, subscription: str) -> None:
        await self._database.write(partial(structure.drop, name=subscription))

    async def snapshot(self, subscription: str, name: str) -> None:
        await self._database.write(partial(replay.take_snapshot, subscription=subscription, name=name))

    async def dead_letters(self, topic: str, limit: int = 100, after: str = "") -> Sequence[DeadLetter]:
        return await self._database.read(partial(replay.dead_letters, topic=topic, limit=limit, after=after))

    async def dead_letter_count(self, topic: str) -> int:
        return await self._database.read(partial(replay.dead_letter_count, topic=topic))

    async def rates(self, subscription: str) -> Mapping[str, float]:
        return {}

    async def revive(self, topic: str, ids: Sequence[str]) -> int:
        return await self._database.write(partial(replay.revive, topic=topic, ids=ids))

    async def discard(self, topic: str, ids: Sequence[str]) -> int:
        return await self._database.write(partial(replay.discard, topic=topic, ids=ids))

    async def extend_leases(self) -> int:
        """What the lease thread does by itself; for tests that own the clock."""
        return await self._leases.extend()

    async def purge(self) -> int:
        """One step of what every `send` does now and then; the number of messages removed."""
        return await self._database.write(self._purger.step)

    async def aclose(self) -> None:
        for receiver in self._receivers:
            await receiver.aclose()
        await self._settler.aclose()
        await self._leases.aclose()
        await self._database.aclose()

    async def _topic_ids(self, names: set[str]) -> dict[str, int]:
        """Topics are never removed, so what has once been found stays true."""
        if unknown := names - self._topics.keys():
            self._topics |= await self._database.read(partial(publish.topic_ids, names=list(unknown)))
        return self._topics

    def _store(self, letters: Sequence[publish.Letter], connection: sqlite3.Connection, now: int) -> None:
        publish.store(connection, now, letters=letters)
        self._purger.step_if_due(connection, now)
