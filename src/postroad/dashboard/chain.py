"""One chain of events: what was written under one correlation id, and what caused what."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from postroad.operations.outbox import OutboxEvent, event_of
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable

MOST: Final = 500


@dataclass(frozen=True, slots=True)
class Link:
    event: OutboxEvent
    causation_id: str
    depth: int
    """0: nothing in the chain caused it."""
    cause: int | None
    """The place of its cause in the chain."""
    after: float
    """Seconds since the chain began."""


async def chain_of(store: Store, outboxes: Sequence[OutboxTable], correlation_id: str) -> Sequence[Link]:
    """Causes before effects, each with its own effects right behind it; at most the first 500 events."""
    found: list[tuple[OutboxEvent, str]] = []
    async with store.reading() as connection:
        for outbox in outboxes:
            result = await store.execute(
                connection, "outbox_chain", outbox=outbox, correlation_id=correlation_id, limit=MOST
            )
            found += [(event_of(store, outbox, row), row.causation_id or "") for row in result.rows]
    return ordered(sorted(found, key=lambda one: (one[0].occurred_at, str(one[0].id)))[:MOST])


def ordered(events: Sequence[tuple[OutboxEvent, str]]) -> Sequence[Link]:
    known = {str(event.id) for event, _ in events}
    effects: dict[str, list[tuple[OutboxEvent, str]]] = {}
    for event, cause in events:
        effects.setdefault(cause if cause in known and cause != str(event.id) else "", []).append((event, cause))
    links: list[Link] = []
    # Not recursive: a chain may be longer than Python's stack is deep.
    waiting = [(event, cause, 0, None) for event, cause in reversed(effects.pop("", []))]
    while waiting or effects:
        if not waiting:
            # Only a ring is left, which other programs' ids could make: it is cut where it began.
            waiting = [(event, cause, 0, None) for event, cause in effects.pop(next(iter(effects)))]
        event, cause, depth, place = waiting.pop()
        after = (event.occurred_at - events[0][0].occurred_at).total_seconds()
        links.append(Link(event, cause, depth, place, after))
        here = len(links) - 1
        waiting += [(e, c, depth + 1, here) for e, c in reversed(effects.pop(str(event.id), []))]  # type: ignore[misc]
    return links
