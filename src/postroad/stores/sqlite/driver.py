"""SQLite in a file, shared by several processes."""

import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import create_async_engine

from postroad.clock import Clock
from postroad.stores.base import Store
from postroad.stores.sqlite.patience import BEGIN, PatientConnection
from postroad.stores.tables import Syntax

_WATCH_INTERVAL = 0.02
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"


class SQLite(Store):
    dialect = "sqlite"
    pools_by_loop = False
    one_writer = True
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

    async def watch(self, channel: str, wake: Callable[[], None], but_from: str = "") -> None:
        """`data_version` changes when another connection has committed; asking costs a few microseconds."""
        async with self.engine.connect() as connection:
            await connection.execution_options(postroad_read_only=True)
            seen = None
            while True:
                row = (await connection.exec_driver_sql("PRAGMA data_version")).scalar()
                await connection.rollback()
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
        connect_args={"timeout": 30.0, "factory": PatientConnection},
        pool_size=10,
        max_overflow=20,
    )

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, record: object) -> None:
        # The driver would begin transactions lazily and deferred; `begin` below does it right.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()
        # The clock of this database is the machine's, handed in so that a test can own it.
        connection.create_function("postroad_now", 0, lambda: clock.now().astimezone(UTC).strftime(_TIME_FORMAT))
        connection.create_function("postroad_in", 1, lambda seconds: _later(clock, seconds))

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Connection) -> None:
        # IMMEDIATE: a read that turns into a write fails at once, whatever the timeout, if another wrote.
        read_only = connection.get_execution_options().get("postroad_read_only")
        connection.exec_driver_sql("BEGIN" if read_only else BEGIN)

    store = SQLite(url, engine, clock)
    if folder is not None:
        weakref.finalize(store, shutil.rmtree, folder, ignore_errors=True)
    return store


def _later(clock: Clock, seconds: float) -> str:
    moment = datetime.fromtimestamp(clock.now().timestamp() + seconds, UTC)
    return moment.strftime(_TIME_FORMAT)
