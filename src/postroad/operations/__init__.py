"""What people ask of a running system and do to it by hand; the command line and the dashboard share it.

Questions return frozen values. Acts check the state of their subject, refuse with OperationRefused, and are
written to the audit table in the transaction that does them.
"""

from postroad.operations.audit import Act, acts, this_user
from postroad.operations.commands import (
    COMMAND_STATES,
    CommandDetail,
    CommandView,
    command_detail,
    command_page,
    retry_command,
)
from postroad.operations.dead_letters import (
    DeadEvent,
    all_dead,
    dead_page,
    discard_dead,
    find_dead,
    retry_dead,
    topics_of,
)
from postroad.operations.inbox import InboxDetail, InboxRecord, inbox_page, inbox_record, retry_record
from postroad.operations.outbox import (
    STATES,
    OutboxDetail,
    OutboxEvent,
    is_stored,
    outbox_event,
    outbox_page,
    parked_ids,
    retry_events,
    skip_event,
)
from postroad.operations.projections import (
    SOURCES,
    ProjectionStatus,
    Verified,
    projection,
    projection_source,
    projections,
    rebuild,
    verify,
)
from postroad.operations.status import (
    MOST_COUNTED,
    MOST_DEAD,
    GroupStatus,
    OutboxStatus,
    ParkedKey,
    Status,
    WorkerStatus,
    status,
)
from postroad.operations.tail import Tail
from postroad.operations.trace import BrokenLink, Handled, Step, Trace, orphans, trace, trace_of

__all__ = [
    "COMMAND_STATES",
    "MOST_COUNTED",
    "MOST_DEAD",
    "SOURCES",
    "STATES",
    "Act",
    "BrokenLink",
    "CommandDetail",
    "CommandView",
    "DeadEvent",
    "GroupStatus",
    "Handled",
    "InboxDetail",
    "InboxRecord",
    "OutboxDetail",
    "OutboxEvent",
    "OutboxStatus",
    "ParkedKey",
    "ProjectionStatus",
    "Status",
    "Step",
    "Tail",
    "Trace",
    "Verified",
    "WorkerStatus",
    "acts",
    "all_dead",
    "command_detail",
    "command_page",
    "dead_page",
    "discard_dead",
    "find_dead",
    "inbox_page",
    "inbox_record",
    "is_stored",
    "orphans",
    "outbox_event",
    "outbox_page",
    "parked_ids",
    "retry_command",
    "projection",
    "projection_source",
    "projections",
    "rebuild",
    "retry_dead",
    "retry_events",
    "retry_record",
    "skip_event",
    "status",
    "this_user",
    "topics_of",
    "trace",
    "trace_of",
    "verify",
]
