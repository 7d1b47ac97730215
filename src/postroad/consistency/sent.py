"""What was sent, row by row: for all that the database cannot add up or compare by itself.

An adopted outbox has what its writers take for an id; consumers see it as a UUID, made from it if need be. An id that
comes from an `idempotency_key` has no time in it, and a delayed event is seen long after it was sent: both belong to no
minute.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from postroad.consistency.window import slices
from postroad.stores.rows import event_id
from postroad.stores.tables import OutboxTable

if TYPE_CHECKING:
    from postroad.app import Postroad

PAGE: Final = 1_000


class Sent(NamedTuple):
    id: UUID
    """As consumers see it."""
    kept: str
    """As the outbox has it."""
    topic: str
    type: str
    at: datetime
    due: datetime | None
    """When it was to be delivered, if that was not at once."""


def foreign(outbox: OutboxTable) -> bool:
    """Whether others give the ids: not every one need be the UUID that consumers see, and stored as such."""
    return outbox.adopted or outbox.ids == "text"


async def sent(road: "Postroad", outbox: OutboxTable, low: datetime, high: datetime) -> AsyncIterator[list[Sent]]:
    """Page by page in the order of sending: all of a foreign outbox; of our own, those that belong to no minute."""
    for stretch in slices(low, high):
        async for page in _stretch(road, outbox, **stretch):
            yield page


async def _stretch(road: "Postroad", outbox: OutboxTable, low: Any, high: datetime) -> AsyncIterator[list[Sent]]:
    store = road.store
    values: dict[str, Any] = {"every": int(foreign(outbox)), "high": high, "limit": PAGE}
    after: Any = store.adapt(UUID(int=0)) if outbox.ids == "native" else ""
    while True:
        rows = (await store.read("sent_page", outbox, low=low, after=after, **values)).rows
        if rows:
            yield [_sent(road, outbox, row) for row in rows]
        if len(rows) < PAGE:
            return
        low, after = rows[-1].published_at, rows[-1].event_id
        if not isinstance(low, str):
            low = store.time_out(low)


def _sent(road: "Postroad", outbox: OutboxTable, row: Any) -> Sent:
    store = road.store
    id, at = event_id(row.event_id, store, outbox), store.time_out(row.published_at)
    assert at is not None  # it was asked for by that time
    kept = row.event_id if isinstance(row.event_id, str) else str(id)
    return Sent(id, kept, row.topic or outbox.topic, row.event_type, at, store.time_out(row.deliver_at))


async def recorded(road: "Postroad", group: str, ids: Sequence[UUID]) -> set[UUID]:
    """Those that a group here has a record of."""
    found: set[UUID] = set()
    for first in range(0, len(ids), PAGE):
        some = list(ids[first : first + PAGE])
        rows = (await road.store.read("inbox_of_events", group=group, ids=some)).rows
        found |= {road.store.id_out(row.event_id) for row in rows}
    return found


async def heard_since(road: "Postroad") -> Mapping[str, Mapping[str, datetime]]:
    """Per group and type that this code has a handler for, from when on it has been known to."""
    heard: dict[str, dict[str, datetime]] = {}
    for row in (await road.store.read("ledger_begun")).rows:
        seen = road.store.time_out(row.first_seen)
        assert seen is not None  # the column is NOT NULL
        if row.consumer_group in road.groups and row.event_type in road.registry.types(row.consumer_group):
            heard.setdefault(row.consumer_group, {})[row.event_type] = seen
    return heard
