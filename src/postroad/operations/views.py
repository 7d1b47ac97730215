"""Events in other orders than that of the outbox list: of one aggregate, of one chain, by when they are due."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from postroad.operations.outbox import EventId, OutboxEvent, event_of
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable

LAST_VERSION: Final = 2**62


async def aggregate_history(
    store: Store,
    outboxes: Sequence[OutboxTable],
    aggregate_type: str,
    aggregate_id: str,
    *,
    limit: int = 50,
    before: int = LAST_VERSION,
) -> Sequence[OutboxEvent]:
    """Newest first; `before` is the version of the last one of the previous page."""
    found: list[OutboxEvent] = []
    async with store.reading() as connection:
        for outbox in outboxes:
            result = await store.execute(
                connection,
                "aggregate_history",
                outbox=outbox,
                aggregate_type=aggregate_type,
                aggregate_id=aggregate_id,
                before=before,
                limit=limit,
            )
            found += [event_of(store, outbox, row) for row in result.rows]
    return sorted(found, key=lambda event: event.version or 0, reverse=True)[:limit]


async def scheduled(
    store: Store,
    outboxes: Sequence[OutboxTable],
    *,
    limit: int = 50,
    after: tuple[datetime, EventId] | None = None,
) -> Sequence[OutboxEvent]:
    """Delayed events whose time is still to come, the next one first."""
    at, last = after or (store.clock.now(), UUID(int=0))
    found: list[OutboxEvent] = []
    async with store.reading() as connection:
        for outbox in outboxes:
            result = await store.execute(
                connection,
                "outbox_delayed",
                outbox=outbox,
                at=at,
                after=str(last) if outbox.ids == "text" else last,
                limit=limit,
            )
            found += [event_of(store, outbox, row) for row in result.rows]
    return sorted(found, key=lambda event: (event.deliver_at, str(event.id)))[:limit]


def waits_in(event: OutboxEvent) -> str:
    """Where a scheduled event waits for its time: SENT tells a person that it is over."""
    told = {"SENT": "broker", "RETRY": "outbox, retrying", "FAILED": "outbox, parked"}
    return told.get(event.state, "outbox")
