"""A row of the command box as a value, and the decisions that need nothing else."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from postroad.errors import CommandConflict
from postroad.message import Message
from postroad.stores.base import Store


class CommandStatus(StrEnum):
    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class CommandRecord:
    seq: int
    """The order in which commands of one aggregate run."""
    command_id: UUID
    command_type: str
    aggregate_type: str
    aggregate_id: str
    payload: bytes
    tenant: str
    user_id: str | None
    correlation_id: str
    causation_id: str | None
    status: CommandStatus
    retry_count: int
    """Attempts that have failed so far."""
    next_retry_at: datetime | None
    error_message: str | None
    locked_by: str | None
    locked_until: datetime | None
    epoch: int
    """The fencing number: every take raises it."""
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def message(self) -> Message:
        """The envelope under which its events are written: they are caused by it, and belong to its flow."""
        return Message(
            id=self.command_id,
            type=self.command_type,
            topic="",
            aggregate_type=self.aggregate_type,
            aggregate_id=self.aggregate_id,
            version=None,
            occurred_at=self.created_at,
            payload=self.payload,
            tenant=self.tenant,
            correlation_id=self.correlation_id,
            causation_id=self.causation_id,
            user_id=self.user_id,
        )

    def check_same(self, message: Message) -> None:
        """Raises CommandConflict unless it is the very same command that was asked for before."""
        asked = (message.type, message.aggregate_type, message.payload)
        if asked != (self.command_type, self.aggregate_type, self.payload):
            raise CommandConflict(message.type, message.id, self.command_type)


def record_of(row: Any, store: Store) -> CommandRecord:
    created_at = store.time_out(row.created_at)
    assert created_at is not None  # the column is NOT NULL
    return CommandRecord(
        seq=row.seq,
        command_id=store.id_out(row.command_id),
        command_type=row.command_type,
        aggregate_type=row.aggregate_type,
        aggregate_id=row.aggregate_id,
        payload=bytes(row.payload),
        tenant=row.tenant_id,
        user_id=row.user_id,
        correlation_id=row.correlation_id,
        causation_id=row.causation_id,
        status=CommandStatus(row.status),
        retry_count=row.retry_count,
        next_retry_at=store.time_out(row.next_retry_at),
        error_message=row.error_message,
        locked_by=row.locked_by,
        locked_until=store.time_out(row.locked_until),
        epoch=row.epoch,
        created_at=created_at,
        started_at=store.time_out(row.started_at),
        finished_at=store.time_out(row.finished_at),
    )


def columns_of(message: Message) -> dict[str, Any]:
    """The parameters of `command_submit`."""
    return {
        "command_id": message.id,
        "command_type": message.type,
        "aggregate_type": message.aggregate_type,
        "aggregate_id": message.aggregate_id,
        "payload": message.payload,
        "tenant_id": message.tenant,
        "user_id": message.user_id,
        "correlation_id": message.correlation_id,
        "causation_id": message.causation_id,
        "now": message.occurred_at,
    }
