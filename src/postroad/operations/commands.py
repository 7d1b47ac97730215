"""The command box as a person sees it, and the act that lets a failed command run again."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.commands.record import CommandRecord, CommandStatus, record_of
from postroad.errors import OperationRefused
from postroad.operations import audit
from postroad.operations.readable import readable
from postroad.stores.base import Store

COMMAND_STATES: Final = tuple(status.value for status in CommandStatus)
_NEWEST: Final = 2**62
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class CommandView:
    id: UUID
    type: str
    key: str
    status: str
    retry_count: int
    next_retry_at: datetime | None
    error: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class CommandDetail:
    command: CommandView
    tenant: str
    user_id: str | None
    correlation_id: str
    causation_id: str | None
    locked_by: str | None
    locked_until: datetime | None
    payload: Any
    events: Sequence[str]
    """The ids of its domain events."""
    history: Sequence[audit.Act] = ()


async def command_page(
    store: Store, *, status: str = "", type: str = "", limit: int = 50, after: UUID | None = None
) -> Sequence[CommandView]:
    """Newest first; `after` is the last one of the previous page."""
    before = (await _find(store, after)).seq if after else _NEWEST
    if status:
        found = await store.read("command_list_of", status=status, type=type, before=before, limit=limit)
    else:
        found = await store.read("command_list", type=type, before=before, limit=limit)
    return [_view(record_of(row, store)) for row in found.rows]


async def command_detail(store: Store, id: UUID) -> CommandDetail:
    """Raises OperationRefused if there is no such command."""
    record = await _find(store, id)
    events = (await store.read("events_caused", causation_id=str(id))).rows
    return CommandDetail(
        command=_view(record),
        tenant=record.tenant,
        user_id=record.user_id,
        correlation_id=record.correlation_id,
        causation_id=record.causation_id,
        locked_by=record.locked_by,
        locked_until=record.locked_until,
        payload=readable(record.payload, "application/json"),
        events=[str(store.id_out(row.event_id)) for row in events],
        history=await audit.acts(store, subject=str(id)),
    )


async def failed_commands(store: Store, type: str = "") -> Sequence[UUID]:
    """The ids of all that have failed; with `type` only those of it."""
    found: list[UUID] = []
    before = _NEWEST
    while True:
        failed = CommandStatus.FAILED.value
        rows = (await store.read("command_list_of", status=failed, type=type, before=before, limit=_PAGE)).rows
        page = [record_of(row, store) for row in rows]
        found += [record.command_id for record in page]
        if len(page) < _PAGE:
            return found
        before = page[-1].seq


async def retry_commands(store: Store, ids: Sequence[UUID], *, actor: str, reason: str = "") -> None:
    """Hands failed commands to the workers, with all their attempts before them; all, or with OperationRefused none."""
    async with store.transaction() as connection:
        for id in ids:
            if not (await store.execute(connection, "command_retry", command_id=id)).rowcount:
                raise await _not_failed(store, connection, id)
            await audit.record(store, connection, actor=actor, action="command.retry", subject=str(id), detail=reason)


async def _not_failed(store: Store, connection: AsyncConnection, id: UUID) -> OperationRefused:
    rows = (await store.execute(connection, "command_find", command_id=id)).rows
    if not rows:
        return _unknown(id)
    status = record_of(rows[0], store).status
    return OperationRefused(f"Command {id} is {status}. Only one that has FAILED can be retried.")


async def _find(store: Store, id: UUID) -> CommandRecord:
    rows = (await store.read("command_find", command_id=id)).rows
    if not rows:
        raise _unknown(id)
    return record_of(rows[0], store)


def _unknown(id: UUID) -> OperationRefused:
    return OperationRefused(f"There is no command {id}. List them with: postroad command list")


def _view(record: CommandRecord) -> CommandView:
    return CommandView(
        id=record.command_id,
        type=record.command_type,
        key=f"{record.aggregate_type}/{record.aggregate_id}",
        status=record.status.value,
        retry_count=record.retry_count,
        next_retry_at=record.next_retry_at,
        error=record.error_message,
        created_at=record.created_at,
        started_at=record.started_at,
        finished_at=record.finished_at,
    )
