"""The broker itself: questions go to the administrator's client, messages through the producer, groups to receivers."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches

from postroad.brokers.base import (
    Change,
    Concern,
    DeadLetter,
    Depth,
    Features,
    Flow,
    Outcome,
    Refused,
    Subscription,
    Topology,
    Unavailable,
    checked_moment,
)
from postroad.brokers.kafka.address import Address
from postroad.brokers.kafka.client import Client
from postroad.brokers.kafka.dead import Graveyard
from postroad.brokers.kafka.known import KnownTopics
from postroad.brokers.kafka.publisher import Addressed, Publisher
from postroad.brokers.kafka.reader import Reader
from postroad.brokers.kafka.receiver import KafkaReceiver
from postroad.brokers.kafka.record import MAX_MESSAGE_BYTES, write
from postroad.brokers.kafka.structure import SNAPSHOT, Structure, topic_of
from postroad.clock import Clock
from postroad.errors import ConfigurationError, OperationRefused, PostroadError
from postroad.message import Message


class KafkaBroker:
    features = Features(ordered_runs=True, delay=False, seek=True, attempts=False, max_message_bytes=MAX_MESSAGE_BYTES)

    def __init__(self, address: Address, clock: Clock) -> None:
        self._address, self._clock = address, clock
        self._client = Client(address)
        self._publisher, self._reader = Publisher(address), Reader(address)
        self._structure = Structure(self._client, self._reader, address)
        self._known = KnownTopics(self._structure)
        self._graveyard = Graveyard(self._structure, self._publisher, self._reader, clock)
        self._receivers: list[KafkaReceiver] = []

    @property
    def address(self) -> str:
        return self._address.told

    # -- sending -----------------------------------------------------------------------------------------

    async def send(self, batch: Sequence[Message]) -> Sequence[Outcome]:
        if not batch:
            return []
        try:
            obstacles = {topic: await self._known.obstacle(topic) for topic in dict.fromkeys(m.topic for m in batch)}
            outcomes = await self._publisher.send(
                [Addressed(_lane(message), obstacles[message.topic] or write(message)) for message in batch]
            )
        except PostroadError as error:
            return [Unavailable(str(error))] * len(batch)
        for message, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Refused | Unavailable):
                self._known.forget(message.topic)
        return outcomes

    # -- receiving ---------------------------------------------------------------------------------------

    async def subscribe(self, subscription: str, flow: Flow) -> KafkaReceiver:
        topic = topic_of(subscription)
        await self._structure.known_positions(subscription)
        if objection := self._structure.objection(topic, await self._structure.partitions(topic)):
            raise ConfigurationError(objection)
        receiver = KafkaReceiver(self._address, subscription, flow, self._clock, self._graveyard.bury)
        self._receivers = [*(other for other in self._receivers if not other.closed), receiver]
        return receiver

    # -- looking after it --------------------------------------------------------------------------------

    async def plan(self, topology: Topology) -> Sequence[Change]:
        return await self._structure.plan(topology)

    async def apply(self, topology: Topology) -> Sequence[Change]:
        return await self._structure.apply(topology)

    async def concerns(self, topology: Topology) -> Sequence[Concern]:
        return await self._structure.concerns(topology)

    async def subscriptions(self) -> Sequence[Subscription]:
        return await self._structure.subscriptions()

    async def depth(self, subscription: str) -> Depth:
        """The lag: all from the first unsettled message on, although some of it may be settled already."""
        topic, positions = topic_of(subscription), await self._positions(subscription)
        ends = await self._structure.ends(topic, positions)
        begins = {number: max(ends[number][0], offset) for number, offset in positions.items()}
        behind = {number: begin for number, begin in begins.items() if begin < ends[number][1]}
        messages = sum(ends[number][1] - begin for number, begin in behind.items())
        oldest = await asyncio.to_thread(self._reader.oldest, topic, behind) if behind else None
        return Depth(messages, 0, oldest)

    async def seek(self, subscription: str, to: datetime | str) -> int:
        """Never forward: what is not settled stays unsettled."""
        to = checked_moment(to)
        topic, positions = topic_of(subscription), await self._positions(subscription)
        targets = await self._targets(subscription, topic, positions, to)
        targets = {number: min(position, targets.get(number, position)) for number, position in positions.items()}
        mine = self._mine(subscription)
        others = await self._structure.members(subscription) - {await receiver.identity() for receiver in mine}
        if others:
            raise OperationRefused(
                f"Subscription {subscription!r} has {len(others)} active workers elsewhere, and Kafka lets nobody but "
                "them move it. Stop them and try again."
            )
        if mine:
            return await self._set_back(mine, targets)
        await self._structure.set_positions(subscription, targets)
        return sum(positions[number] - target for number, target in targets.items())

    async def snapshot(self, subscription: str, name: str) -> None:
        """A group without members, at the same place. Kafka keeps it as long as the messages: seven days by default."""
        positions = await self._positions(subscription)
        await self._structure.set_positions(f"{subscription}{SNAPSHOT}{name}", positions)

    async def dead_letters(self, topic: str, limit: int = 100, after: str = "") -> Sequence[DeadLetter]:
        return await self._graveyard.letters(topic, limit, after)

    async def revive(self, topic: str, ids: Sequence[str]) -> int:
        return await self._graveyard.revive(topic, ids)

    async def discard(self, topic: str, ids: Sequence[str]) -> int:
        return await self._graveyard.discard(topic, ids)

    async def aclose(self) -> None:
        await asyncio.gather(*(receiver.aclose() for receiver in self._receivers))
        await self._publisher.aclose()
        await self._client.aclose()

    def _mine(self, subscription: str) -> list[KafkaReceiver]:
        return [r for r in self._receivers if r.subscription == subscription and not r.closed]

    async def _positions(self, subscription: str) -> dict[int, int]:
        """What was settled here a moment ago counts as settled, although it may not be committed yet."""
        positions = await self._structure.known_positions(subscription)
        for receiver in self._mine(subscription):
            positions |= {number: offset for number, offset in receiver.positions().items() if offset >= 0}
        return positions

    async def _targets(
        self, subscription: str, topic: str, positions: dict[int, int], to: datetime | str
    ) -> dict[int, int]:
        if isinstance(to, str):
            if found := await self._structure.positions(f"{subscription}{SNAPSHOT}{to}"):
                return found
            raise ConfigurationError(await self._no_snapshot(subscription, to))
        found = await asyncio.to_thread(self._reader.at, topic, positions, to)
        return {number: offset for number, offset in found.items() if offset >= 0}

    async def _no_snapshot(self, subscription: str, name: str) -> str:
        near = get_close_matches(name, await self._structure.snapshots(subscription), n=1)
        cure = f"Did you mean {near[0]!r}?" if near else "Take one first."
        return f"Subscription {subscription!r} has no snapshot {name!r}. {cure}"

    async def _set_back(self, mine: Sequence[KafkaReceiver], targets: dict[int, int]) -> int:
        held = [number for receiver in mine for number in receiver.positions()]
        if sorted(held) != sorted(targets):
            raise OperationRefused(
                f"The workers of subscription {mine[0].subscription!r} are just sharing out its partitions. "
                "Try again in a moment."
            )
        return sum([await receiver.set_back(targets) for receiver in mine])


def _lane(message: Message) -> tuple[str, str] | None:
    return (message.topic, message.wire_key) if message.wire_key else None
