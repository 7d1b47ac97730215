"""Stage 5 of 7: once only. One record per event and consumer group decides who may handle it, and when.

Usable alone, in a consumer that is there already:

    inbox = Inbox(open_store("postgresql://…"))
    result = await inbox.consume("INVENTORY", message, deduct)      # async def deduct(message, session): …

The record and whatever `deduct` does with its session commit together. A second delivery is answered with
`result.replayed`; one that arrives while the first is still being handled, with `result.in_progress`.
"""

from postroad.inbox.inbox import Inbox
from postroad.inbox.record import (
    Acquired,
    AcquireState,
    ConsumeOptions,
    ConsumeResult,
    Lease,
    Record,
    Status,
)
from postroad.inbox.scheduler import RetryScheduler

__all__ = [
    "AcquireState",
    "Acquired",
    "ConsumeOptions",
    "ConsumeResult",
    "Inbox",
    "Lease",
    "Record",
    "RetryScheduler",
    "Status",
]
