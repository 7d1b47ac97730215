"""The outbox as a person sees it: its events, one event, and the two acts that free a parked key."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.errors import OperationRefused
from postroad.message import Message, ordering_key
from postroad.operations import audit
from postroad.operations.portions import Progress, in_portions, untold
from postroad.operations.readable import readable
from postroad.stores.base import Store
from postroad.stores.rows import message_of
from postroad.stores.tables import OutboxTable

STATES: Final = ("NEW", "RETRY", "FAILED", "SENT", "SKIPPED")
EventId = UUID | str
"""As text where the table keeps text: other programs may have written ids that are no UUIDs."""
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


async def outbox_event(store: Store, outboxes: Sequence[OutboxTable], id: EventId) -> OutboxDetail:
    """Everything about one event. Raises OperationRefused if there is none."""
    async with store.reading() as connection:
        for outbox in _may_hold(outboxes, id):
            found = await store.execute(connection, "outbox_find", outbox=outbox, event_id=id_in(outbox, id))
            if found.rows:
                break
        else:
            raise _unknown(id)
    return _detail(store, outbox, found.rows[0], await audit.acts(store, subject=str(id)))


async def outbox_message(store: Store, outboxes: Sequence[OutboxTable], id: EventId) -> Message:
    """The event as its consumers get it. Raises OperationRefused if there is none."""
    async with store.reading() as connection:
        for outbox in _may_hold(outboxes, id):
            found = await store.execute(connection, "outbox_find", outbox=outbox, event_id=id_in(outbox, id))
            if found.rows:
                return message_of(found.rows[0], found.rows[0].payload, store, outbox)
    raise _unknown(id)


async def is_ours(store: Store, outboxes: Sequence[OutboxTable], id: EventId) -> bool:
    """Whether an event is in an outbox of this service; what it consumes may come from another's."""
    async with store.reading() as connection:
        return await is_stored(store, connection, outboxes, id)


async def is_stored(store: Store, connection: AsyncConnection, outboxes: Sequence[OutboxTable], id: EventId) -> bool:
    """Whether an event is in the outbox, as the caller's transaction sees it."""
    for outbox in _may_hold(outboxes, id):
        if (await store.execute(connection, "outbox_state", outbox=outbox, event_id=id_in(outbox, id))).rows:
            return True
    return False


async def retry_events(
    store: Store,
    outboxes: Sequence[OutboxTable],
    ids: Sequence[EventId],
    *,
    actor: str,
    reason: str = "",
    progress: Progress = untold,
) -> None:
    """Let the relay try again, from the first attempt. All of them, or with OperationRefused none of the portion in
    which one cannot be."""
    for portion in in_portions(ids, progress):
        await _settle("outbox_retry", "outbox.retry", store, outboxes, portion, actor, reason)


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
        bound: dict[str, Any] = {"outbox": outbox, "event_id": id_in(outbox, id)}
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


def id_in(outbox: OutboxTable, id: EventId) -> EventId:
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
