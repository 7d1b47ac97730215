"""The transaction in which a handler runs. It is ours to end, not the handler's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, AsyncSessionTransaction

from postroad.errors import ConfigurationError, StoreBusy, StoreError, StoreUnavailable
from postroad.stores.base import Store


@asynccontextmanager
async def handling(store: Store) -> AsyncIterator[AsyncSession]:
    """A session whose transaction commits at the end. Only the store's outages become StoreErrors."""
    async with store.session() as session:
        transaction, connection = await _begin(store, session)
        try:
            with store.keeping_others_out(connection):
                yield session
            _check_still_open(session, transaction)
            await session.commit()
        except SQLAlchemyError as error:
            if outage := _outage(store, error):
                raise outage from error
            raise


async def _begin(store: Store, session: AsyncSession) -> tuple[AsyncSessionTransaction, AsyncConnection]:
    with store.translating():
        transaction = await session.begin()
        # Now, not at the first statement: SQLite's write lock then covers the whole handler.
        return transaction, await session.connection()


def _check_still_open(session: AsyncSession, transaction: AsyncSessionTransaction) -> None:
    if session.sync_session.get_transaction() is not transaction.sync_transaction or not transaction.is_active:
        # Going on would acknowledge an event whose effect, and record, may have been rolled back.
        raise ConfigurationError(
            "The handler ended the transaction it was given. Leave commit and rollback to Postroad; "
            "raise an error to roll back."
        )


def _outage(store: Store, error: SQLAlchemyError) -> StoreError | None:
    """Nothing else is translated: a table that the handler misses is not one of ours, whatever its code."""
    translated = store.translate(error)
    return translated if isinstance(translated, StoreBusy | StoreUnavailable) else None
