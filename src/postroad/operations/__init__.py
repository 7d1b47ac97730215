"""What people ask of a running system, and what they do to it by hand; the command line and the dashboard share it.

Questions return frozen values. Acts check the state of their subject, refuse with OperationRefused, and are written to
the audit table in the transaction that does them.
"""

from postroad.operations.audit import Act, acts, this_user
from postroad.operations.dead_letters import (
    DeadLetters,
    discard_dead_letters,
    find_dead_letter,
    list_dead_letters,
    retry_dead_letters,
)
from postroad.operations.inbox import InboxDetail, InboxRecord, inbox_page, inbox_record, retry_record
from postroad.operations.outbox import (
    STATES,
    OutboxDetail,
    OutboxEvent,
    outbox_event,
    outbox_page,
    parked_ids,
    retry_events,
    skip_event,
)
from postroad.operations.status import (
    GroupStatus,
    OutboxStatus,
    ParkedKey,
    Status,
    WorkerStatus,
    status,
)
from postroad.operations.tail import Tail

__all__ = [
    "STATES",
    "Act",
    "DeadLetters",
    "GroupStatus",
    "InboxDetail",
    "InboxRecord",
    "OutboxDetail",
    "OutboxEvent",
    "OutboxStatus",
    "ParkedKey",
    "Status",
    "Tail",
    "WorkerStatus",
    "acts",
    "discard_dead_letters",
    "find_dead_letter",
    "inbox_page",
    "inbox_record",
    "list_dead_letters",
    "outbox_event",
    "outbox_page",
    "parked_ids",
    "retry_dead_letters",
    "retry_events",
    "retry_record",
    "skip_event",
    "status",
    "this_user",
]
