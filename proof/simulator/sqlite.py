"""A SQLite file as a database server would be."""

import asyncio
import sqlite3
from collections import deque, namedtuple
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection as SQLAlchemyConnection
from sqlalchemy import event, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.util import await_only, greenlet_spawn

from postroad.stores.base import Result, Store
from postroad.stores.sqlite import driver
from postroad.stores.tables import OutboxTable
from proof.simulator.database import Database, Link, Server, create
from proof.simulator.process import Process, current
from proof.simulator.time import BEGINNING, LoopClock

if TYPE_CHECKING:
    from proof.simulator.world import World


_MANY = 1_000
_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})
"""What the driver takes as it is."""
_row_types: dict[str, Any] = {}
"""By statement."""


class SQLiteFile(Database):
    """The file, and connections to it that are used again: a new one would read the schema and plan anew."""

    def __init__(self, path: Path, tables: Sequence[str]) -> None:
        asyncio.run(create(f"sqlite:///{path}", tables))
        super().__init__([_open_store(straight=number < 4) for number in range(5)])
        self._path, template = path, path.with_suffix(".template")
        self.clock = LoopClock()
        self._moments: dict[float, str] = {}
        """As they were written: many statements are of the same moment."""
        self._admin = self._open()
        self._admin.execute("PRAGMA synchronous = OFF")
        self._admin.execute("VACUUM INTO ?", (str(template),))
        self._admin.execute("ATTACH ? AS template", (str(template),))
        found = self.ask("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_stat%'")
        self._tables = [table for (table,) in found]
        assert _written(BEGINNING) == self.stores[0].time_in(BEGINNING)

    def server_for(self, world: "World") -> Server:
        return SQLiteServer(world, self)

    def connect_anew(self) -> sqlite3.Connection:
        connection = self._open()
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA foreign_keys = ON")
        # Deterministic as far as a statement goes: time stands still while it runs.
        connection.create_function("postroad_now", 0, self._in, deterministic=True)
        connection.create_function("postroad_in", 1, self._in, deterministic=True)
        return connection

    def _open(self) -> sqlite3.Connection:
        # No other process uses the file, so its locks need not be the operating system's.
        address = f"file:{self._path}?vfs=unix-excl"
        return sqlite3.connect(address, uri=True, isolation_level=None, timeout=0, cached_statements=256)

    def _in(self, seconds: float = 0.0) -> str:
        moment = self.clock.monotonic() + seconds
        if moment not in self._moments:
            if len(self._moments) > _MANY:
                self._moments.clear()
            self._moments[moment] = _written(BEGINNING + timedelta(seconds=moment))
        return self._moments[moment]

    def close(self) -> None:
        for connection in (*self.idle, self._admin):
            connection.close()

    def ask(self, sql: str) -> list[Any]:
        return self._admin.execute(sql).fetchall()

    def empty(self) -> None:
        self._admin.execute("BEGIN IMMEDIATE")
        for (table,) in self.ask("SELECT name FROM main.sqlite_master WHERE name IN ('till_shadow', 'till_old')"):
            self._admin.execute(f"DROP TABLE main.{table}")  # of a rebuild that did not come to its end
        for table in self._tables:
            self._admin.execute(f'DELETE FROM main."{table}"')
            self._admin.execute(f'INSERT INTO main."{table}" SELECT * FROM template."{table}"')
        self._admin.execute("COMMIT")


def _written(moment: datetime) -> str:
    """As the store writes it, in a fraction of the time: hundreds of statements ask for it in every seed."""
    return f"{moment.isoformat(timespec='microseconds')[:-6]}Z"


class SQLiteServer(Server):
    """With the one write lock that a file has."""

    def __init__(self, world: "World", file: SQLiteFile) -> None:
        super().__init__(world)
        self.file = file
        self._writer: Connection | None = None
        self._queue: deque[tuple[Connection, asyncio.Future[None]]] = deque()

    def unreachable(self) -> Exception:
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorname = "SQLITE_CANTOPEN"
        return error

    def is_locked(self) -> bool:
        return self._writer is not None

    def keeps_out_others(self, process: Process) -> bool:
        holding = [self._writer] if self._writer else []
        return any(link.process is process for link in (*holding, *(waiting for waiting, _ in self._queue)))

    async def lock(self, connection: "Connection") -> None:
        if self._writer is None:
            self._writer = connection
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((connection, turn))
        try:
            async with asyncio.timeout(30):
                await turn
        except TimeoutError:
            raise connection.trouble("busy") from None

    def unlock(self, connection: "Connection") -> None:
        if self._writer is not connection:
            return
        self._writer = None
        while self._queue:
            waiting, turn = self._queue.popleft()
            if not turn.done() and waiting.open:
                self._writer = waiting
                turn.set_result(None)
                return


