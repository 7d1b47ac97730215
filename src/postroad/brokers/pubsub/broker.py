"""The broker itself: what is asked on the caller's loop is done in the connection's thread."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

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
from postroad.brokers.pubsub.address import Address, short
from postroad.brokers.pubsub.consumer import Consumer
from postroad.brokers.pubsub.dead import Graveyard, monitor
from postroad.brokers.pubsub.letter import MAX_MESSAGE_BYTES
from postroad.brokers.pubsub.line import Line, connections_thread
from postroad.brokers.pubsub.publisher import Publisher
from postroad.brokers.pubsub.receiver import PubSubDelivery, PubSubReceiver
from postroad.brokers.pubsub.replay import Replay
from postroad.brokers.pubsub.structure import LEAST_DEADLINE, MOST_DEADLINE, Structure
from postroad.clock import Clock
from postroad.errors import PostroadError, SubscriptionMissing
from postroad.message import Message

if TYPE_CHECKING:
    from postroad.brokers.pubsub.monitoring import Monitoring

_SURELY_LEASED: Final = LEAST_DEADLINE / 2
"""Seconds that a lease lasts even if the last try to extend it failed."""


class PubSubBroker:
    features = Features(
        ordered_runs=True,
        delay=False,
        seek=True,
        attempts=False,
        max_message_bytes=MAX_MESSAGE_BYTES,
        keeps_place=_SURELY_LEASED,
    )

    def __init__(self, address: Address, clock: Clock) -> None:
        self._address, self._clock = address, clock
        self._thread = connections_thread()
        self._line = Line(address)
        self._publisher = Publisher(self._line, address)
        self._structure = Structure(self._line, address)
        self._replay = Replay(self._line, self._structure, address)
        self._graveyard = Graveyard(self._line, self._publisher, address, clock)
        self._monitoring: Monitoring | None = None
        self._receivers: list[PubSubReceiver] = []

    @property
    def address(self) -> str:
        return self._address.told

    # -- sending and receiving ---------------------------------------------------------------------------

    async def send(self, batch: Sequence[Message]) -> Sequence[Outcome]:
        if not batch:
            return []
        try:
            return await self._thread.run(self._publisher.send, batch)
        except PostroadError as error:
            return [Unavailable(str(error))] * len(batch)

    async def subscribe(self, subscription: str, flow: Flow) -> PubSubReceiver:
        live = await self._thread.run(self._structure.find, subscription)
        if live is None:
            raise SubscriptionMissing(subscription)
        receiver = PubSubReceiver(self._thread, self._clock, self, short(live.topic), subscription, flow)
        deadline = min(max(live.ack_deadline_seconds, LEAST_DEADLINE), MOST_DEADLINE)
        receiver.consumer = Consumer(self._line, live.name, subscription, deadline, receiver.most, receiver.tell)
        try:
            await self._thread.run(receiver.consumer.start)
        except BaseException:
            # If whoever asked has been cancelled, a consumer without a listener would keep messages from others.
            self._thread.spawn(receiver.consumer.aclose)
            raise
        self._receivers = [*(other for other in self._receivers if not other.closed), receiver]
        return receiver

    async def bury(self, delivery: PubSubDelivery, reason: str) -> None:
        await self._thread.run(self._graveyard.bury, delivery, reason)

    # -- looking after it --------------------------------------------------------------------------------

    async def plan(self, topology: Topology) -> Sequence[Change]:
        return await self._thread.run(self._structure.plan, topology)

    async def apply(self, topology: Topology) -> Sequence[Change]:
        return await self._thread.run(self._structure.apply, topology)

    async def subscriptions(self) -> Sequence[Subscription]:
        return await self._thread.run(self._structure.subscriptions)

    async def drop(self, subscription: str) -> None:
        await self._thread.run(self._structure.drop, subscription)

    async def depth(self, subscription: str) -> Depth:
        if self._address.emulator:
            await self._settled(subscription)
        return await self._thread.run(self._replay.depth, subscription)

    async def estimate(self, subscription: str) -> Depth | None:
        if not self._address.monitoring:
            return None
        if self._monitoring is None:
            # Only who wants it pays for its libraries.
            from postroad.brokers.pubsub.monitoring import Monitoring

            self._monitoring = Monitoring(self._address.project)
        return await asyncio.to_thread(self._monitoring.depth, subscription, self._clock.now())

    async def dead_letter_count(self, topic: str) -> int | None:
        told = await self.estimate(monitor(topic))
        return told.messages if told else None

    async def rates(self, subscription: str) -> Mapping[str, float]:
        return {}

    async def seek(self, subscription: str, to: datetime | str) -> int | None:
        to = checked_moment(to)
        # An acknowledgement that arrived afterwards would take away what is to come again.
        await self._settled(subscription)
        return await self._thread.run(self._replay.seek, subscription, to)

    async def snapshot(self, subscription: str, name: str) -> None:
        await self._settled(subscription)
        await self._thread.run(self._replay.snapshot, subscription, name)

    async def dead_letters(self, topic: str, limit: int = 100, after: str = "") -> Sequence[DeadLetter]:
        return await self._thread.run(self._graveyard.letters, topic, limit, after)

    async def revive(self, topic: str, ids: Sequence[str]) -> int:
        return await self._thread.run(self._graveyard.revive, topic, ids)

    async def discard(self, topic: str, ids: Sequence[str]) -> int:
        return await self._thread.run(self._graveyard.discard, topic, ids)

    async def aclose(self) -> None:
        for receiver in self._receivers:
            await receiver.aclose()
        if self._thread.started:
            await self._thread.run(self._line.aclose)

    async def _settled(self, subscription: str) -> None:
        for receiver in self._receivers:
            if receiver.subscription == subscription:
                await receiver.everything_settled()
