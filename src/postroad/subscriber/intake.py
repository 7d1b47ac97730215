"""From a delivery to something that can be handled, or the reason why it cannot."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from postroad.brokers.base import Delivery
from postroad.clock import Clock
from postroad.codec.upcast import Upcasters
from postroad.errors import PoisonError, UnknownEventType, UnknownVersion
from postroad.events import declared
from postroad.handlers import Handler, Registry
from postroad.inbox import Inbox
from postroad.inbox.record import check_storable
from postroad.message import Message, parse_id
from postroad.subscriber.lanes import Together
from postroad.telemetry.canary import is_canary

_LONGEST: Final = 128


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    delivery: Delivery
    lane: Hashable
    message: Message
    handler: Handler
    event: object

    @property
    def identity(self) -> tuple[UUID, str]:
        """The same in each delivery of one event."""
        return self.message.id, self.message.type

    @property
    def together(self) -> Together | None:
        if self.handler.batch is not None:
            return Together(self.handler.shares or self.handler, self.handler.batch)
        every = self.handler.commit_every
        return Together(every, every) if every > 1 else None


@dataclass(frozen=True, slots=True, eq=False)
class Poison:
    delivery: Delivery
    lane: Hashable
    message: Message | None
    """None when not even an id could be read."""
    error: PoisonError
    together: None = None


@dataclass(frozen=True, slots=True, eq=False)
class Foreign:
    """Of the topic, but never this group's, or in a version that it cannot read while one that it may know follows."""

    delivery: Delivery
    lane: Hashable
    together: None = None


@dataclass(frozen=True, slots=True, eq=False)
class Chirp:
    """A canary has arrived. It goes through the lanes like all others, for it shall tell whether they move."""

    delivery: Delivery
    lane: Hashable
    message: Message
    together: None = None


Item = Ready | Poison | Foreign | Chirp


class Intake:
    def __init__(self, inbox: Inbox, registry: Registry, upcasters: Upcasters, group: str, clock: Clock) -> None:
        self._inbox, self._registry, self._upcasters = inbox, registry, upcasters
        self._group, self._clock = group, clock
        self._known: frozenset[str] | None = None

    async def prepare(self) -> None:
        """Once: what the group has ever handled, with what it handles now."""
        if self._known is None:
            await self._inbox.declare(self._group, self._registry.types(self._group))
            self._known = await self._inbox.known_types(self._group)

    def read(self, delivery: Delivery) -> Item:
        try:
            message = Message.from_wire(delivery.topic, delivery.attributes, delivery.data)
            check_storable(message)
        except PoisonError as error:
            return Poison(delivery, delivery.key or object(), self._remains(delivery), error)
        # A delayed message stands outside its key's order: it is alone in its lane.
        lane: Hashable = message.ordering_key if message.wire_key else object()
        if is_canary(message.type):
            return Chirp(delivery, lane, message)
        handler = self._registry.find(self._group, message)
        if handler is None:
            return self._without_handler(delivery, lane, message)
        try:
            return Ready(delivery, lane, message, handler, self._upcasters.read(message, handler.event_type))
        except PoisonError as error:
            if message.also_as and isinstance(error, UnknownVersion):
                # Its twin in another version gets a verdict in any case; that one is not marked.
                return Foreign(delivery, lane)
            return Poison(delivery, lane, message, error)

    def _without_handler(self, delivery: Delivery, lane: Hashable, message: Message) -> Item:
        if message.type in (self._known or ()):
            reason = f"{message.type} was handled by group {self._group} before, but has no handler here now."
        elif not declared(message.type):
            reason = f"{message.type} is not declared by any @event here."
        else:
            return Foreign(delivery, lane)
        return Poison(
            delivery,
            lane,
            message,
            UnknownEventType(f"{reason} Register a handler, then: postroad dlq retry"),
        )

    def _remains(self, delivery: Delivery) -> Message | None:
        """What can be recorded of a message that cannot be read."""
        try:
            id = parse_id(delivery.attributes["event_id"])
        except (KeyError, ValueError):
            return None
        return Message(
            id=id,
            type=_plain(delivery.attributes.get("event_type", "")) or "unreadable",
            topic=delivery.topic,
            aggregate_type="",
            aggregate_id=_plain(delivery.key),
            version=None,
            occurred_at=self._clock.now(),
            payload=delivery.data,
        )


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:_LONGEST])
