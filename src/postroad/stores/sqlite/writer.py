"""Who holds the write lock: a handler that waits for its own transaction would wait for ever."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import ExceptionContext

from postroad.errors import SecondWriter
from postroad.stores.sqlite.patience import WRITE

_LIMITED: Final = "postroad_reads_only"
_holding: ContextVar[tuple[tuple[Path, Connection], ...]] = ContextVar("postroad_sqlite_writers", default=())


@contextmanager
def writing(file: Path, connection: Connection) -> Iterator[None]:
    """What runs inside, and whatever it starts, is part of this transaction's work: it cannot outwait it."""
    outside = _holding.get()
    _holding.set((*outside, (file, connection)))
    try:
        yield
    finally:
        _holding.set(outside)  # not by token: a handler that was dropped is finished in another context


def begin_transactions(engine: Engine, file: Path) -> None:
    """Decides, for every transaction of the engine, how it begins."""

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        read_only = connection.get_execution_options().get("postroad_read_only")
        inside = not read_only and _is_held(file)
        if inside or _LIMITED in connection.info:
            _limit(connection, inside)
        # IMMEDIATE: a read that turns into a write fails at once, whatever the timeout, if another wrote.
        connection.exec_driver_sql("BEGIN" if read_only or inside else WRITE)

    @event.listens_for(engine, "handle_error")
    def explain(context: ExceptionContext) -> None:
        if context.connection is not None and _LIMITED in context.connection.info and _is_write(context):
            raise SecondWriter from context.original_exception


def _is_held(file: Path) -> bool:
    """By the transaction we are part of, that is; one that has ended, or lost its connection, holds nothing."""
    return any(
        held == file and not by.closed and not by.invalidated and by.in_transaction() for held, by in _holding.get()
    )


def _limit(connection: Connection, inside: bool) -> None:
    """Reading beside the handler is harmless. The connection goes back to the pool, where others must find it whole."""
    connection.exec_driver_sql(f"PRAGMA query_only = {int(inside)}")
    if inside:
        connection.info[_LIMITED] = True
    else:
        del connection.info[_LIMITED]


def _is_write(context: ExceptionContext) -> bool:
    error: Any = context.original_exception
    return getattr(error, "sqlite_errorname", "") == "SQLITE_READONLY"
