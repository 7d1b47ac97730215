"""What a broker is to Postroad: batch in, outcome per message out; deliveries in, one verdict each.

An adapter is one file that defines `connect(url, *, clock) -> Broker`, found by its URL's scheme.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

from postroad.errors import ConfigurationError, UnsupportedByBroker
from postroad.message import Message


@dataclass(frozen=True, slots=True)
class Features:
    """What the broker can do. The contract suite tests what is declared and that the rest is refused."""

    ordered_runs: bool
    """Of several messages of one key in one `send`, none is taken after one that was refused."""
    delay: bool
    """A message with `deliver_at` stays with the broker until then; else it stays in the outbox."""
    seek: bool
    """A subscription can be set back to a time or a snapshot."""
    attempts: bool
    """`Delivery.attempt` counts; else it is always 1 and the inbox counts."""
    max_message_bytes: int
    """Payload and attributes together."""
    keeps_place: float = math.inf
    """Seconds: what is given back for less returns before the later ones of its key, even if its worker dies meanwhile.
    A longer wait may lose its place then, unless a record holds the key back."""
    ack_deadline: float = 60.0
    """Seconds; of a subscription whose group asks for no other."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The broker has it, durably."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker will not take this message: its own fault, costs an attempt."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The broker could not be asked, or did not answer: nobody's fault, costs no attempt."""

    reason: str


Outcome = Confirmed | Refused | Unavailable


@dataclass(frozen=True, slots=True)
class Flow:
    """How much may be delivered and not yet settled."""

    messages: int = 1_000
    bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Subscription:
    """One consumer group's place in one topic. The defaults are the conventions' figures."""

    name: str
    topic: str
    ack_deadline: float = 60.0
    retention: float = 7 * 86_400.0
    max_attempts: int = 0
    """Deliveries after which the broker itself dead-letters; 0: never, the subscriber decides."""

    @property
    def dead_letter_topic(self) -> str:
        return f"{self.topic}.dlq"


@dataclass(frozen=True, slots=True)
class Schema:
    """What the broker itself demands of the messages of a topic."""

    topic: str
    name: str
    kind: str
    """avro, for payloads in JSON; or protobuf, for binary ones"""
    definition: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Topology:
    topics: tuple[str, ...] = ()
    subscriptions: tuple[Subscription, ...] = ()
    schemas: tuple[Schema, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """One step of a plan: what will be created or altered."""

    action: str
    """create or update"""
    kind: str
    """topic, subscription or schema"""
    name: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Depth:
    """How much of a subscription is not settled: waiting, delayed by a retry, or being handled."""

    messages: int
    delayed: int
    """Those of them whose `deliver_at` is still to come."""
    oldest: datetime | None
    """When the oldest of the others was published (or, for a delayed message, became due)."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    id: str
    """The broker's own handle, for retry and discard."""
    topic: str
    """The topic it came from, without `.dlq`."""
    subscription: str
    reason: str
    attempts: int
    died_at: datetime
    attributes: Mapping[str, str] = field(repr=False)
    data: bytes = field(repr=False)


class Delivery(Protocol):
    """One message in a consumer's hands. Exactly one of ack, retry, dead; a second verdict does nothing."""

    @property
    def topic(self) -> str: ...
    @property
    def subscription(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def attributes(self) -> Mapping[str, str]: ...
    @property
    def data(self) -> bytes: ...
    @property
    def attempt(self) -> int: ...

    async def ack(self) -> None: ...

    async def retry(self, after: float) -> None:
        """Give it back; it returns after `after` seconds, and later ones of its key not before it."""

    async def dead(self, reason: str) -> None:
        """Move it to the dead letters of its topic."""


class Receiver(Protocol):
    async def receive(self) -> Sequence[Delivery]:
        """Waits until something is there and the flow allows it. Within a key, in order.

        Leases of unsettled deliveries are extended by the adapter, off the event loop.
        """

    async def aclose(self) -> None:
        """Stops receiving; what is unsettled goes back."""


class Broker(Protocol):
    features: Features

    @property
    def address(self) -> str:
        """Where it is, without secrets."""

    async def send(self, batch: Sequence[Message]) -> Sequence[Outcome]:
        """One outcome per message, in order. Never raises for the transport's or a message's fault."""

    async def subscribe(self, subscription: str, flow: Flow) -> Receiver: ...

    async def plan(self, topology: Topology) -> Sequence[Change]: ...

    async def apply(self, topology: Topology) -> Sequence[Change]:
        """Creates what is missing; idempotent."""

    async def subscriptions(self) -> Sequence[Subscription]:
        """All that exist, as far as the broker can tell their settings."""

    async def depth(self, subscription: str) -> Depth: ...

    async def seek(self, subscription: str, to: datetime | str) -> int | None:
        """Set back to a time or a named snapshot; the number of messages that will come again, if it can be told."""

    async def snapshot(self, subscription: str, name: str) -> None: ...

    async def dead_letters(self, topic: str, limit: int = 100, after: str = "") -> Sequence[DeadLetter]: ...

    async def revive(self, topic: str, ids: Sequence[str]) -> int:
        """Back to the subscription each came from, with its count of attempts at zero."""

    async def discard(self, topic: str, ids: Sequence[str]) -> int: ...

    async def aclose(self) -> None: ...


def checked_moment(to: datetime | str) -> datetime | str:
    """What a subscription is set back to: a time that is the same everywhere, or a snapshot's name."""
    if isinstance(to, datetime) and to.tzinfo is None:
        raise ConfigurationError(f"seek to {to.isoformat()}: a time needs a time zone, such as datetime.now(UTC).")
    if not isinstance(to, datetime | str):
        raise ConfigurationError(f"seek to {to!r}: give a datetime with a time zone, or the name of a snapshot.")
    return to


@runtime_checkable
class Replaying(Broker, Protocol):
    """With `Features.seek`: a subscription of its own for each replay, which goes away afterwards."""

    async def drop(self, subscription: str) -> None:
        """Removes a subscription, with what waits in it."""


@runtime_checkable
class Watched(Protocol):
    """What a broker may tell besides, cheaply enough to be asked every few seconds. Metrics show it where it is."""

    async def dead_letter_count(self, topic: str) -> int | None:
        """None if nobody counts."""

    async def rates(self, subscription: str) -> Mapping[str, float]:
        """Messages per second by the broker's own count: publish, deliver, ack, redeliver; what it knows of them."""


@dataclass(frozen=True, slots=True)
class Concern:
    """What no plan would change, and somebody should know of."""

    about: str
    """bindings, or confirms"""
    cause: str
    cure: str
    command: str = ""


@runtime_checkable
class Examined(Protocol):
    """A broker that can say how it stands beyond what a plan shows: the doctor asks."""

    async def concerns(self, topology: Topology) -> Sequence[Concern]: ...


@runtime_checkable
class Estimated(Protocol):
    """A broker whose count is dear, or left to a monitoring: not to the end, or late, so nothing is decided by it."""

    async def estimate(self, subscription: str) -> Depth | None: ...


async def depth_as_told(broker: Broker, subscription: str) -> Depth | None:
    """For people and metrics: the estimate, or else the depth; None if nobody counts."""
    told = await broker.estimate(subscription) if isinstance(broker, Estimated) else None
    if told is not None:
        return told
    try:
        return await broker.depth(subscription)
    except UnsupportedByBroker:
        return None
