"""The outbox as a person sees it: its events, one event, and the two acts that free a parked key."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.errors import OperationRefused
from postroad.message import Message, ordering_key
from postroad.operations import audit
from postroad.operations.readable import readable
from postroad.stores.base import Store
from postroad.stores.rows import message_of
from postroad.stores.tables import OutboxTable

STATES: Final = ("NEW", "RETRY", "FAILED", "SENT", "SKIPPED")
_SETTLED: Final = ("SENT", "SKIPPED")
_LISTED: Final[Mapping[str, tuple[str, dict[str, str]]]] = {
    **{state: ("outbox_unsent", {"state": state}) for state in STATES if state not in _SETTLED},
    "SENT": ("outbox_sent", {}),
    "SKIPPED": ("outbox_skipped", {}),
}
_EARLIEST: Final = datetime(1970, 1, 2, tzinfo=UTC)
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC)
_AFTER_ALL: Final = UUID(int=2**128 - 1)
_BEFORE_ALL: Final = UUID(int=0)
EventId = UUID | str
"""As text where the table keeps text: other programs may have written ids that are no UUIDs."""
_AT_ONCE: Final = 500
_MANY: Final = 2_000
_WINDOW: Final = 20_000
"""Sent events that one search looks at."""

_TOLD: Final = {
    "NEW": "is NEW: it waits for a relay and needs nobody's help",
    "SENT": "is SENT: the broker has it",
    "SKIPPED": "was SKIPPED already",
}


@dataclass(frozen=True, slots=True)
class OutboxEvent:
    id: EventId
    outbox: str
    type: str
    topic: str
    key: str
    """The aggregate's type and id: what is kept in order, unless it is delayed."""
    version: int | None
    state: str
    attempts: int
    next_attempt_at: datetime | None
    last_error: str | None
    occurred_at: datetime
    published_at: datetime | None
    deliver_at: datetime | None = None
    """When a delayed event is due. It may be SENT long before: then the broker holds it."""


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


@dataclass(frozen=True, slots=True)
class OutboxDetail:
    event: OutboxEvent
    aggregate_type: str
    aggregate_id: str
    shard: int | None
    schema_version: int
    content_type: str
    tenant: str
    correlation_id: str | None
    causation_id: str | None
    attributes: dict[str, Any]
    created_at: datetime | None
    deliver_at: datetime | None
    payload: Any
    """Decoded if it is JSON, else the bytes."""
    history: Sequence[audit.Act] = ()


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
            for statement, more in await _statements(store, connection, outbox, wanted.state):
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
    store: Store, connection: AsyncConnection, outbox: OutboxTable, state: str
) -> Sequence[tuple[str, dict[str, str]]]:
    """Each state has an index in which its newest are found, however much has been sent."""
    if state in _SETTLED:
        return [_LISTED[state]]
    counted = await store.execute(connection, "outbox_unsent_count", outbox=outbox, most=_MANY)
    settled = [] if state else [_LISTED[one] for one in _SETTLED]
    if int(counted.rows[0].events) == _MANY:
        return [("outbox_unsent_many", {"state": state}), *settled]
    unsent = (state,) if state else (one for one in STATES if one not in _SETTLED)
    return [*(_LISTED[one] for one in unsent), *settled]


async def _edge(
    store: Store, connection: AsyncConnection, outbox: OutboxTable, values: Mapping[str, Any]
) -> Place | None:
    bounds = {"at": values["at"], "before": values["before"], "window": _WINDOW}
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
        "before": _id_in(outbox, before),
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


async def outbox_event(store: Store, outboxes: Sequence[OutboxTable], id: EventId) -> OutboxDetail:
    """Everything about one event. Raises OperationRefused if there is none."""
    async with store.reading() as connection:
        for outbox in _may_hold(outboxes, id):
            found = await store.execute(connection, "outbox_find", outbox=outbox, event_id=_id_in(outbox, id))
            if found.rows:
                break
        else:
            raise _unknown(id)
    return _detail(store, outbox, found.rows[0], await audit.acts(store, subject=str(id)))


async def outbox_message(store: Store, outboxes: Sequence[OutboxTable], id: UUID) -> Message:
    """The event as its consumers get it. Raises OperationRefused if there is none."""
    async with store.reading() as connection:
        for outbox in outboxes:
            found = await store.execute(connection, "outbox_find", outbox=outbox, event_id=_id_in(outbox, id))
            if found.rows:
                return message_of(found.rows[0], found.rows[0].payload, store, outbox)
    raise _unknown(id)


async def is_stored(store: Store, connection: AsyncConnection, outboxes: Sequence[OutboxTable], id: EventId) -> bool:
    """Whether an event is in the outbox, as the caller's transaction sees it."""
    for outbox in _may_hold(outboxes, id):
        if (await store.execute(connection, "outbox_state", outbox=outbox, event_id=_id_in(outbox, id))).rows:
            return True
    return False


