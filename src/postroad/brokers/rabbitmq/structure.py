"""Exchanges, queues and bindings: what is there, what is missing, what differs."""

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from postroad.brokers.base import Change, Concern, Subscription, Topology
from postroad.brokers.rabbitmq.channel import ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED, Channel, Rejection
from postroad.brokers.rabbitmq.layout import Layout, delay_queue, routing_key
from postroad.brokers.rabbitmq.line import Line
from postroad.errors import BrokerError, ConfigurationError, SubscriptionMissing, UnsupportedByBroker

_LONGEST_NAME: Final = 240
_UNEQUAL: Final = re.compile(
    r"inequivalent arg '(?P<argument>[^']*)' for (?P<kind>\w+) '(?P<name>[^']*)' in vhost '[^']*': (?P<how>.*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Exchange:
    name: str
    type: str = "topic"


@dataclass(frozen=True, slots=True)
class Queue:
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    bindings: tuple[tuple[str, str], ...] = ()
    """Exchange and routing key."""


Bindings = Mapping[str, Collection[tuple[str, str]]]
"""By queue: the exchanges that lead to it, with their routing keys."""


@dataclass(frozen=True, slots=True)
class Count:
    ready: int
    consumers: int


class Structure:
    """Lives in the connections' thread, and uses the line that consumes: it never publishes, so a server that is
    short of memory still answers there."""

    def __init__(self, line: Line, layout: Layout) -> None:
        self._line, self._layout = line, layout
        self._known: set[Exchange | str] = set()
        """Exchanges and, by name, delay queues that were there when last seen."""
        self._delay_queues: set[str] = set()
        """Those that were created from here."""

    async def plan(self, wanted: Topology, bound: Bindings | None) -> list[Change]:
        """`bound` is None where nobody can tell what is bound: to look, AMQP has no words."""
        if wanted.schemas:
            raise UnsupportedByBroker("RabbitMQ", "schemas", "Leave them out, or use Pub/Sub.")
        changes = []
        for topic in _topics(wanted):
            _check_length(f"The exchange of topic {topic!r}", self._layout.exchange(topic))
            exchange_there = await self._exists(Exchange(self._layout.exchange(topic)))
            queues = self._queues_of(topic)
            missing = [queue.name for queue in queues if not await self._exists(queue)]
            lacks = [f"its queue {', '.join(missing)} is missing"] if missing else []
            for queue in queues:
                if queue.name not in missing:
                    lacks += [f"{told} at its queue {queue.name}" for told in _unbound(queue, bound)]
            if not exchange_there:
                changes.append(Change("create", "topic", topic))
            elif lacks:
                changes.append(Change("update", "topic", topic, "; ".join(lacks)))
        for subscription in wanted.subscriptions:
            self._check(subscription)
            queue = self._queue(subscription)
            if not await self._exists(queue):
                changes.append(Change("create", "subscription", subscription.name, f"of topic {subscription.topic}"))
            elif unbound := _unbound(queue, bound):
                changes.append(Change("update", "subscription", subscription.name, "; ".join(unbound)))
        return changes

    async def apply(self, wanted: Topology, bound: Bindings | None) -> list[Change]:
        changes = await self.plan(wanted, bound)
        for topic in _topics(wanted):
            await self._ensure(Exchange(self._layout.exchange(topic)))
        for queue in self._queues(wanted):
            await self._ensure(queue)
        return changes

    def strays(self, wanted: Topology, bound: Bindings) -> list[Concern]:
        """Bindings of our queues that nobody asks for. They stay: somebody else may rely on them."""
        return [
            Concern(
                "bindings",
                f"The queue {queue.name} takes from the exchange {exchange} what has the key {key}, and nobody here "
                "asks for it.",
                "Take the binding away, unless another program put it there for a reason.",
            )
            for queue in self._queues(wanted)
            for exchange, key in sorted({*bound.get(queue.name, ())} - {*queue.bindings})
            if exchange  # the nameless one leads to every queue
        ]

    async def has_topic(self, topic: str) -> bool:
        exchange = Exchange(self._layout.exchange(topic))
        if exchange not in self._known and await self._exists(exchange):
            self._known.add(exchange)
        return exchange in self._known

    def forget(self) -> None:
        """Something that was known turned out to be missing."""
        self._known.clear()

    async def topic_delay(self, topic: str, step: float) -> str:
        """The exchange whose messages come to the topic's after `step` seconds, with their routing keys."""
        exchange = self._layout.exchange(topic)
        name = delay_queue(exchange, step)
        if name not in self._known:
            # An exchange of its own in front, because a message sent straight to a queue has its name for a key.
            await self._declare(Exchange(name, "fanout"))
            await self._declare(Queue(name, self._layout.delay_arguments(step, exchange, None), ((name, ""),)))
            self._known.add(name)
            self._delay_queues.add(name)
        return name

    async def queue_delay(self, subscription: str, step: float) -> str:
        """The queue whose messages come to the subscription's after `step` seconds."""
        queue = self._layout.queue(subscription)
        name = delay_queue(queue, step)
        if name not in self._known:
            await self._declare(Queue(name, self._layout.delay_arguments(step, "", queue)))
            self._known.add(name)
            self._delay_queues.add(name)
        return name

    async def count(self, subscription: str) -> Count:
        found = await self._count(self._layout.queue(subscription))
        if found is None:
            raise SubscriptionMissing(subscription)
        return found

    async def delayed(self, to: str, names: Sequence[str]) -> int:
        """How many are in the delay queues that lead to an exchange or a queue; `names` are those known from outside.

        Not asked for one by one: for each that is missing, the server would log an error.
        """
        ours = {*names, *self._delay_queues}
        return await self._ready([name for name in ours if name.startswith(f"{to}.delay.")])

    async def fixed_delayed(self, topic: str) -> int:
        return await self._ready([one.queue for one in self._layout.delays.values() if one.topic == topic])

    async def _ready(self, queues: Sequence[str]) -> int:
        counts = dict(zip(queues, await asyncio.gather(*(self._count(queue) for queue in queues)), strict=True))
        self._delay_queues -= {queue for queue, count in counts.items() if count is None}
        return sum(count.ready for count in counts.values() if count is not None)

    async def _count(self, queue: str) -> Count | None:
        try:
            async with self._line.briefly() as channel:
                answer = await channel.ask(channel.raw.queue_declare, queue=queue, passive=True)
                return Count(answer.method.message_count, answer.method.consumer_count)
        except Rejection as rejection:
            if rejection.code == NOT_FOUND:
                return None
            raise

    def _check(self, subscription: Subscription) -> None:
        if subscription.max_attempts:
            raise UnsupportedByBroker("RabbitMQ", "limit of attempts", "The inbox counts them: use its back-off.")
        _check_length(f"Subscription {subscription.name!r}", self._layout.queue(subscription.name))

    def _queues(self, wanted: Topology) -> list[Queue]:
        queues = [queue for topic in _topics(wanted) for queue in self._queues_of(topic)]
        return [*queues, *(self._queue(subscription) for subscription in wanted.subscriptions)]

    def _queues_of(self, topic: str) -> list[Queue]:
        """Those that belong to no subscription: of the dead letters, and of event types that always wait."""
        exchange, key = self._layout.dead_letter_route(topic)
        bindings = ((exchange, key),) if exchange else ()
        queues = [Queue(self._layout.dead_letter_queue(topic), self._layout.type_arguments(), bindings)]
        exchange = self._layout.exchange(topic)
        for event_type, delay in self._layout.delays.items():
            if delay.topic == topic:
                arguments = self._layout.delay_arguments(delay.seconds, exchange, routing_key(event_type))
                queues.append(Queue(delay.queue, arguments, ((exchange, delay.key),)))
        return queues

    def _queue(self, subscription: Subscription) -> Queue:
        exchange = self._layout.exchange(subscription.topic)
        return Queue(
            self._layout.queue(subscription.name),
            self._layout.queue_arguments(subscription),
            tuple((exchange, key) for key in self._layout.keys(subscription.name)),
        )

    async def _exists(self, thing: Exchange | Queue) -> bool:
        """Raises ConfigurationError if it is there, but not like this."""
        there = False
        try:
            async with self._line.briefly() as channel:
                await _ask_for(channel, thing, passive=True)
                there = True
                await _ask_for(channel, thing, passive=False)
        except Rejection as rejection:
            # Whoever may not create it cannot compare it either; that it is there is enough then.
            if rejection.code != (ACCESS_REFUSED if there else NOT_FOUND):
                raise _told(rejection, thing) from None
        return there

    async def _ensure(self, thing: Exchange | Queue) -> None:
        if not await self._exists(thing):
            await self._declare(thing)
        elif isinstance(thing, Queue) and thing.bindings:
            # Whether it is bound, only the binding itself can tell.
            try:
                await self._bind(thing)
            except Rejection as rejection:
                if rejection.code != ACCESS_REFUSED:
                    raise _told(rejection, thing) from None

    async def _declare(self, thing: Exchange | Queue) -> None:
        try:
            async with self._line.briefly() as channel:
                await _ask_for(channel, thing, passive=False)
            if isinstance(thing, Queue) and thing.bindings:
                await self._bind(thing)
        except Rejection as rejection:
            raise _told(rejection, thing) from None

    async def _bind(self, queue: Queue) -> None:
        async with self._line.briefly() as channel:
            for exchange, key in queue.bindings:
                await channel.ask(channel.raw.queue_bind, queue=queue.name, exchange=exchange, routing_key=key)


def _unbound(queue: Queue, bound: Bindings | None) -> list[str]:
    if bound is None:
        return []
    return [
        f"binding {key} missing" for exchange, key in queue.bindings if (exchange, key) not in bound.get(queue.name, ())
    ]


def _check_length(what: str, name: str) -> None:
    if (length := len(name.encode(errors="surrogatepass"))) > _LONGEST_NAME:
        raise ConfigurationError(
            f"{what} has a name that is too long for RabbitMQ, which takes 255 bytes including those of its delay "
            f"queues: use at most {_LONGEST_NAME}, not {length}."
        )


def _topics(topology: Topology) -> Sequence[str]:
    return list(dict.fromkeys([*topology.topics, *(s.topic for s in topology.subscriptions)]))


async def _ask_for(channel: Channel, thing: Exchange | Queue, *, passive: bool) -> None:
    if isinstance(thing, Exchange):
        declare: dict[str, Any] = {} if passive else {"exchange_type": thing.type, "durable": True}
        await channel.ask(channel.raw.exchange_declare, exchange=thing.name, passive=passive, **declare)
    else:
        declare = {} if passive else {"durable": True, "arguments": dict(thing.arguments)}
        await channel.ask(channel.raw.queue_declare, queue=thing.name, passive=passive, **declare)


def _told(rejection: Rejection, thing: Exchange | Queue) -> BrokerError | ConfigurationError:
    what = f"{type(thing).__name__} {thing.name!r}"
    if rejection.code == PRECONDITION_FAILED:
        if unequal := _UNEQUAL.search(rejection.text):
            return ConfigurationError(
                f"{what} is there already, but differs in argument {unequal['argument']!r}: {unequal['how'].strip()}. "
                "Remove it, if nothing of value is in it, or use the settings it was created with."
            )
        return ConfigurationError(f"{what} cannot be created like this: {rejection.text}.")
    if rejection.code == ACCESS_REFUSED:
        return ConfigurationError(f"{what} may not be created or used by this user: {rejection.text}.")
    return rejection
