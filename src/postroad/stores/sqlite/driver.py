"""SQLite in a file, shared by several processes."""

import shutil
import sqlite3
import tempfile
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy import Table, event
from sqlalchemy.dialects.sqlite import Insert
from sqlalchemy.engine import URL, ExceptionContext
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from postroad.clock import Clock
from postroad.stores.base import Result, Store
from postroad.stores.sqlite.direct import Direct
from postroad.stores.sqlite.patience import WRITE, PatientConnection
from postroad.stores.sqlite.writer import begin_transactions, writing
from postroad.stores.tables import OutboxTable, Syntax

_WATCH_INTERVAL = 0.02
_PATIENCE = 30.0
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"


class SQLite(Store):
    dialect = "sqlite"
    pools_by_loop = False
    one_writer = True
    # More than one with ATTACH, and one without a file is in memory.
    databases_sql = "SELECT coalesce(nullif(file, ''), ':memory:') FROM pragma_database_list"
    names_refused_row = False
    unreachable_cure = "Does its folder exist, and may it be written to?"
    syntax = Syntax(
        mark='"',
        argument="NEW.",
        given="(SELECT version FROM postroad_version"
        " WHERE aggregate_type = NEW.aggregate_type AND aggregate_id = NEW.aggregate_id)",
        payload_in={
            "bytes": "NEW.payload",
            "text": "CAST(NEW.payload AS TEXT)",
            "json": "CAST(NEW.payload AS TEXT)",
        },
        payload_out={"bytes": "{column}", "text": "{column}", "json": "{column}"},
        id_types={"native": "TEXT", "text": "TEXT"},
        id_in_list={"native": "j.id", "text": "j.id"},
        id_as={"native": "{id}", "text": "{id}"},
        contains={
            "column": "INSTR({column}, :text) > 0",
            **dict.fromkeys(
                ("bytes", "text", "json"), "INSTR(CAST({column} AS BLOB), CAST(:payload_text AS BLOB)) > 0"
            ),
        },
    )
    busy_codes = frozenset({"SQLITE_BUSY", "SQLITE_LOCKED"})
    missing_table_codes = frozenset({"no such table"})

    def __init__(self, url: URL, engine: AsyncEngine, clock: Clock) -> None:
        super().__init__(url, engine, clock)
        self.pragmas = ["journal_mode = WAL", "foreign_keys = ON"]
        """Set on each new connection."""

    @property
    def host(self) -> str:
        return self.address

    @property
    def file(self) -> Path:
        return Path(str(self.url.database))

    @cached_property
    def _resolved(self) -> Path:
        # Once: it asks the file system for every folder above the file, and handlers ask for it with every event.
        return self.file.resolve()

    def keeping_others_out(self, connection: AsyncConnection) -> AbstractContextManager[None]:
        assert connection.sync_connection is not None  # there is one while it is open
        return writing(self._resolved, connection.sync_connection)

    async def swap(self, connection: AsyncConnection, schema: str, *, live: str, shadow: str, old: str) -> None:
        # Else views would follow the old table under its new name, and one that is broken would be in the way.
        await connection.exec_driver_sql("PRAGMA legacy_alter_table = ON")
        try:
            await super().swap(connection, schema, live=live, shadow=shadow, old=old)
        finally:
            await connection.exec_driver_sql("PRAGMA legacy_alter_table = OFF")

    def id_in(self, value: uuid.UUID) -> object:
        return str(value)

    def list_in(self, values: list[Any]) -> object:
        return super().list_in([str(value) if isinstance(value, uuid.UUID) else value for value in values])

    def time_in(self, value: datetime) -> object:
        return value.astimezone(UTC).strftime(_TIME_FORMAT)

    @cached_property
    def _reader(self) -> Direct:
        return Direct(self._connect, "BEGIN")

    @cached_property
    def _writer(self) -> Direct:
        # Of its own: it may wait for the lock of a handler that waits for something to be read.
        return Direct(self._connect, WRITE)

    def _connect(self) -> sqlite3.Connection:
        connection = PatientConnection(str(self.url.database), timeout=_PATIENCE, check_same_thread=False)
        try:
            _prepare(connection, self.pragmas, self.clock)
        except BaseException:
            connection.close()
            raise
        return connection

    async def read(self, statement: str, /, outbox: OutboxTable | None = None, **values: Any) -> Result:
        return await self._run(self._reader, self.sql(statement, outbox), values)

    async def change(self, statement: str, /, outbox: OutboxTable | None = None, **values: Any) -> Result:
        return await self._run(self._writer, self.sql(statement, outbox), values)

    async def _run(self, direct: Direct, sql: str, values: Mapping[str, Any]) -> Result:
        with self.translating():
            return await direct.run(sql, {name: self.adapt(value) for name, value in values.items()})

    async def aclose(self) -> None:
        for name in ("_reader", "_writer"):
            if direct := self.__dict__.pop(name, None):
                await direct.aclose()
        await super().aclose()

    def insert(self, table: Table) -> Insert:
        return Insert(table)

    async def watch(self, channel: str, wake: Callable[[], None], but_from: str = "") -> None:
        """`data_version` changes when another connection has committed; a new connection counts anew."""
        seen = None
        while True:
            (row,) = (await self._run(self._reader, "PRAGMA data_version", {})).rows
            if (now := (self._reader.connected, row)) != seen:
                seen = now
                wake()
            await self.clock.sleep(_WATCH_INTERVAL)

    def is_ours(self, database: str) -> bool:
        # Mostly as it is: to resolve a path asks the file system for each of its folders.
        return database == str(self._resolved) or Path(database).resolve() == self._resolved

    def code_of(self, error: BaseException) -> str:
        origin = getattr(error, "orig", None) or error
        if str(origin).startswith("no such table"):
            return "no such table"
        # SQLITE_IOERR_WRITE and thirty others are an SQLITE_IOERR: the first two words tell the kind.
        return "_".join(str(getattr(origin, "sqlite_errorname", "")).split("_")[:2])

    def ends_transaction(self, context: ExceptionContext) -> bool:
        # A full disk may do it, or OR ROLLBACK in a statement.
        connection = context.connection
        if connection is None or connection.invalidated or str(context.statement).startswith("BEGIN"):
            return False
        driver: Any = connection.connection.driver_connection
        return not driver.in_transaction

    def is_disconnect(self, error: Exception) -> bool:
        return self.code_of(error) in {"SQLITE_CANTOPEN", "SQLITE_IOERR", "SQLITE_FULL"}


