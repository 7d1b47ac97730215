"""What became of events in the consumer groups, and the act that lets a failed one be handled again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.brokers.base import Broker
from postroad.errors import OperationRefused, UnreadableMessage
from postroad.inbox import Record, Status
from postroad.inbox.record import record_of, unpack
from postroad.inbox.records import Records
from postroad.operations import audit
from postroad.operations.dead_letters import DeadEvent, all_dead, discard_dead, message_id, retry_dead
from postroad.operations.fingerprint import fingerprint
from postroad.operations.readable import readable
from postroad.stores.base import Store

_PAGE: Final = 500


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
    cause: str = "",
    limit: int = 50,
    after: tuple[str, UUID] | None = None,
) -> Sequence[InboxRecord]:
    """By group and event id; `after` is the last one of the previous page.

    With `failed`, also those that will be tried again; with `cause` only those that failed of it.
    """
    status, found = Status.FAILED if failed or cause else None, list[InboxRecord]()
    size = _PAGE if cause else limit
    while page := await Records(store).list(group or None, status, size, after):
        found += [_plain(one) for one in page if not cause or fingerprint(one.error_msg or "") == cause]
        if len(found) >= limit or len(page) < size:
            break
        after = (page[-1].group, page[-1].event_id)
    return found[:limit]


async def failed_records(store: Store, group: str, cause: str = "") -> Sequence[InboxRecord]:
    """All of a group that have failed, also those that will be tried again; with `cause` only those of it."""
    found: list[InboxRecord] = []
    after: tuple[str, UUID] | None = None
    while page := await inbox_page(store, group=group, failed=True, cause=cause, limit=_PAGE, after=after):
        found += page
        after = (group, page[-1].event_id)
    return found


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


Letters = Mapping[UUID, Sequence[DeadEvent]]
"""What a broker holds as dead of one group, by event."""


async def letters_of(store: Store, broker: Broker | None, group: str, ids: Sequence[UUID]) -> Letters:
    """Of the records that a broker may have buried; asked once for all of them."""
    found = [await Records(store).find(group, id) for id in ids] if broker else []
    buried = {one.event_id: one.topic for one in found if one and _may_be_buried(one)}
    letters: dict[UUID, list[DeadEvent]] = {}
    if broker and buried:
        async for one in all_dead(broker, sorted(set(buried.values()))):
            id = message_id(one)
            if one.group == group and id and buried.get(id) == one.topic:
                letters.setdefault(id, []).append(one)
    return letters


async def retry_record(
    store: Store, broker: Broker | None, group: str, event_id: UUID, *, actor: str, reason: str = ""
) -> None:
    """Makes a failed record due now, with all its attempts before it."""
    await retry_records(store, broker, group, [event_id], actor=actor, reason=reason)


async def retry_records(
    store: Store,
    broker: Broker | None,
    group: str,
    ids: Sequence[UUID],
    *,
    actor: str,
    reason: str = "",
    letters: Letters | None = None,
) -> None:
    """Makes failed records due now, with all their attempts before them. All, or with OperationRefused none of those
    that are handled here.

    Whatever the broker holds as a dead letter goes back through the broker: handled here, it would stay among the dead.
    With `letters` it is not asked again.
    """
    letters = await letters_of(store, broker, group, ids) if letters is None else letters
    here = [id for id in ids if id not in letters]
    await _settle("inbox_retry", "inbox.retry", store, group, here, actor, reason)
    dead = [one for id in ids for one in letters.get(id, ())]
    if broker and dead and await retry_dead(store, broker, dead, actor=actor, reason=reason) < len(dead):
        raise OperationRefused(
            f"The broker did not give event {dead[0].event_id} back to group {group}. Is its subscription still there? "
            f"Look at it with: postroad dlq show {dead[0].id} --topic {dead[0].topic}"
        )


async def discard_records(
    store: Store, broker: Broker | None, group: str, ids: Sequence[UUID], *, actor: str, reason: str
) -> None:
    """Gives failed records up for good: they are kept as refused, never tried again, and hold nobody up.

    What the broker holds of them as a dead letter is thrown away there too. A reason is required.
    """
    if not reason.strip():
        raise OperationRefused("Discarding a failed event needs a reason. Say why nobody will miss it.")
    letters = await letters_of(store, broker, group, ids)
    await _settle(
        "inbox_discard", "inbox.discard", store, group, [id for id in ids if id not in letters], actor, reason
    )
    if broker and (dead := [one for id in ids for one in letters.get(id, ())]):
        await discard_dead(store, broker, dead, actor=actor, reason=reason)


async def _settle(
    statement: str, action: str, store: Store, group: str, ids: Sequence[UUID], actor: str, reason: str
) -> None:
    if not ids:
        return
    async with store.transaction() as connection:
        for id in ids:
            if not (await store.execute(connection, statement, group=group, event_id=id)).rowcount:
                raise await _not_failed(store, connection, group, id, action)
            subject = f"{group}/{id}"
            await audit.record(store, connection, actor=actor, action=action, subject=subject, detail=reason)


async def _not_failed(store: Store, connection: AsyncConnection, group: str, id: UUID, action: str) -> OperationRefused:
    rows = (await store.execute(connection, "inbox_find", group=group, event_id=id)).rows
    if not rows:
        return _unknown(group, id)
    done = {"inbox.retry": "retried", "inbox.discard": "discarded"}[action]
    state = _state(record_of(rows[0], store))
    return OperationRefused(f"Event {id} in group {group} is {state}. Only one that has failed can be {done}.")


def _may_be_buried(record: Record) -> bool:
    """Or no broker need be asked."""
    return not record.refused and (record.stopped or _was_given_back(record))


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
