"""SQLite in a file, shared by several processes."""

import shutil
import sqlite3
import tempfile
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import create_async_engine

from postroad.clock import Clock
from postroad.stores.base import Result, Store
from postroad.stores.sqlite.direct import CHANGE, READ, Direct
from postroad.stores.sqlite.patience import BEGIN, PatientConnection
from postroad.stores.tables import OutboxTable, Syntax

_WATCH_INTERVAL = 0.02
_PATIENCE = 30.0
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"


class SQLite(Store):
    dialect = "sqlite"
    pools_by_loop = False
    one_writer = True
    names_refused_row = False
    pragmas: Sequence[str] = ("journal_mode = WAL", "foreign_keys = ON")
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
    )
    busy_codes = frozenset({"SQLITE_BUSY", "SQLITE_LOCKED"})
    missing_table_codes = frozenset({"no such table"})

    @property
    def host(self) -> str:
        return self.address

    @property
    def file(self) -> Path | None:
        return Path(str(self.url.database))

    def id_in(self, value: uuid.UUID) -> object:
        return str(value)

    def list_in(self, values: list[Any]) -> object:
        return super().list_in([str(value) if isinstance(value, uuid.UUID) else value for value in values])

    def time_in(self, value: datetime) -> object:
        return value.astimezone(UTC).strftime(_TIME_FORMAT)

    @cached_property
    def _direct(self) -> Direct:
        def connect() -> sqlite3.Connection:
            connection = sqlite3.connect(
                str(self.url.database), timeout=_PATIENCE, check_same_thread=False, factory=PatientConnection
            )
            self.prepare(connection)
            return connection

        return Direct(connect)

    def prepare(self, connection: Any) -> None:
        """A new connection, of this module's or of SQLAlchemy's."""
        # The driver would begin transactions lazily and deferred; we begin them ourselves.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in self.pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()
        # The clock of this database is the machine's, handed in so that a test can own it.
        clock = self.clock
        connection.create_function("postroad_now", 0, lambda: clock.now().astimezone(UTC).strftime(_TIME_FORMAT))
        connection.create_function("postroad_in", 1, lambda seconds: _later(clock, seconds))

    async def read(self, statement: str, /, outbox: OutboxTable | None = None, **values: Any) -> Result:
        return await self._run(READ, self.sql(statement, outbox), values)

    async def change(self, statement: str, /, outbox: OutboxTable | None = None, **values: Any) -> Result:
        return await self._run(CHANGE, self.sql(statement, outbox), values)

    async def _run(self, begin: str, sql: str, values: Mapping[str, Any]) -> Result:
        with self.translating():
            adapted = {name: self.adapt(value) for name, value in values.items()}
            return await self._direct.run(sql, adapted, begin=begin)

    async def aclose(self) -> None:
        if direct := self.__dict__.pop("_direct", None):
            await direct.aclose()
        await super().aclose()

    async def watch(self, channel: str, wake: Callable[[], None], but_from: str = "") -> None:
        """`data_version` changes when another connection has committed."""
        seen = None
        while True:
            (row,) = (await self._run(READ, "PRAGMA data_version", {})).rows
            if row != seen:
                seen = row
                wake()
            await self.clock.sleep(_WATCH_INTERVAL)

    def code_of(self, error: BaseException) -> str:
        origin = getattr(error, "orig", None) or error
        if str(origin).startswith("no such table"):
            return "no such table"
        # SQLITE_IOERR_WRITE and thirty others are an SQLITE_IOERR: the first two words tell the kind.
        return "_".join(str(getattr(origin, "sqlite_errorname", "")).split("_")[:2])

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

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Connection) -> None:
        # IMMEDIATE: a read that turns into a write fails at once, whatever the timeout, if another wrote.
        read_only = connection.get_execution_options().get("postroad_read_only")
        connection.exec_driver_sql("BEGIN" if read_only else BEGIN)

    store = SQLite(url, engine, clock)
    event.listen(engine.sync_engine, "connect", lambda connection, record: store.prepare(connection))
    if folder is not None:
        weakref.finalize(store, shutil.rmtree, folder, ignore_errors=True)
    return store


def _later(clock: Clock, seconds: float) -> str:
    moment = datetime.fromtimestamp(clock.now().timestamp() + seconds, UTC)
    return moment.strftime(_TIME_FORMAT)
