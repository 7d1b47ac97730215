"""The caller's connection, whatever it is. All kinds run the same statement; only the executors differ."""

import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import cache, partial
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from postroad.errors import ConfigurationError, NoTransaction
from postroad.outbox.promises import promises_of
from postroad.outbox.session import write_with_flush
from postroad.outbox.statement import Row, conflict, execute
from postroad.outbox.wake import Wake
from postroad.stores import queries
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable

Write = Callable[[Any, Store, OutboxTable, Row, Wake], Coroutine[Any, Any, None] | None]


def write(target: Any, store: Store, table: OutboxTable, row: Row, wake: Wake) -> Coroutine[Any, Any, None] | None:
    """Write the row in the target's open transaction; a coroutine if the target can only be awaited."""
    kind: type = type(target)
    return _writer(kind)(target, store, table, row, wake)


@cache
def _writer(kind: type) -> Write:
    for base, writer in _SQLALCHEMY.items():
        if issubclass(kind, base):
            return writer
    # Drivers are found by module name, so that none has to be installed to use another.
    for base in kind.__mro__:
        module = base.__module__.split(".")[0]
        # Not a cursor and not a pool: those cannot tell whether a transaction is open.
        if not re.search(r"Connection(Proxy)?$", base.__name__):
            continue
        if module == "psycopg":
            return _write_psycopg_async if "Async" in base.__name__ else _write_psycopg
        if module in _DRIVERS:
            return _DRIVERS[module]
    raise ConfigurationError(
        f"`add` cannot write through a {kind.__module__}.{kind.__qualname__}. Pass a SQLAlchemy Session, "
        "AsyncSession, Connection or AsyncConnection, or a psycopg, asyncpg, PyMySQL or sqlite3 connection."
    )


# -- SQLAlchemy --------------------------------------------------------------------------------------


def _write_scoped(
    scoped: Any, store: Store, table: OutboxTable, row: Row, wake: Wake
) -> Coroutine[Any, Any, None] | None:
    return write(scoped.registry(), store, table, row, wake)


def _write_session(
    session: Session, store: Store, table: OutboxTable, row: Row, wake: Wake, begin: str = "with session.begin():"
) -> None:
    _require(_can_commit(session), begin, "session")
    if session._flushing:
        # One of its hooks adds: the flush has gathered its events, and would take this one for a row of its own.
        _write_connection(session.connection(), store, table, row, wake)
    else:
        write_with_flush(session, store, table, row, wake)


def _write_async_session(session: AsyncSession, store: Store, table: OutboxTable, row: Row, wake: Wake) -> None:
    _write_session(session.sync_session, store, table, row, wake, "async with session.begin():")


def _can_commit(session: Session) -> bool:
    """In its hooks `after_commit` and `after_rollback` a session is still in a transaction: one that has ended."""
    transaction = session.get_nested_transaction() or session.get_transaction()
    return transaction is not None and transaction.is_active


def _write_connection(connection: Connection, store: Store, table: OutboxTable, row: Row, wake: Wake) -> None:
    _require(connection.in_transaction(), "with engine.begin() as connection:", "connection")
    promises = promises_of(connection)
    promise = promises.make(row)
    execute(connection, store, table, [row])
    promises.keep(promise, wake)


def _write_async_connection(
    connection: AsyncConnection, store: Store, table: OutboxTable, row: Row, wake: Wake
) -> Coroutine[Any, Any, None]:
    _require(connection.in_transaction(), "async with engine.begin() as connection:", "connection", "await ")
    # Promised now and not when awaited, so that a forgotten `await` cannot go unnoticed at the commit.
    promises = promises_of(_sync_connection(connection))
    promise = promises.make(row)

    async def finish() -> None:
        await connection.run_sync(execute, store, table, [row])
        promises.keep(promise, wake)

    return finish()


def _sync_connection(connection: AsyncConnection) -> Connection:
    assert connection.sync_connection is not None  # there is one while a transaction is open
    return connection.sync_connection


_SQLALCHEMY: dict[type, Write] = {
    scoped_session: _write_scoped,
    async_scoped_session: _write_scoped,
    AsyncSession: _write_async_session,
    Session: _write_session,
    Connection: _write_connection,
    AsyncConnection: _write_async_connection,
}


# -- plain drivers -----------------------------------------------------------------------------------


def _may_be_elsewhere(connection: Any, store: Store, name: str | None) -> bool:
    """`name`: the database that the driver was given; asyncpg keeps it to itself. By way of a proxy ours may have
    another name, so that the database has the last word: it is asked once for each connection."""
    return not (name and store.is_ours(name)) and connection not in store.beside_us


