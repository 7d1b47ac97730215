"""What became of events in the consumer groups, and the act that lets a failed one be handled again."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from postroad.brokers.base import Broker
from postroad.errors import OperationRefused, UnreadableMessage
from postroad.inbox import Record, Status
from postroad.inbox.record import unpack
from postroad.inbox.records import Records
from postroad.operations import audit
from postroad.operations.dead_letters import DeadEvent, dead_of, retry_dead
from postroad.operations.readable import readable
from postroad.stores.base import Store


@dataclass(frozen=True, slots=True)
class InboxRecord:
    group: str
    event_id: UUID
    type: str
    topic: str
    key: str
    version: int
    state: str
    """processing, succeeded, waiting (for its next try), refused (with a "no") or failed (for good)"""
    retry_count: int
    next_retry_at: datetime | None
    error: str | None
    received_at: datetime
    processed_at: datetime | None


@dataclass(frozen=True, slots=True)
class InboxDetail:
    record: InboxRecord
    tenant: str
    locked_by: str | None
    locked_until: datetime | None
    message: dict[str, str] | None
    """The attributes, if the message is kept here; else the broker has it."""
    payload: Any
    history: Sequence[audit.Act] = ()


async def inbox_page(
    store: Store,
    *,
    group: str = "",
    failed: bool = False,
    limit: int = 50,
    after: tuple[str, UUID] | None = None,
) -> Sequence[InboxRecord]:
    """By group and event id; `after` is the last one of the previous page.

    With `failed`, also those that will be tried again.
    """
    status = Status.FAILED if failed else None
    return [_plain(record) for record in await Records(store).list(group or None, status, limit, after)]


async def stopped_records(store: Store, limit: int = 50) -> Sequence[InboxRecord]:
    """Those that failed for good or were refused; the broker may hold the former as dead letters."""
    return [_plain(record) for record in await Records(store).stopped(limit)]


async def inbox_record(store: Store, group: str, event_id: UUID) -> InboxDetail:
    """Raises OperationRefused if the group has no record of the event."""
    found = await Records(store).find(group, event_id)
    if found is None:
        raise _unknown(group, event_id)
    message, payload = _message(found)
    return InboxDetail(
        record=_plain(found),
        tenant=found.tenant,
        locked_by=found.locked_by,
        locked_until=found.locked_until,
        message=message,
        payload=payload,
        history=await audit.acts(store, subject=f"{group}/{event_id}"),
    )


async def records_of(store: Store, event_id: UUID | str) -> Sequence[InboxRecord]:
    """What each group that has ever handled anything here has made of one event."""
    if not isinstance(event_id, UUID):
        return []
    groups = [row.consumer_group for row in (await store.read("groups_known")).rows]
    found = [await Records(store).find(group, event_id) for group in groups]
    return [_plain(record) for record in found if record is not None]


async def retry_record(
    store: Store, broker: Broker | None, group: str, event_id: UUID, *, actor: str, reason: str = ""
) -> None:
    """Makes a failed record due now, with all its attempts before it.

    Whatever the broker holds as a dead letter goes back through the broker: handled here, it would stay among the dead.
    """
    if broker and (dead := await _dead_letters(store, broker, group, event_id)):
        if not await retry_dead(store, broker, dead, actor=actor, reason=reason):
            raise OperationRefused(
                f"The broker did not give event {event_id} back to group {group}. Is its subscription still there? "
                f"Look at it with: postroad dlq show {dead[0].id} --topic {dead[0].topic}"
            )
        return
    subject = f"{group}/{event_id}"
    async with store.transaction() as connection:
        changed = await store.execute(connection, "inbox_retry", group=group, event_id=event_id)
        if changed.rowcount:
            await audit.record(store, connection, actor=actor, action="inbox.retry", subject=subject, detail=reason)
            return
    record = await Records(store).find(group, event_id)
    if record is None:
        raise _unknown(group, event_id)
    raise OperationRefused(
        f"Event {event_id} in group {group} is {_state(record)}. Only one that has failed can be retried."
    )


async def _dead_letters(store: Store, broker: Broker, group: str, event_id: UUID) -> Sequence[DeadEvent]:
    record = await Records(store).find(group, event_id)
    if record is None or record.refused or not (record.stopped or _was_given_back(record)):
        return []  # no broker has buried it
    return await dead_of(broker, record.topic, group, event_id)


def _was_given_back(record: Record) -> bool:
    """It may not have come: the record is made ready first, and then the broker may go away."""
    return record.status is Status.FAILED and record.message is None and not record.retry_count


def _unknown(group: str, event_id: UUID) -> OperationRefused:
    return OperationRefused(
        f"Group {group} has no record of event {event_id}. List its records with: postroad inbox list --group {group}"
    )


def _plain(record: Record) -> InboxRecord:
    return InboxRecord(
        group=record.group,
        event_id=record.event_id,
        type=record.event_type,
        topic=record.topic,
        key=record.ordering_key or "",
        version=record.version,
        state=_state(record),
        retry_count=record.retry_count,
        next_retry_at=record.next_retry_at,
        error=record.error_msg,
        received_at=record.received_at,
        processed_at=record.processed_at,
    )


def _state(record: Record) -> str:
    if record.status is not Status.FAILED:
        return record.status.name.lower()
    if record.next_retry_at is not None:
        return "waiting"
    return "refused" if record.refused else "failed"


def _message(record: Record) -> tuple[dict[str, str] | None, Any]:
    if record.message is None:
        return None, None
    try:
        message = unpack(record.message)
    except UnreadableMessage:
        # Stored by another release; the bytes are still worth showing.
        return {}, record.message
    return message.attributes(), readable(message.payload, message.content_type, message.type, message.schema_version)
