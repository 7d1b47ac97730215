"""Events in a SQLAlchemy session: they wait with the other new objects and are written by the same flush.

As the session's own pending objects they follow its savepoints: what a rolled-back savepoint had added is
gone, also from memory.
"""

from itertools import count, groupby

from sqlalchemy import Column, MetaData, Table, Uuid, event
from sqlalchemy.orm import Session, UOWTransaction, registry

from postroad.outbox.statement import Row, execute
from postroad.outbox.wake import Wake
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable

_WAKES = "postroad_wakes"
_sequence = count()


class PendingEvent:
    """Known to the session as a new object; taken out again by `_write_pending` once its row is written."""

    def __init__(self, store: Store, table: OutboxTable, row: Row, wake: Wake) -> None:
        self.store, self.table, self.row, self.wake = store, table, row, wake
        self.order = (row["aggregate_type"], row["aggregate_id"], next(_sequence))

    @property
    def place(self) -> tuple[Store, OutboxTable]:
        return self.store, self.table


# The mapping only makes the session accept the object; no statement is ever generated from it.
registry().map_imperatively(PendingEvent, Table("postroad_pending", MetaData(), Column("id", Uuid, primary_key=True)))


def write_with_flush(session: Session, store: Store, table: OutboxTable, row: Row, wake: Wake) -> None:
    session.add(PendingEvent(store, table, row, wake))


@event.listens_for(Session, "before_flush")
def _write_pending(session: Session, context: UOWTransaction, instances: object) -> None:
    pending = [new for new in session.new if isinstance(new, PendingEvent)]
    if not pending:
        return
    # Sorted by aggregate (and within it as added), across all tables: two transactions that lock the
    # aggregates' counters in the same order cannot deadlock.
    pending.sort(key=lambda new: new.order)
    for (store, table), neighbours in groupby(pending, key=lambda new: new.place):
        execute(session.connection(), store, table, [new.row for new in neighbours])
    # Only now: had the write failed, the events must stay, or a later commit would go through without them.
    for new in pending:
        session.expunge(new)
        session.info.setdefault(_WAKES, set()).add(new.wake)


@event.listens_for(Session, "after_commit")
def _wake(session: Session) -> None:
    if not session.in_nested_transaction():
        for wake in session.info.pop(_WAKES, ()):
            wake.committed()
