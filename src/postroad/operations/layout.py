"""Service → topics → groups → handlers, as the code declares them and the broker knows them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from postroad.brokers.base import Subscription
from postroad.errors import BrokerError, SchemaMissing
from postroad.events import declared, declared_names

if TYPE_CHECKING:
    from postroad.app import Postroad


_NEWEST: Final = 10_000
"""Events whose topics are looked at: an outbox may be long."""


@dataclass(frozen=True, slots=True)
class Reader:
    topic: str
    group: str
    here: bool
    """Whether it is a group of this service; of others only the broker tells."""


@dataclass(frozen=True, slots=True)
class Reaction:
    group: str
    handler: str
    type: str


@dataclass(frozen=True, slots=True)
class Layout:
    service: str
    topics: Mapping[str, Sequence[str]]
    """Each with the types that this service declares for it."""
    sends: Sequence[str]
    """The topics of what this service has written last. A type that it declares may be one that it only reads."""
    readers: Sequence[Reader]
    reactions: Sequence[Reaction]


async def layout(road: "Postroad") -> Layout:
    reads = {(s.topic, s.name.removeprefix(f"{s.topic}.")) for s in await _subscriptions(road)}
    sent = await _sent(road)
    topics = sorted({*road.topology.topics, *sent, *(topic for topic, _ in reads)})
    groups = sorted({group for _, group in reads})
    return Layout(
        road.source,
        {topic: _types(topic) for topic in topics},
        sent,
        [Reader(topic, group, group in road.groups) for topic, group in sorted(reads)],
        [Reaction(group, one.name, one.event_type.name) for group in groups for one in road.registry.handlers(group)],
    )


async def _sent(road: "Postroad") -> Sequence[str]:
    try:
        found = [
            row.topic or outbox.topic
            for outbox in road.outboxes
            for row in (await road.store.read("outbox_topics", outbox, newest=_NEWEST)).rows
        ]
    except SchemaMissing:
        return ()  # a service that is not set up yet has sent nothing, and can be drawn all the same
    return sorted(set(filter(None, found)))


async def _subscriptions(road: "Postroad") -> Sequence[Subscription]:
    try:
        return [*road.topology.subscriptions, *await road.broker.subscriptions()]
    except BrokerError:
        # Those of other services are not known then; our own are all the same.
        return road.topology.subscriptions


def _types(topic: str) -> Sequence[str]:
    return [name for name in declared_names() if any(kind.topic == topic for kind in declared(name).values())]
