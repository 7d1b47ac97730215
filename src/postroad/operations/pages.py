"""The outbox page by page and by search: what moved last comes first, and no page is found by counting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.operations.outbox import STATES, EventId, OutboxEvent, event_id_of, event_of, id_in, outbox_event
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable

_SETTLED: Final = ("SENT", "SKIPPED")
RETRYABLE: Final = ("FAILED", "RETRY")
"""What a person may let be tried again."""
_LISTED: Final[Mapping[str, tuple[str, dict[str, str]]]] = {
    **{state: ("outbox_unsent", {"state": state}) for state in STATES if state not in _SETTLED},
    "SENT": ("outbox_sent", {}),
    "SKIPPED": ("outbox_skipped", {}),
}
_EARLIEST: Final = datetime(1970, 1, 2, tzinfo=UTC)
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC)
_AFTER_ALL: Final = UUID(int=2**128 - 1)
_BEFORE_ALL: Final = UUID(int=0)
_AT_ONCE: Final = 20_000
"""Ids only; a page this long is worth its walk through the index."""
_MANY: Final = 2_000
_WINDOW: Final = 20_000
"""Sent events that one search looks at."""


Place = tuple[datetime, EventId]
"""Where an event stands in the pages."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which events; what is empty does not narrow."""

    state: str = ""
    type: str = ""
    key: str = ""
    text: str = ""
    """Part of the type, the aggregate's id, the error or, with `payloads`, the payload as it is stored."""
    since: datetime | None = None
    until: datetime | None = None
    payloads: bool = True

    @property
    def rare(self) -> bool:
        """Whether what is wanted may be hard to find."""
        return bool(self.type or self.key or self.text)


@dataclass(frozen=True, slots=True)
class Found:
    events: Sequence[OutboxEvent]
    next: Place | None
    """From where the next look goes on; None: this was all."""


async def outbox_page(
    store: Store,
    outboxes: Sequence[OutboxTable],
    *,
    state: str = "",
    type: str = "",
    key: str = "",
    limit: int = 50,
    after: EventId | None = None,
) -> Sequence[OutboxEvent]:
    """`after` is the last one of the previous page; OperationRefused if it has gone since.

    `key` is an aggregate's id, or its type and id as in `order/42`.
    """
    place = await place_of_id(store, outboxes, after) if after is not None else None
    return await matching(store, outboxes, Filter(state, type, key), limit=limit, after=place)


async def place_of_id(store: Store, outboxes: Sequence[OutboxTable], id: EventId) -> Place:
    """Raises OperationRefused if there is no such event any more."""
    return place_of((await outbox_event(store, outboxes, id)).event)


async def matching(
    store: Store, outboxes: Sequence[OutboxTable], wanted: Filter, *, limit: int = 50, after: Place | None = None
) -> Sequence[OutboxEvent]:
    """`after` is the place of the last one of the previous page, whatever has become of it since."""
    found: list[OutboxEvent] = []
    while True:
        look = await search(store, outboxes, wanted, limit=limit - len(found), after=after)
        found += look.events
        if look.next is None or len(found) >= limit:
            return found
        after = look.next


async def search(
    store: Store, outboxes: Sequence[OutboxTable], wanted: Filter, *, limit: int = 50, after: Place | None = None
) -> Found:
    """From all the outboxes, what moved last first: by the time of sending or skipping, else by the time at which
    it happened. A search for something rare ends after so many sent events; the next look goes on from there.
    """
    place = after or ((wanted.until, _BEFORE_ALL) if wanted.until else None)
    found: list[OutboxEvent] = []
    edges: list[Place] = []
    async with store.reading() as connection:
        for outbox in outboxes:
            values = _bound(outbox, wanted, place, limit + 1)
            edge = await _edge(store, connection, outbox, values) if wanted.rare else None
            if edge is not None:
                edges.append(edge)
            for statement, more in await _statements(store, connection, outbox, wanted):
                bound = values | more
                if statement == "outbox_sent" and edge is not None:
                    bound["since"] = max(bound["since"], edge[0])
                result = await store.execute(connection, statement, outbox=outbox, **bound)
                found += [event_of(store, outbox, row) for row in result.rows]
    behind = max(edges, key=_rank, default=None)
    if behind is not None:
        # What lies further back has not been looked at everywhere.
        found = [event for event in found if _order(event) >= _rank(behind)]
    found.sort(key=_order, reverse=True)
    return Found(found[:limit], place_of(found[limit - 1]) if len(found) > limit else behind)


