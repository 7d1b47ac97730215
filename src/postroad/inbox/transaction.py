"""The transaction in which a handler runs. It is ours to end, not the handler's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session, SessionTransaction

from postroad.errors import ConfigurationError, StoreBusy, StoreError, StoreUnavailable
from postroad.stores.base import Store


@asynccontextmanager
async def handling(store: Store) -> AsyncIterator[tuple[AsyncSession, AsyncConnection]]:
    """A session whose transaction commits at the end, and its connection. Only outages become StoreErrors."""
    session = store.session()
    try:
        with store.translating():
            # Now, not at the first statement: SQLite's write lock then covers the whole handler.
            transaction, connection = await session.run_sync(_begin)
        proxy = AsyncConnection(store.engine, connection)
        try:
            with store.keeping_others_out(proxy):
                yield session, proxy
            _check_still_open(session, transaction)
            await session.run_sync(_commit)
        except SQLAlchemyError as error:
            if outage := _outage(store, error):
                raise outage from error
            raise
    finally:
        if session.in_transaction():
            async with session:
                pass  # its end rolls back, whoever cancels us meanwhile


# Each in one go: every step of an AsyncSession costs a switch of its own, together more than the statements.


def _begin(session: Session) -> tuple[SessionTransaction, Connection]:
    return session.begin(), session.connection()


def _commit(session: Session) -> None:
    session.commit()
    session.close()


def _check_still_open(session: AsyncSession, transaction: SessionTransaction) -> None:
    if session.sync_session.get_transaction() is not transaction or not transaction.is_active:
        # Going on would acknowledge an event whose effect, and record, may have been rolled back.
        raise ConfigurationError(
            "The handler ended the transaction it was given. Leave commit and rollback to Postroad; "
            "raise an error to roll back."
        )


def _outage(store: Store, error: SQLAlchemyError) -> StoreError | None:
    """Nothing else is translated: a table that the handler misses is not one of ours, whatever its code."""
    translated = store.translate(error)
    return translated if isinstance(translated, StoreBusy | StoreUnavailable) else None