class Connection(Link):
    """What SQLAlchemy takes for an aiosqlite connection. Nothing here waits for a thread."""

    server: SQLiteServer

    def __init__(self, server: SQLiteServer, process: Process) -> None:
        super().__init__(server, process)
        self.raw: sqlite3.Connection = server.file.connect()

    @property
    def in_transaction(self) -> bool:
        return self.raw.in_transaction

    async def perform(self, sql: str, work: Callable[[], Any]) -> Any:
        if sql == "BEGIN IMMEDIATE":
            await self.server.lock(self)
            self.process.require_life()
        result = work()
        if sql == "COMMIT":
            self.server.unlock(self)
        return result

    def run(self, sql: str, values: Any = ()) -> "Fetched":
        return Fetched(self.raw.execute(sql, values))

    def roll_back(self) -> None:
        if self.open and self.raw.in_transaction:
            self.raw.rollback()
            self.server.unlock(self)

    def hang_up(self) -> None:
        self.raw.rollback()
        self.server.unlock(self)
        self.server.file.idle.append(self.raw)

    def trouble(self, kind: str) -> Exception:
        said = {
            "busy": ("SQLITE_BUSY", "database is locked"),
            "refused": ("SQLITE_IOERR", "disk I/O error"),
            "strange": ("SQLITE_ERROR", "something that nobody expects"),
        }
        name, words = said[kind]
        error = sqlite3.OperationalError(words)
        error.sqlite_errorname = name
        return error

    def broken_off(self) -> Exception:
        # The words by which SQLAlchemy knows it.
        error = sqlite3.ProgrammingError("Cannot operate on a closed database.")
        error.sqlite_errorname = "SQLITE_IOERR"
        return error

    # -- as SQLAlchemy's adapter sees it ------------------------------------------------------------------

    @property
    def _connection(self) -> sqlite3.Connection | None:
        return self.raw if self.open else None

    @property
    def _conn(self) -> sqlite3.Connection:
        return self.raw

    @property
    def _tx(self) -> "Connection":
        return self

    def put_nowait(self, job: tuple[asyncio.Future[Any], Callable[[], Any]]) -> None:
        future, work = job
        future.set_result(work())

    def cursor(self) -> "Cursor":
        return Cursor(self)

    async def create_function(self, *_: object, **__: object) -> None:
        """Those that anybody asks for are there."""

    async def commit(self) -> None:
        if self.open and self.raw.in_transaction:
            await self.statement("COMMIT", self.raw.commit)

    async def rollback(self) -> None:
        if self.open and self.raw.in_transaction:
            await self.undo()

    async def close(self) -> None:
        self.sever()

    def stop(self) -> None:
        self.sever()


class Fetched:
    """All of a statement's answer: what is left in a cursor would hold its snapshot."""

    __slots__ = ("description", "lastrowid", "rowcount", "rows")

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self.description, self.lastrowid = cursor.description, cursor.lastrowid
        self.rows = cursor.fetchall() if cursor.description is not None else []
        self.rowcount = cursor.rowcount


class Cursor:
    arraysize = 1
    description: Any = None
    rowcount = -1
    lastrowid: int | None = None

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rows: list[Any] = []

    async def __aenter__(self) -> "Cursor":
        return self

    async def execute(self, sql: str, values: Any = ()) -> "Cursor":
        # Most are settings, which every connection here has; who changes or asks about a table must be heard.
        if "table" in sql or not sql.startswith("PRAGMA"):
            link = self._connection
            self._take(await link.statement(sql, lambda: link.run(sql, values)))
        return self

    async def executemany(self, sql: str, values: Sequence[Any]) -> "Cursor":
        link = self._connection
        self._take(await link.statement(sql, lambda: Fetched(link.raw.executemany(sql, values))))
        return self

    def _take(self, fetched: Fetched) -> None:
        self._rows, self.description = fetched.rows, fetched.description
        self.rowcount, self.lastrowid = fetched.rowcount, fetched.lastrowid

    async def fetchall(self) -> list[Any]:
        return self._rows

    async def close(self) -> None:
        self._rows = []