async def _statements(
    store: Store, connection: AsyncConnection, outbox: OutboxTable, wanted: Filter
) -> Sequence[tuple[str, dict[str, str]]]:
    """Each state has an index in which its newest are found, however much has been sent."""
    state = wanted.state
    if state in _SETTLED:
        return [_LISTED[state]]
    counted = await store.execute(connection, "outbox_unsent_count", outbox=outbox, now=store.clock.now(), most=_MANY)
    settled = [] if state else [_LISTED[one] for one in _SETTLED]
    if sum(int(row.events) for row in counted.rows) == _MANY:
        # What is rare among them is found sooner by reading them all as they lie.
        newest = state in ("", "NEW") and not wanted.rare and not outbox.append_only
        return [("outbox_unsent_newest" if newest else "outbox_unsent_many", {"state": state}), *settled]
    unsent = (state,) if state else (one for one in STATES if one not in _SETTLED)
    return [*(_LISTED[one] for one in unsent), *settled]


async def _edge(
    store: Store, connection: AsyncConnection, outbox: OutboxTable, values: Mapping[str, Any]
) -> Place | None:
    bounds = {name: values[name] for name in ("at", "before", "since")} | {"window": _WINDOW}
    rows = (await store.execute(connection, "outbox_sent_edge", outbox=outbox, **bounds)).rows
    if not rows:
        return None
    return store.time_out(rows[0].published_at) or _LATEST, event_id_of(store, outbox, rows[0].event_id)


def _bound(outbox: OutboxTable, wanted: Filter, place: Place | None, limit: int) -> dict[str, Any]:
    at, before = place or (_LATEST, _last_id(outbox))
    if outbox.ids != "text" and not isinstance(before, UUID):
        before = _last_id(outbox)  # another table's last one: its text says nothing here
    # No type has a slash in its name, but an id may: then it is the type before the first one, or the id as a whole.
    aggregate_type, _, aggregate_id = wanted.key.partition("/")
    return {
        "event_type": wanted.type,
        "key": wanted.key,
        "aggregate_type": aggregate_type,
        "aggregate_id": aggregate_id,
        "text": wanted.text,
        "payload_text": wanted.text if wanted.payloads else "",
        "since": wanted.since or _EARLIEST,
        "at": at,
        "before": id_in(outbox, before),
        "limit": limit,
    }


def place_of(event: OutboxEvent) -> Place:
    moved = event.published_at if event.state in _SETTLED else event.occurred_at
    return moved or _LATEST, event.id


def _order(event: OutboxEvent) -> tuple[datetime, str]:
    return _rank(place_of(event))


def _rank(place: Place) -> tuple[datetime, str]:
    moved, id = place
    return moved, str(id) if isinstance(id, UUID) else ""


async def parked_ids(store: Store, outboxes: Sequence[OutboxTable]) -> Sequence[EventId]:
    """The events that hold up their keys until a person decides."""
    return await retryable_ids(store, outboxes, Filter("FAILED"))


async def retryable_ids(store: Store, outboxes: Sequence[OutboxTable], wanted: Filter) -> Sequence[EventId]:
    """Of all that match among those that are parked or being retried; by id, because no page of them, however far back,
    may cost more than the first."""
    found: list[EventId] = []
    for outbox in outboxes:
        after: EventId = id_in(outbox, _BEFORE_ALL) if outbox.ids != "text" else ""
        while True:
            bound = _narrowed(outbox, wanted) | {"after": after, "limit": _AT_ONCE}
            rows = (await store.read("outbox_retryable_ids", outbox, **bound)).rows
            found += [event_id_of(store, outbox, row.event_id) for row in rows]
            if len(rows) < _AT_ONCE:
                break
            after = found[-1]
    return found


async def retryable_count(store: Store, outboxes: Sequence[OutboxTable], wanted: Filter) -> int:
    """How many `retryable_ids` would give."""
    counted = [await store.read("outbox_retryable_count", outbox, **_narrowed(outbox, wanted)) for outbox in outboxes]
    return sum(int(result.rows[0].events) for result in counted)


def _narrowed(outbox: OutboxTable, wanted: Filter) -> dict[str, Any]:
    bound = _bound(outbox, wanted, None, 0)
    names = ("event_type", "key", "aggregate_type", "aggregate_id", "text", "payload_text", "since")
    # Other programs' rows may have no time: they come last of all, as in the pages.
    until = {"until": wanted.until or _LATEST, "timeless": int(wanted.until is None)}
    return {name: bound[name] for name in names} | until | {"state": wanted.state}


def _last_id(outbox: OutboxTable) -> EventId:
    return chr(0x10FFFF) if outbox.ids == "text" else _AFTER_ALL
