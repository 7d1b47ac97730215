"""What exchanges, queues and routing keys are called, and how queues are declared.

topic          shop.order.events             exchange, of the same name
subscription   shop.order.events.receipts    queue, of the same name, bound with # (everything)
dead letters   shop.order.events.dlq         queue
event type     order.placed, ORDER_PLACED    routing key order.placed
delays         <name>.delay.<seconds>s       queue whose messages go back to <name> after so many seconds
"""

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from postroad.brokers.base import Subscription
from postroad.naming import DEAD_LETTERS

_SHOUTED: Final = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")
_UNLIMITED: Final = 1_000_000_000
_TOLERANCE: Final = 5.0
"""Seconds that a message may come late so that it can use a queue of fixed delay."""


@dataclass(frozen=True, slots=True)
class TopicNames:
    exchange: str = ""
    dead_letter_queue: str = ""
    dead_letter_key: str = ""
    """Binds the dead letters' queue to the exchange; without one they go to the queue directly."""


@dataclass(frozen=True, slots=True)
class SubscriptionNames:
    queue: str = ""
    keys: tuple[str, ...] = ("#",)
    single_active_consumer: bool = True
    """False where others declare the queue too, and without this."""


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """A queue in which the delayed messages of one event type wait, all equally long."""

    topic: str = ""
    queue: str = ""
    key: str = ""
    """Under which the messages go to the queue; they leave it under the event type's own."""
    seconds: float = 900.0


@dataclass(frozen=True, slots=True)
class Layout:
    queue_type: str = "classic"
    single_active_consumer: bool = True
    steps: tuple[float, ...] = (1, 5, 30, 120, 600, 3_600, 86_400)
    """Seconds that a message can wait in one go. Another step means further queues beside the old ones."""
    topics: Mapping[str, TopicNames] = field(default_factory=dict)
    subscriptions: Mapping[str, SubscriptionNames] = field(default_factory=dict)
    delays: Mapping[str, FixedDelay] = field(default_factory=dict)
    """By event type."""

    # -- names -------------------------------------------------------------------------------------------

    def exchange(self, topic: str) -> str:
        return self._topic(topic).exchange or topic

    def topic_of(self, exchange: str) -> str:
        """The topic that has this exchange."""
        return next((topic for topic, names in self.topics.items() if names.exchange == exchange), exchange)

    def queue(self, subscription: str) -> str:
        return self._subscription(subscription).queue or subscription

    def subscription_of(self, queue: str) -> str:
        """The subscription that has this queue."""
        return next((name for name, names in self.subscriptions.items() if names.queue == queue), queue)

    def is_exclusive(self, subscription: str) -> bool:
        """Whether one consumer at a time receives from it."""
        return self.single_active_consumer and self._subscription(subscription).single_active_consumer

    def keys(self, subscription: str) -> tuple[str, ...]:
        return self._subscription(subscription).keys

    def dead_letter_queue(self, topic: str) -> str:
        return self._topic(topic).dead_letter_queue or topic + DEAD_LETTERS

    def dead_letter_route(self, topic: str) -> tuple[str, str]:
        """Exchange and routing key that lead there; the nameless exchange leads to any queue by its name."""
        if key := self._topic(topic).dead_letter_key:
            return self.exchange(topic), key
        return "", self.dead_letter_queue(topic)

    # -- waiting -----------------------------------------------------------------------------------------

    @property
    def shortest_step(self) -> float:
        return self.steps[0]

    def step_for(self, seconds: float) -> float | None:
        """The longest step that does not overshoot; None for a wait that needs no queue."""
        fitting = bisect_right(self.steps, seconds)
        return self.steps[fitting - 1] if fitting else None

    def fixed_delay(self, topic: str, event_type: str, seconds: float) -> FixedDelay | None:
        """Not for one that has waited for its relay already: it would wait the whole time once more."""
        found = self.delays.get(event_type)
        if found is None or found.topic != topic:
            return None
        return found if max(0.0, found.seconds - _TOLERANCE) < seconds <= found.seconds else None

    # -- arguments ---------------------------------------------------------------------------------------

    def queue_arguments(self, subscription: Subscription) -> dict[str, Any]:
        exchange, key = self.dead_letter_route(subscription.topic)
        # We bury by ourselves, with the reason. This is for what the server drops: by a policy, or by hand.
        arguments: dict[str, Any] = {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": key}
        if self.is_exclusive(subscription.name):
            arguments["x-single-active-consumer"] = True
        return arguments | self.type_arguments()

    def delay_arguments(self, seconds: float, exchange: str, routing_key: str | None) -> dict[str, Any]:
        """Where the messages go afterwards; without a routing key they keep their own."""
        arguments: dict[str, Any] = {"x-message-ttl": round(seconds * 1_000), "x-dead-letter-exchange": exchange}
        if routing_key is not None:
            arguments["x-dead-letter-routing-key"] = routing_key
        if self.queue_type == "quorum":
            # Classic queues hand over without waiting for the other queue's word; these wait for it.
            arguments |= {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
        return arguments | self.type_arguments()

    def type_arguments(self) -> dict[str, Any]:
        if self.queue_type == "classic":
            return {}
        # RabbitMQ 4 drops from a quorum queue what has been delivered twenty times, and every worker that stops, every
        # look at the dead letters counts. Attempts are the inbox's business.
        return {"x-queue-type": "quorum", "x-delivery-limit": _UNLIMITED}

    def _topic(self, topic: str) -> TopicNames:
        return self.topics.get(topic, _PLAIN_TOPIC)

    def _subscription(self, subscription: str) -> SubscriptionNames:
        return self.subscriptions.get(subscription, _PLAIN_SUBSCRIPTION)


_PLAIN_TOPIC: Final = TopicNames()
_PLAIN_SUBSCRIPTION: Final = SubscriptionNames()


def routing_key(event_type: str) -> str:
    """`ORDER_STATUS_CHANGED` → `order.status.changed`; other forms stay as they are."""
    return event_type.lower().replace("_", ".") if _SHOUTED.fullmatch(event_type) else event_type


def delay_queue(name: str, step: float) -> str:
    """One queue per time to live, because messages that each have their own would wait for the one at the front."""
    return f"{name}.delay.{step:g}s"