async def parked_ids(store: Store, outboxes: Sequence[OutboxTable]) -> Sequence[EventId]:
    """The events that hold up their keys until a person decides."""
    return [event.id async for event in all_matching(store, outboxes, Filter("FAILED"))]


async def all_matching(store: Store, outboxes: Sequence[OutboxTable], wanted: Filter) -> AsyncIterator[OutboxEvent]:
    place: Place | None = None
    while page := await matching(store, outboxes, wanted, limit=_AT_ONCE, after=place):
        for event in page:
            yield event
        place = place_of(page[-1])


async def retry_events(
    store: Store, outboxes: Sequence[OutboxTable], ids: Sequence[EventId], *, actor: str, reason: str = ""
) -> None:
    """Let the relay try again, from the first attempt. All of them, or none with OperationRefused."""
    await _settle("outbox_retry", "outbox.retry", store, outboxes, ids, actor, reason)


async def skip_event(store: Store, outboxes: Sequence[OutboxTable], id: EventId, *, actor: str, reason: str) -> None:
    """Never send this event; what waits behind it goes on. Consumers will miss it: a reason is required."""
    if not reason.strip():
        raise OperationRefused("Skipping an event needs a reason. Say why its consumers may miss it.")
    await _settle("outbox_skip", "outbox.skip", store, outboxes, [id], actor, reason)


async def _settle(
    statement: str,
    action: str,
    store: Store,
    outboxes: Sequence[OutboxTable],
    ids: Sequence[EventId],
    actor: str,
    reason: str,
) -> None:
    async with store.transaction() as connection:
        for id in ids:
            await _change(statement, store, connection, outboxes, id)
            await audit.record(store, connection, actor=actor, action=action, subject=str(id), detail=reason)


async def _change(
    statement: str, store: Store, connection: AsyncConnection, outboxes: Sequence[OutboxTable], id: EventId
) -> None:
    state = ""
    for outbox in _may_hold(outboxes, id):
        bound: dict[str, Any] = {"outbox": outbox, "event_id": _id_in(outbox, id)}
        if (await store.execute(connection, statement, **bound)).rowcount:
            return
        for row in (await store.execute(connection, "outbox_state", **bound)).rows:
            state = row.state
    raise _wrong_state(id, state) if state else _unknown(id)


def _unknown(id: EventId) -> OperationRefused:
    return OperationRefused(f"There is no event {id} in the outbox. List them with: postroad outbox list")


def _wrong_state(id: EventId, state: str) -> OperationRefused:
    told = _TOLD.get(state, f"is {state}")
    return OperationRefused(
        f"Event {id} {told}. Only a parked (FAILED) or waiting (RETRY) event can be retried or skipped."
    )


def _may_hold(outboxes: Sequence[OutboxTable], id: EventId) -> Sequence[OutboxTable]:
    return [outbox for outbox in outboxes if outbox.ids == "text" or isinstance(id, UUID)]


def _last_id(outbox: OutboxTable) -> EventId:
    return chr(0x10FFFF) if outbox.ids == "text" else _AFTER_ALL


def _id_in(outbox: OutboxTable, id: EventId) -> EventId:
    return str(id) if outbox.ids == "text" else id


def event_id_of(store: Store, outbox: OutboxTable, value: Any) -> EventId:
    return str(value) if outbox.ids == "text" else store.id_out(value)


def event_of(store: Store, outbox: OutboxTable, row: Any) -> OutboxEvent:
    return OutboxEvent(
        id=event_id_of(store, outbox, row.event_id),
        outbox=outbox.name,
        type=row.event_type,
        topic=row.topic or outbox.topic,
        # The row of a delayed event has a key of its own, so that nothing waits behind it; no person would know it.
        key=ordering_key(row.aggregate_type, str(row.aggregate_id)) if row.deliver_at else row.ordering_key or "",
        version=row.version,
        state=row.state,
        attempts=row.attempts,
        next_attempt_at=store.time_out(row.next_attempt_at),
        last_error=row.last_error,
        occurred_at=store.time_out(row.occurred_at),  # type: ignore[arg-type]
        published_at=store.time_out(row.published_at),
        deliver_at=store.time_out(row.deliver_at),
    )


def _detail(store: Store, outbox: OutboxTable, row: Any, history: Sequence[audit.Act]) -> OutboxDetail:
    content_type = row.content_type or "application/json"
    payload = row.payload.encode() if isinstance(row.payload, str) else bytes(row.payload)
    return OutboxDetail(
        event=event_of(store, outbox, row),
        aggregate_type=row.aggregate_type,
        aggregate_id=str(row.aggregate_id),
        shard=row.shard,
        schema_version=row.schema_version or 1,
        content_type=content_type,
        tenant=row.tenant_id or "",
        correlation_id=row.correlation_id,
        causation_id=row.causation_id,
        attributes=msgspec.json.decode(row.attributes) if row.attributes else {},
        created_at=store.time_out(row.created_at),
        deliver_at=store.time_out(row.deliver_at),
        payload=readable(payload, content_type, row.event_type, row.schema_version or 1),
        history=history,
    )
