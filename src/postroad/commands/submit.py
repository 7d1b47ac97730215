"""Writing a command down in the caller's transaction, for a worker to carry out after its commit."""

import warnings
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from postroad.commands.record import columns_of, record_of
from postroad.errors import ConfigurationError, NoTransaction
from postroad.message import Message
from postroad.stores.base import Store

Target = Session | AsyncSession | Connection | AsyncConnection


class Submitted:
    """What `submit` returns. Await it when the session or connection is asynchronous; elsewhere that does no harm."""

    __slots__ = ("_pending", "id", "message")

    def __init__(self, message: Message, pending: Coroutine[Any, Any, None] | None) -> None:
        self.message, self.id = message, message.id
        self._pending = pending

    def __await__(self) -> Generator[Any, Any, "Submitted"]:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            yield from pending.__await__()
        return self

    def __del__(self) -> None:
        if self._pending is not None:
            self._pending.close()
            warnings.warn(
                f"{self.message.type} {self.id} was NOT stored, because its `submit` was never awaited. "
                "Write: await road.submit(session, command)",
                RuntimeWarning,
                stacklevel=2,
                source=self,
            )


def submit(target: Target, store: Store, message: Message, wake: Callable[[], None]) -> Submitted:
    if not isinstance(target, Session | AsyncSession | Connection | AsyncConnection):
        raise ConfigurationError(
            f"`submit` cannot write through a {type(target).__qualname__}. "
            "Pass a SQLAlchemy Session, AsyncSession, Connection or AsyncConnection."
        )
    if not target.in_transaction():
        raise NoTransaction(
            "No transaction is open, so the command could not commit together with your rows. "
            "Write: async with session.begin(): await road.submit(session, command)"
        )
    if isinstance(target, AsyncSession | AsyncConnection):
        return Submitted(message, _later(target, store, message, wake))
    _write(target, store, message)
    wake()
    return Submitted(message, None)


async def _later(
    target: AsyncSession | AsyncConnection, store: Store, message: Message, wake: Callable[[], None]
) -> None:
    await target.run_sync(_write, store, message)
    wake()


def _write(target: Session | Connection, store: Store, message: Message) -> None:
    """Written once, however often the same command is submitted."""
    connection = target.connection() if isinstance(target, Session) else target
    values = {name: store.adapt(value) for name, value in columns_of(message).items()}
    with store.translating():
        try:
            new = connection.execute(store.clause("command_submit"), values).rowcount
        except IntegrityError as error:
            if store.code_of(error) not in store.duplicate_codes:
                raise
            new = 0
        if not new:
            _check_same(connection, store, message)


def _check_same(connection: Connection, store: Store, message: Message) -> None:
    row = connection.execute(store.clause("command_find"), {"command_id": store.id_in(message.id)}).one()
    record_of(row, store).check_same(message)
