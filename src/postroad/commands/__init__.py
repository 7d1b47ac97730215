"""Commands: what somebody wants done, kept in the command box until it is done, once in effect.

    PENDING ──take──▶ PROCESSING ──▶ COMPLETED      with its domain events and their outbox rows, in one transaction
       ▲                   │
       └──── retry ◀─── FAILED                      with the reason, in a transaction of its own; the rest is undone

`road.execute` does it now and returns its events; `road.submit` writes it down in your transaction for a worker.
"""

from postroad.commands.box import CommandBox
from postroad.commands.declare import Commands
from postroad.commands.execution import Executor
from postroad.commands.record import CommandRecord, CommandStatus
from postroad.commands.submit import Submitted
from postroad.commands.worker import CommandWorker

__all__ = ["CommandBox", "CommandRecord", "CommandStatus", "CommandWorker", "Commands", "Executor", "Submitted"]
