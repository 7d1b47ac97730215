"""What people ask of a running system and do to it by hand; the command line and the dashboard share it.

Questions return frozen values. Acts check the state of their subject, refuse with OperationRefused, and are
written to the audit table in the transaction that does them.
"""

from postroad.operations.again import replay_event, resend_event, run_now
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
from postroad.operations.failures import Cause, Failure, causes
from postroad.operations.inbox import InboxDetail, InboxRecord, inbox_page, inbox_record, retry_record
from postroad.operations.outbox import (
    STATES,
    OutboxDetail,
    OutboxEvent,
    is_stored,
    outbox_event,
    retry_events,
    skip_event,
)
from postroad.operations.pages import (
    Filter,
    Found,
    all_matching,
    matching,
    outbox_page,
    parked_ids,
    place_of,
    place_of_id,
    search,
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
from postroad.operations.views import Lease, aggregate_history, leases, scheduled

__all__ = [
    "COMMAND_STATES",
    "MOST_COUNTED",
    "MOST_DEAD",
    "SOURCES",
    "STATES",
    "Act",
    "BrokenLink",
    "Cause",
    "CommandDetail",
    "CommandView",
    "DeadEvent",
    "Failure",
    "Filter",
    "Found",
    "GroupStatus",
    "Handled",
    "InboxDetail",
    "InboxRecord",
    "Lease",
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
    "aggregate_history",
    "all_dead",
    "all_matching",
    "causes",
    "command_detail",
    "command_page",
    "dead_page",
    "discard_dead",
    "find_dead",
    "inbox_page",
    "inbox_record",
    "is_stored",
    "leases",
    "matching",
    "orphans",
    "outbox_event",
    "outbox_page",
    "parked_ids",
    "place_of",
    "place_of_id",
    "projection",
    "projection_source",
    "projections",
    "rebuild",
    "replay_event",
    "resend_event",
    "retry_command",
    "retry_dead",
    "retry_events",
    "retry_record",
    "run_now",
    "scheduled",
    "search",
    "skip_event",
    "status",
    "this_user",
    "topics_of",
    "trace",
    "trace_of",
    "verify",
]
