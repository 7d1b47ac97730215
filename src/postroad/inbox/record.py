"""The consume record as values, and the decisions that need nothing else."""

import re
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, IntEnum
from typing import Any, Final
from uuid import UUID

import msgspec

from postroad.errors import UnreadableMessage
from postroad.message import Message
from postroad.retry import Backoff
from postroad.stores.base import Store

RECHECK: Final = 1.0
"""Seconds until it is worth asking again about something whose time has come but that has not moved yet."""


class Status(IntEnum):
    PROCESSING = 0
    SUCCEEDED = 1
    FAILED = 2


class AcquireState(Enum):
    ACQUIRED = "acquired"
    """Ours: the first attempt, or one whose holder died."""
    RETRYABLE_FAILED = "retryable_failed"
    """Ours: it failed before and is due again."""
    REPLAY_SUCCEEDED = "replay_succeeded"
    IN_PROGRESS = "in_progress"
    """Not now: somebody holds it, it is not due, or an earlier event of its key waits to be tried again."""
    STOPPED = "stopped"
    """Failed for good: there will be no further try unless a person asks for one."""
    CONFLICT = "conflict"
    """The same group and id, but another type."""


@dataclass(frozen=True, slots=True)
class Record:
    group: str
    event_id: UUID
    tenant: str
    event_type: str
    topic: str
    ordering_key: str | None
    """None for a delayed message, which stands outside its key's order."""
    version: int
    status: Status
    locked_by: str | None
    locked_until: datetime | None
    epoch: int
    next_retry_at: datetime | None
    retry_count: int
    error_msg: str | None
    received_at: datetime
    processed_at: datetime | None
    message: bytes | None
    """The whole message, kept when nobody else will deliver it again."""

    @property
    def stopped(self) -> bool:
        return self.status is Status.FAILED and self.next_retry_at is None

    @property
    def refused(self) -> bool:
        """Settled with a "no": by the handler's BusinessError, or discarded by a person."""
        return self.stopped and self.processed_at is not None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to settle one record. The epoch is its fencing number: every take raises it."""

    group: str
    event_id: UUID
    epoch: int


@dataclass(frozen=True, slots=True)
class Acquired:
    state: AcquireState
    lease: Lease | None = None
    retry_count: int = 0
    """Attempts that have failed so far."""
    wait: float = 0.0
    """With IN_PROGRESS: seconds after which it is worth trying again."""
    record: Record | None = None


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    lock_ttl: float = 30.0
    wait_if_in_progress: bool = False
    wait_max: float = 0.0
    max_retry: int = 20
    base_backoff: float = 1.0
    max_backoff: float = 300.0
    keep_message: bool = False
    """Nobody will deliver it again: keep it in the record, for the RetryScheduler."""

    @property
    def backoff(self) -> Backoff:
        return Backoff(attempts=self.max_retry + 1, base=self.base_backoff, ceiling=self.max_backoff)


@dataclass(frozen=True, slots=True)
class ConsumeResult:
    replayed: bool = False
    """It had succeeded before; the handler was not run."""
    in_progress: bool = False
    """It could not be handled now; deliver it again later."""


def judge(
    record: Record, message: Message, *, now: datetime, blocked_until: datetime | None
) -> tuple[AcquireState, float]:
    """What may be done with a record now, by the database's clock, and how long to wait if nothing."""
    if record.event_type != message.type:
        return AcquireState.CONFLICT, 0.0
    if record.status is Status.SUCCEEDED:
        return AcquireState.REPLAY_SUCCEEDED, 0.0
    if record.stopped:
        return AcquireState.STOPPED, 0.0
    if record.status is Status.PROCESSING and record.locked_until and record.locked_until > now:
        # Its holder may be done at any moment, long before the lease ends.
        return AcquireState.IN_PROGRESS, min(RECHECK, (record.locked_until - now).total_seconds())
    if blocked_until:
        return AcquireState.IN_PROGRESS, max(RECHECK, (blocked_until - now).total_seconds())
    if record.next_retry_at and record.next_retry_at > now:
        return AcquireState.IN_PROGRESS, (record.next_retry_at - now).total_seconds()
    return (AcquireState.RETRYABLE_FAILED if record.status is Status.FAILED else AcquireState.ACQUIRED), 0.0


# -- between messages, rows and records ----------------------------------------------------------------

_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")
_LIMITS: Final = {"event_type": 128, "tenant_id": 255, "topic": 255, "ordering_key": 520}


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the record keeps of a message. An absent ordering key stands outside every order."""

    event_id: str
    tenant_id: str
    event_type: str
    topic: str
    version: int
    ordering_key: str | None = None


def row_of(message: Message) -> Row:
    return Row(
        event_id=str(message.id),
        tenant_id=message.tenant,
        event_type=message.type,
        topic=message.topic,
        version=message.version or 0,
        ordering_key=None if message.deliver_at else message.ordering_key,
    )


def columns_of(message: Message) -> dict[str, Any]:
    return {**msgspec.structs.asdict(row_of(message)), "event_id": message.id}


def check_storable(message: Message) -> None:
    """Raises UnreadableMessage for a message that no record could hold: it is poison, not worth a retry."""
    for name, value in columns_of(message).items():
        if isinstance(value, str) and _UNSTORABLE.search(value):
            raise UnreadableMessage(f"attribute {name} contains a control character or a lone surrogate")
        if isinstance(value, str) and len(value) > _LIMITS[name]:
            raise UnreadableMessage(f"attribute {name} is longer than {_LIMITS[name]} characters")


def record_of(row: Any, store: Store) -> Record:
    received_at = store.time_out(row.received_at)
    assert received_at is not None  # the column is NOT NULL
    return Record(
        group=row.consumer_group,
        event_id=store.id_out(row.event_id),
        tenant=row.tenant_id,
        event_type=row.event_type,
        topic=row.topic,
        ordering_key=row.ordering_key,
        version=row.version,
        status=Status(row.status),
        locked_by=row.locked_by,
        locked_until=store.time_out(row.locked_until),
        epoch=row.epoch,
        next_retry_at=store.time_out(row.next_retry_at),
        retry_count=row.retry_count,
        error_msg=row.error_msg,
        received_at=received_at,
        processed_at=store.time_out(row.processed_at),
        message=None if row.message is None else bytes(row.message),
    )


def pack(message: Message) -> bytes:
    return msgspec.msgpack.encode(message)


def unpack(data: bytes) -> Message:
    """Raises UnreadableMessage for a message that another release has stored in another form."""
    try:
        return msgspec.msgpack.decode(data, type=Message)
    except msgspec.DecodeError as error:
        raise UnreadableMessage(f"The stored message cannot be read: {error}.") from error
