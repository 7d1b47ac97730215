"""Domain events: what has happened to each aggregate, kept for good, beside the outbox that sends it on.

    events = await road.events.stream("session", "s-1")
    session, version = await road.events.load(Session, "session", "s-1")

An aggregate is a plain class with one method, `evolve(event)`, that returns what it is after the event.
"""

from postroad.eventstore.record import DomainEvent
from postroad.eventstore.source import EventStoreSource
from postroad.eventstore.store import EventStore

__all__ = ["DomainEvent", "EventStore", "EventStoreSource"]