def open(url: URL, clock: Clock) -> Store:
    folder = None
    if url.database in (None, "", ":memory:"):
        # A database in memory is one connection, and transactions need several: a file that nobody keeps, then.
        folder = tempfile.mkdtemp(prefix="postroad-")
        url = url.set(database=str(Path(folder) / "memory.db"))
    engine = create_async_engine(
        url.set(drivername="sqlite+aiosqlite"),
        connect_args={"timeout": _PATIENCE, "factory": PatientConnection},
        pool_size=10,
        max_overflow=20,
    )

    store = SQLite(url, engine, clock)
    begin_transactions(engine.sync_engine, store._resolved)
    pragmas = store.pragmas

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, record: object) -> None:
        _prepare(connection, pragmas, clock)

    if folder is not None:
        weakref.finalize(store, shutil.rmtree, folder, ignore_errors=True)
    return store


def _prepare(connection: Any, pragmas: Sequence[str], clock: Clock) -> None:
    """A new connection, of ours or of SQLAlchemy's."""
    # The driver would begin transactions lazily and deferred; we begin them ourselves.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in pragmas:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
    # The clock of this database is the machine's, handed in so that a test can own it.
    connection.create_function("postroad_now", 0, lambda: clock.now().astimezone(UTC).strftime(_TIME_FORMAT))
    # Its SQL has no way from hexadecimal text to a number. 40 random bits of an id: millions add up without overflow.
    connection.create_function("postroad_sum", 1, lambda id: int(id[-10:], 16), deterministic=True)
    connection.create_function("postroad_in", 1, lambda seconds: _later(clock, seconds))


def _later(clock: Clock, seconds: float) -> str:
    moment = datetime.fromtimestamp(clock.now().timestamp() + seconds, UTC)
    return moment.strftime(_TIME_FORMAT)