def _settle_where(connection: Any, store: Store, told: Sequence[str | None]) -> None:
    store.refuse_other(told)
    store.beside_us.add(connection)


def _tuples(cursor: object) -> type:
    """Whatever shape the caller's rows have."""
    return tuple


def _in_transaction(psycopg_connection: Any) -> bool:
    idle = 0  # PQTRANS_IDLE of libpq
    return bool(psycopg_connection.pgconn.transaction_status != idle)


def _write_psycopg(connection: Any, store: Store, table: OutboxTable, row: Row, wake: Wake) -> None:
    _require(_in_transaction(connection), "with connection.transaction():", "connection")
    if _may_be_elsewhere(connection, store, connection.info.dbname):
        asking = connection.cursor(row_factory=_tuples)
        _settle_where(connection, store, asking.execute(store.databases_sql).fetchone())
    with _Translating(store, row):
        connection.execute(_restyled(store, table, "pyformat"), row)
    wake.soon()


def _write_psycopg_async(
    connection: Any, store: Store, table: OutboxTable, row: Row, wake: Wake
) -> Coroutine[Any, Any, None]:
    _require(_in_transaction(connection), "async with connection.transaction():", "connection", "await ")
    statement = _restyled(store, table, "pyformat")

    async def run() -> None:
        if _may_be_elsewhere(connection, store, connection.info.dbname):
            asking = connection.cursor(row_factory=_tuples)
            await asking.execute(store.databases_sql)
            _settle_where(connection, store, await asking.fetchone())
        await connection.execute(statement, row)

    return _finish(run, store, row, wake)


def _write_asyncpg(
    connection: Any, store: Store, table: OutboxTable, row: Row, wake: Wake
) -> Coroutine[Any, Any, None]:
    _require(connection.is_in_transaction(), "async with connection.transaction():", "connection", "await ")
    names = queries.parameters(store.sql("add_event", table))
    statement = _restyled(store, table, "numbered")
    values = [row[name] for name in names]
    return _finish(partial(connection.execute, statement, *values), store, row, wake)


async def _finish(run: Callable[[], Awaitable[Any]], store: Store, row: Row, wake: Wake) -> None:
    with _Translating(store, row):
        await run()
    wake.soon()


def _write_pymysql(connection: Any, store: Store, table: OutboxTable, row: Row, wake: Wake) -> None:
    in_transaction = 1  # SERVER_STATUS_IN_TRANS of the MySQL protocol
    _require(bool(connection.server_status & in_transaction), "connection.begin()", "connection")
    name = connection.db  # bytes, once it is connected
    if _may_be_elsewhere(connection, store, name.decode(connection.encoding) if isinstance(name, bytes) else name):
        from pymysql.cursors import Cursor  # whatever kind the caller's are

        with connection.cursor(Cursor) as asking:
            asking.execute(store.databases_sql)
            _settle_where(connection, store, asking.fetchone())
    with _Translating(store, row), connection.cursor() as cursor:
        cursor.execute(_restyled(store, table, "pyformat"), row)
    wake.soon()


def _write_sqlite3(connection: Any, store: Store, table: OutboxTable, row: Row, wake: Wake) -> None:
    _require(connection.in_transaction, 'connection.execute("BEGIN IMMEDIATE")', "connection")
    asking = connection.cursor()
    asking.row_factory = None  # whatever shape the caller's rows have
    store.refuse_other([file for (file,) in asking.execute(store.databases_sql)])
    with _Translating(store, row):
        connection.execute(store.sql("add_event", table), row)
    wake.soon()


_DRIVERS: dict[str, Write] = {"asyncpg": _write_asyncpg, "pymysql": _write_pymysql, "sqlite3": _write_sqlite3}


@cache
def _restyled(store: Store, table: OutboxTable, style: str) -> str:
    return queries.restyle(store.sql("add_event", table), style)


class _Translating:
    def __init__(self, store: Store, row: Row) -> None:
        self._store, self._row = store, row

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception):
            return
        if self._store.is_version_conflict(error):
            raise conflict(self._row) from None
        code = self._store.code_of(error)
        if code in self._store.busy_codes:
            raise self._store.translate(error) from error
        if code in self._store.missing_table_codes:
            raise self._store.tables_missing() from error


def _require(open: bool, begin: str, name: str, prefix: str = "") -> None:
    if not open:
        raise NoTransaction(_no_transaction(begin, name, prefix))


def _no_transaction(begin: str, name: str, prefix: str = "") -> str:
    return (
        "No transaction is open, or it has ended already, so the event could not commit together with your rows. "
        f"Write:\n\n    {begin}\n        …your rows…\n        {prefix}road.add({name}, event)\n"
    )