class SimulatedSQLite(driver.SQLite):
    """The SQLite store with its own statements; only the way to the file is another."""

    server: SQLiteServer
    """Of the world that is being simulated: engines outlive worlds, because they take long to make."""

    async def execute(
        self, connection: Any, statement: str, /, outbox: OutboxTable | None = None, **values: Any
    ) -> Result:
        sql = self.sql(statement, outbox)
        adapted = {name: value if type(value) in _PLAIN else self.adapt(value) for name, value in values.items()}
        link = connection if isinstance(connection, Connection) else _beneath(connection)
        try:
            fetched = await link.statement(sql, lambda: link.run(sql, adapted), statement)
        except sqlite3.Error as error:
            if link is connection:
                raise
            # SQLAlchemy has to know, and says it in its own words.
            await greenlet_spawn(connection.sync_connection._handle_dbapi_exception, error, sql, adapted, None, None)
            raise
        return Result(_named(sql, fetched), fetched.rowcount)

    def list_in(self, values: list[Any]) -> object:
        # Hundreds of shards, the same ones each time.
        return self._as_list(tuple(values))

    @lru_cache(1_000)  # noqa: B019 — there are three stores, which live as long as the process
    def _as_list(self, values: tuple[Any, ...]) -> object:
        return super().list_in(list(values))

    change = Store.change  # on this way, and not on one of its own

    async def read(self, statement: str, /, outbox: OutboxTable | None = None, **values: Any) -> Result:
        """One round trip, as it is one call in the store."""
        async with _Straight(self, "") as connection:
            return await self.execute(connection, statement, outbox, **values)

    # Sessions go through SQLAlchemy, whose adapter is most of what a step costs; what needs none does without.

    straight = True

    def transaction(self) -> Any:
        return _Straight(self, "BEGIN IMMEDIATE") if self.straight else super().transaction()

    def reading(self) -> Any:
        return _Straight(self, "BEGIN") if self.straight else super().reading()

    async def reach(self, process: Process) -> "Connection":
        await process.step_outside()
        if self.server.away:
            raise self.server.unreachable()
        return Connection(self.server, process)

    async def watch(self, channel: str, wake: Callable[[], None], but_from: str = "") -> None:
        await self.server.watch(wake)
        raise self.translate(self.server.unreachable())


class _Straight:
    """A transaction, or none, on a connection of the process at work, past SQLAlchemy."""

    __slots__ = ("_begin", "_connection", "_process", "_store")

    def __init__(self, store: SimulatedSQLite, begin: str) -> None:
        self._store, self._begin = store, begin

    async def __aenter__(self) -> Connection:
        process = current.get()
        assert process is not None
        self._process = process
        try:
            self._connection = process.idle.pop() if process.idle else await self._store.reach(process)
        except sqlite3.Error as error:
            raise self._translated(error) from error
        link = self._connection
        try:
            if self._begin:
                await link.statement(self._begin, lambda: link.raw.execute(self._begin))
        except BaseException as error:
            self._done()
            if isinstance(error, sqlite3.Error):
                raise self._translated(error) from error
            raise
        return link

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None and self._begin == "BEGIN IMMEDIATE":
                await self._connection.commit()
        except sqlite3.Error as refused:
            raise self._translated(refused) from refused
        finally:
            self._done()
        if isinstance(error, sqlite3.Error):
            raise self._translated(error) from error

    def _done(self) -> None:
        self._connection.roll_back()
        if self._connection.open:
            self._process.idle.append(self._connection)

    def _translated(self, error: sqlite3.Error) -> Exception:
        try:
            with self._store.translating():
                raise DBAPIError(None, None, error) from error
        except Exception as translated:
            return translated


def _beneath(connection: AsyncConnection) -> Connection:
    """The link that SQLAlchemy's connection stands for."""
    assert connection.sync_connection is not None
    link = connection.sync_connection.connection.driver_connection
    assert isinstance(link, Connection)
    return link


def _named(sql: str, fetched: Fetched) -> list[Any]:
    if not fetched.rows:
        return []
    row = _row_types.get(sql)
    if row is None:
        row = _row_types[sql] = namedtuple("Row", [column[0] for column in fetched.description])
    return [tuple.__new__(row, values) for values in fetched.rows]


def _open_store(*, straight: bool) -> SimulatedSQLite:
    """Its connections go to the server that `store.server` names, in the name of the process that asks."""
    made = driver.open(make_url("sqlite:////simulated"), LoopClock())
    store = SimulatedSQLite(made.url, made._engine, made.clock)
    store.straight = straight

    # What the driver does at this point takes SQLAlchemy as long as a statement.
    made._engine.sync_engine.dispatch.begin.clear()

    @event.listens_for(made._engine.sync_engine, "begin")
    def begin(connection: SQLAlchemyConnection) -> None:
        link: Connection = connection.connection.driver_connection  # type: ignore[assignment]
        sql = "BEGIN" if connection.get_execution_options().get("postroad_read_only") else "BEGIN IMMEDIATE"
        try:
            await_only(link.statement(sql, lambda: link.raw.execute(sql)))
        except sqlite3.Error as error:
            connection._handle_dbapi_exception(error, sql, None, None, None)

    @event.listens_for(made._engine.sync_engine, "do_connect")
    def connect(dialect: object, record: object, args: object, parameters: dict[str, Any]) -> None:
        async def reach(*_: object, **__: object) -> Connection:
            process = current.get()
            assert process is not None
            return await store.reach(process)

        parameters["async_creator_fn"] = reach

    return store
