"""Events in a SQLAlchemy session: they wait with the other new objects and are written by the same flush.

As the session's own pending objects they follow its savepoints: what a rolled-back savepoint had added is
gone, also from memory. Each is a promise, too: a session that was made to forget one (`expunge_all`) does not commit.
"""

from itertools import count, groupby

from sqlalchemy import Column, MetaData, Table, Uuid, event
from sqlalchemy.orm import Session, SessionTransaction, UOWTransaction, registry

from postroad.errors import WriteRefused
from postroad.outbox.promises import Promise
from postroad.outbox.statement import Row, execute
from postroad.outbox.wake import Wake
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable

_PROMISED = "postroad_promised"
_WAKES = "postroad_wakes"
_sequence = count()


class PendingEvent(Promise):
    """Known to the session as a new object; taken out again once its row is written."""

    def __init__(
        self, row: Row, store: Store, table: OutboxTable, wake: Wake, transaction: SessionTransaction | None
    ) -> None:
        super().__init__(row)
        self.store, self.table, self.wake, self.transaction = store, table, wake, transaction
        self.order = (row["aggregate_type"], row["aggregate_id"], next(_sequence))

    @property
    def place(self) -> tuple[Store, OutboxTable]:
        return self.store, self.table


# The mapping only makes the session accept the object; no statement is ever generated from it.
registry().map_imperatively(PendingEvent, Table("postroad_pending", MetaData(), Column("id", Uuid, primary_key=True)))


def write_with_flush(session: Session, store: Store, table: OutboxTable, row: Row, wake: Wake) -> None:
    transaction = session.get_nested_transaction() or session.get_transaction()
    new = PendingEvent(row, store, table, wake, transaction)
    session.info.setdefault(_PROMISED, set()).add(new)
    session.add(new)


@event.listens_for(Session, "before_flush")
def _write_pending(session: Session, context: UOWTransaction, instances: object) -> None:
    promised = session.info.get(_PROMISED)
    if not promised:
        return
    # Sorted by aggregate (and within it as added), across all tables: two transactions that lock the
    # aggregates' counters in the same order cannot deadlock.
    pending = sorted((new for new in promised if new in session), key=lambda new: new.order)
    for (store, table), neighbours in groupby(pending, key=lambda new: new.place):
        execute(session.connection(), store, table, [new.row for new in neighbours])
    # Only now: had the write failed, the events must stay, or a later commit would go through without them.
    for new in pending:
        session.expunge(new)
        promised.discard(new)
        session.info.setdefault(_WAKES, set()).add(new.wake)


@event.listens_for(Session, "before_commit")
def _refuse_forgotten(session: Session) -> None:
    """What the session still knows is written by the flush that follows."""
    for new in session.info.get(_PROMISED, ()):
        if new not in session:
            raise WriteRefused(
                f"The event {new} was added to this session, which was then made to forget it (by `expunge` or "
                "`expunge_all`). Nothing was committed. Roll back, or flush before you expunge."
            )


@event.listens_for(Session, "after_transaction_end")
def _take_back(session: Session, transaction: SessionTransaction) -> None:
    """Also those of a savepoint; one that was released has none left."""
    if promised := session.info.get(_PROMISED):
        session.info[_PROMISED] = {new for new in promised if new.transaction is not transaction}


@event.listens_for(Session, "after_commit")
def _wake(session: Session) -> None:
    if not session.in_nested_transaction():
        for wake in session.info.pop(_WAKES, ()):
            wake.committed()
