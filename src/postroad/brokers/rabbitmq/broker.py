"""The broker itself: what is asked on the caller's loop is done in the connections' thread."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from uuid import NAMESPACE_OID, uuid5

from postroad.brokers._thread import LoopThread
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
)
from postroad.brokers.rabbitmq.address import Address
from postroad.brokers.rabbitmq.channel import NOT_FOUND, Rejection
from postroad.brokers.rabbitmq.consumer import Consumer
from postroad.brokers.rabbitmq.dead import Graveyard, buried
from postroad.brokers.rabbitmq.layout import routing_key
from postroad.brokers.rabbitmq.layout_file import read_layout
from postroad.brokers.rabbitmq.letter import MAX_MESSAGE_BYTES, Letter, is_short, properties, write
from postroad.brokers.rabbitmq.line import Line
from postroad.brokers.rabbitmq.management import Management, unconfirmed
from postroad.brokers.rabbitmq.publisher import QUEUES, Addressed, Publisher
from postroad.brokers.rabbitmq.receiver import RabbitDelivery, RabbitReceiver, Terms
from postroad.brokers.rabbitmq.structure import Bindings, Count, Structure
from postroad.clock import Clock
from postroad.errors import (
    BrokerError,
    BrokerUnavailable,
    ConfigurationError,
    PostroadError,
    SubscriptionMissing,
    UnsupportedByBroker,
)
from postroad.message import Message

_NO_SEEK: Final = "A queue forgets what was acknowledged: let the owner publish it again, or use another broker."

T = TypeVar("T")

log = logging.getLogger("postroad.rabbitmq")


class RabbitBroker:
    def __init__(self, address: Address, clock: Clock) -> None:
        self._address, self._clock = address, clock
        self.layout = read_layout(
            address.layout, queue_type=address.queue_type, single_active_consumer=address.single_active_consumer
        )
        self.features = Features(
            ordered_runs=True,
            delay=True,
            seek=False,
            attempts=False,
            max_message_bytes=MAX_MESSAGE_BYTES,
            keeps_place=self.layout.shortest_step,
        )
        self._thread = LoopThread("postroad-rabbitmq")
        self._publishing, self._consuming = Line(address, "publish"), Line(address, "consume")
        self._publisher = Publisher(self._publishing, address.publish_timeout)
        self._structure = Structure(self._consuming, self.layout)
        self._graveyard = Graveyard(self._consuming, self._publisher, self.layout, clock)
        self._management = Management(address)
        self._receivers: list[RabbitReceiver] = []

    @property
    def address(self) -> str:
        return self._address.told

    # -- sending -----------------------------------------------------------------------------------------

    async def send(self, batch: Sequence[Message]) -> Sequence[Outcome]:
        if not batch:
            return []
        try:
            return await self._thread.run(self._send, batch)
        except PostroadError as error:
            return [Unavailable(str(error))] * len(batch)

    async def _send(self, batch: Sequence[Message]) -> list[Outcome]:
        known = {topic: await self._known(topic) for topic in dict.fromkeys(message.topic for message in batch)}
        now = self._clock.now()
        outcomes = await self._publisher.send(
            [
                self._straight(message, known, now)
                if message.deliver_at is None
                else await self._late(message, known, now)
                for message in batch
            ]
        )
        if self._publisher.had_rejections() or any(isinstance(outcome, Refused) for outcome in outcomes):
            # What was known to be there may have been removed.
            self._structure.forget()
        return outcomes

    async def _known(self, topic: str) -> Refused | Unavailable | None:
        """A message to an exchange that is not there would cost all those on their way with it their answers."""
        if not is_short(self.layout.exchange(topic)):
            return Refused("the topic's name is longer than RabbitMQ takes, or no valid text")
        try:
            there = await self._structure.has_topic(topic)
        except BrokerUnavailable:
            raise  # that concerns them all, and to wait for it once is enough
        except PostroadError as error:
            # An exchange that is not as it should be is for a person to mend, and no other topic's concern.
            return Unavailable(str(error))
        return None if there else Refused(f"topic {topic!r} does not exist. Run: postroad topology apply")

    def _straight(self, message: Message, known: dict[str, Refused | Unavailable | None], now: datetime) -> Addressed:
        lane = (message.topic, message.wire_key) if message.wire_key else None
        if obstacle := known[message.topic]:
            return Addressed(lane, obstacle)
        return Addressed(lane, write(message, self.layout.exchange(message.topic), routing_key(message.type), now))

    async def _late(self, message: Message, known: dict[str, Refused | Unavailable | None], now: datetime) -> Addressed:
        """By way of a queue where it waits. It stands outside its key's order."""
        if obstacle := known[message.topic]:
            return Addressed(None, obstacle)
        try:
            exchange, key = await self._detour(message, now)
        except PostroadError as error:
            # A delay queue that is not as it should be is for a person to mend, and no other message's concern.
            return Addressed(None, Unavailable(str(error)))
        return Addressed(None, write(message, exchange, key, now))

    async def _detour(self, message: Message, now: datetime) -> tuple[str, str]:
        """Exchange and routing key."""
        exchange, key = self.layout.exchange(message.topic), routing_key(message.type)
        wait = 0.0 if message.deliver_at is None else (message.deliver_at - now).total_seconds()
        if fixed := self.layout.fixed_delay(message.topic, message.type, wait):
            return exchange, fixed.key
        step = self.layout.step_for(wait)
        return (exchange, key) if step is None else (await self._structure.topic_delay(message.topic, step), key)

    # -- receiving ---------------------------------------------------------------------------------------

    async def subscribe(self, subscription: str, flow: Flow) -> RabbitReceiver:
        terms = Terms(
            topic=subscription.rpartition(".")[0],
            subscription=subscription,
            flow=flow,
            prefetch=max(1, min(self._address.prefetch, flow.messages)),
            shortest=self.layout.shortest_step,
            exclusive=self.layout.is_exclusive(subscription),
        )
        receiver = RabbitReceiver(self._thread, self._clock, self, terms)
        receiver.consumer = Consumer(self._consuming, self.layout.queue(subscription), terms.prefetch, receiver.tell)
        try:
            await self._thread.run(receiver.consumer.start)
        except BaseException as error:
            # If whoever asked has been cancelled, a consumer without a listener would keep the queue for itself.
            self._thread.spawn(receiver.consumer.aclose)
            if isinstance(error, Rejection) and error.code == NOT_FOUND:
                raise SubscriptionMissing(subscription) from None
            raise
        self._receivers = [*(other for other in self._receivers if not other.closed), receiver]
        return receiver

    async def put_off(self, delivery: RabbitDelivery, wait: float, ticket: str) -> None:
        await self._thread.run(self._put_off, delivery, wait, ticket)

    async def _put_off(self, delivery: RabbitDelivery, wait: float, ticket: str) -> None:
        step = self.layout.step_for(wait) or self.layout.shortest_step
        published = delivery.arrival.published or self._clock.now()
        # Not the moment: it may come back to somebody with another clock.
        left = f"{max(0.0, wait - step):.3f}"
        told = properties(delivery.arrival.attributes, published, ticket=ticket, left=left)
        try:
            queue = await self._structure.queue_delay(delivery.subscription, step)
        except ConfigurationError as error:
            # For a person to mend; until then the message stays in hand.
            raise BrokerUnavailable(str(error)) from None
        await self._place(Letter(QUEUES, queue, told, delivery.data))

    async def bury(self, delivery: RabbitDelivery, reason: str) -> None:
        letter = buried(
            self.layout,
            delivery.topic,
            delivery.subscription,
            reason,
            delivery.arrival.attributes,
            delivery.data,
            # The same each time it is tried: a copy may have arrived without an answer.
            id=uuid5(NAMESPACE_OID, delivery.entry.ticket).hex,
            now=self._clock.now(),
        )
        await self._thread.run(self._place, letter)

    async def _place(self, letter: Letter) -> None:
        try:
            await self._publisher.place(letter)
        except BrokerUnavailable:
            raise
        except BrokerError as error:
            # Somebody removed the queue. The message is still in hand, so there is time to put that right.
            self._structure.forget()
            raise BrokerUnavailable(f"{error}. Run: postroad topology apply") from None

    # -- looking after it --------------------------------------------------------------------------------

    async def plan(self, topology: Topology) -> Sequence[Change]:
        return await self._thread.run(self._structure.plan, topology, await self._bound_if_told())

    async def apply(self, topology: Topology) -> Sequence[Change]:
        return await self._thread.run(self._structure.apply, topology, await self._bound_if_told())

    async def concerns(self, topology: Topology) -> Sequence[Concern]:
        bound = _bound(await asyncio.to_thread(self._management.bindings))
        channels = await asyncio.to_thread(self._management.channels)
        return [*self._structure.strays(topology, bound), *unconfirmed(channels, self._address.user)]

    async def _bound_if_told(self) -> Bindings | None:
        bindings = await self._told(self._management.bindings)
        return None if bindings is None else _bound(bindings)

    async def subscriptions(self) -> Sequence[Subscription]:
        """Those whose queue is bound to their topic's exchange, by name or by the layout."""
        found = {}
        for binding in await asyncio.to_thread(self._management.bindings):
            topic = self.layout.topic_of(binding["source"])
            name = self.layout.subscription_of(binding["destination"])
            group = name.removeprefix(f"{topic}.")
            if binding["source"] and binding["destination_type"] == "queue" and group != name and "." not in group:
                found[name] = Subscription(name, topic)
        return [found[name] for name in sorted(found)]

    async def depth(self, subscription: str) -> Depth:
        topic = subscription.rpartition(".")[0]
        leading_to = self.layout.queue(subscription), self.layout.exchange(topic)
        delays = await self._told(self._management.delay_queues, *leading_to) or []
        count, put_off, delayed = await self._thread.run(self._count, subscription, delays)
        mine = [r for r in self._receivers if r.subscription == subscription and not r.closed]
        for receiver in mine:
            if receiver.consumer is not None:
                await self._thread.run(receiver.consumer.everything_told)
        told = [receiver.unsettled() for receiver in mine]
        here, away = sum(one[0] for one in told), sum(one[1] for one in told)
        oldest = [one[2] for one in told if one[2] is not None]
        if count.ready or count.consumers > len(mine):
            # Only the management API knows what other processes hold, and how old the queue's front is.
            unsettled, front = await self._ask_management(subscription)
            here = max(here, unsettled)
            oldest += [front] if front is not None and count.ready else []
        delayed += max(put_off, away)
        messages = count.ready + here + delayed
        return Depth(messages, delayed, min(oldest, default=None) if messages else None)

    async def _count(self, subscription: str, delays: Sequence[str]) -> tuple[Count, int, int]:
        """What is ready, what was put off by a retry, what is delayed by its sender."""
        topic = subscription.rpartition(".")[0]
        return (
            await self._structure.count(subscription),
            await self._structure.delayed(self.layout.queue(subscription), delays),
            await self._structure.delayed(self.layout.exchange(topic), delays)
            + await self._structure.fixed_delayed(topic),
        )

    async def _ask_management(self, subscription: str) -> tuple[int, datetime | None]:
        """How many are held, and when the first of those waiting was published; as far as can be told."""
        queue = await self._told(self._management.queue, self.layout.queue(subscription)) or {}
        front = queue.get("head_message_timestamp")
        return int(queue.get("messages_unacknowledged", 0)), datetime.fromtimestamp(front, UTC) if front else None

    async def _told(self, ask: Callable[..., T], *arguments: str) -> T | None:
        """What the management API says; nothing if it cannot be asked."""
        try:
            return await asyncio.to_thread(ask, *arguments)
        except PostroadError as error:
            log.debug("%s", error)
            return None

    async def seek(self, subscription: str, to: datetime | str) -> int:
        raise UnsupportedByBroker("RabbitMQ", "seek", _NO_SEEK)

    async def snapshot(self, subscription: str, name: str) -> None:
        raise UnsupportedByBroker("RabbitMQ", "snapshot", _NO_SEEK)

    async def dead_letters(self, topic: str, limit: int = 100, after: str = "") -> Sequence[DeadLetter]:
        return await self._thread.run(self._graveyard.letters, topic, limit, after)

    async def dead_letter_count(self, topic: str) -> int:
        queue = await asyncio.to_thread(self._management.queue, self.layout.dead_letter_queue(topic))
        return int((queue or {}).get("messages", 0))

    async def rates(self, subscription: str) -> Mapping[str, float]:
        queue = await asyncio.to_thread(self._management.queue, self.layout.queue(subscription)) or {}
        stats = queue.get("message_stats", {})
        details = {kind: stats.get(f"{kind}_details", {}) for kind in ("publish", "deliver", "ack", "redeliver")}
        return {kind: float(told.get("rate", 0.0)) for kind, told in details.items()}

    async def revive(self, topic: str, ids: Sequence[str]) -> int:
        return await self._thread.run(self._graveyard.revive, topic, ids)

    async def discard(self, topic: str, ids: Sequence[str]) -> int:
        return await self._thread.run(self._graveyard.discard, topic, ids)

    async def aclose(self) -> None:
        for receiver in self._receivers:
            await receiver.aclose()
        if self._thread.started:
            await self._thread.run(self._hang_up)
        await self._thread.aclose()

    async def _hang_up(self) -> None:
        await self._consuming.aclose()
        await self._publishing.aclose()


def _bound(bindings: Iterable[Mapping[str, Any]]) -> Bindings:
    found: dict[str, set[tuple[str, str]]] = {}
    for one in bindings:
        if one["destination_type"] == "queue":
            found.setdefault(one["destination"], set()).add((one["source"], one["routing_key"]))
    return found
