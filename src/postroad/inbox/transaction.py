"""The transaction in which a handler runs. It is ours to end, not the handler's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakSet

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session, SessionTransaction

from postroad.errors import ConfigurationError, StoreBusy, StoreError, StoreUnavailable
from postroad.stores.base import Store

_NOT_THE_HANDLERS: Final = (
    "The handler ended the transaction it was given. Leave commit and rollback to Postroad; "
    "raise an error to roll back."
)


@asynccontextmanager
async def handling(store: Store) -> AsyncIterator[tuple[AsyncSession, AsyncConnection]]:
    """A session whose transaction commits at the end, and its connection. Only outages become StoreErrors."""
    session = AsyncSession(store.engine, expire_on_commit=False)
    try:
        with store.translating():
            # Now, not at the first statement: SQLite's write lock then covers the whole handler.
            transaction, begun = await session.run_sync(_begin)
        connection = AsyncConnection(store.engine, begun)
        _not_to_commit.add(begun)
        try:
            with store.keeping_others_out(connection):
                yield session, connection
            _check_still_open(session, transaction, begun)
            _check_not_rolled_back(store, connection)
            _not_to_commit.discard(begun)
            await session.run_sync(_commit)
        except SQLAlchemyError as error:
            if outage := _outage(store, error):
                raise outage from error
            raise
    finally:
        if session.in_transaction():  # else it holds no connection
            async with session:
                pass  # its end rolls back, whoever cancels us meanwhile


_not_to_commit: WeakSet[Connection] = WeakSet()
"""Connections that handlers use now. What one of them commits, through its session or on the connection itself, would
keep the event's record, and half of its effect."""


# For every engine, once: listening on each connection would cost more than the commit itself.
@event.listens_for(Engine, "commit")
def _commit_on_the_connection(connection: Connection) -> None:
    if connection in _not_to_commit:
        connection.connection.rollback()  # SQLAlchemy takes the transaction for ended now, whatever is raised here
        raise ConfigurationError(_NOT_THE_HANDLERS)


# Each in one go: every step of an AsyncSession costs a switch of its own, together more than the statements.


def _begin(session: Session) -> tuple[SessionTransaction, Connection]:
    return session.begin(), session.connection()


def _commit(session: Session) -> None:
    session.commit()
    session.close()


def _check_still_open(session: AsyncSession, transaction: SessionTransaction, connection: Connection) -> None:
    unchanged = session.sync_session.get_transaction() is transaction and transaction.is_active
    if not (unchanged and connection.in_transaction()):
        # Going on would acknowledge an event whose effect, and record, may have been rolled back.
        raise ConfigurationError(_NOT_THE_HANDLERS)


def _check_not_rolled_back(store: Store, connection: AsyncConnection) -> None:
    if store.is_rolled_back(connection):
        # PostgreSQL answers COMMIT with ROLLBACK then, and no error: the event would be acknowledged and lost. A
        # deadlock on MySQL would cost what came before it, the event's record included.
        raise ConfigurationError(
            "A statement of the handler failed, and with it the whole transaction, but the handler went on. "
            "Let the error pass; on PostgreSQL, what may fail goes into `async with session.begin_nested():`."
        )


def _outage(store: Store, error: SQLAlchemyError) -> StoreError | None:
    """Nothing else is translated: a table that the handler misses is not one of ours, whatever its code."""
    translated = store.translate(error)
    return translated if isinstance(translated, StoreBusy | StoreUnavailable) else None
