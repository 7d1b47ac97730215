"""A SQLite file as a database server would be: processes reach it through connections that can break."""

import asyncio
import sqlite3
from collections import deque, namedtuple
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import event, make_url

from postroad.stores.base import Result, Store
from postroad.stores.sqlite import driver
from postroad.stores.tables import OutboxTable
from proof.simulator.faults import COMMIT, STATEMENT
from proof.simulator.process import Process, current
from proof.simulator.time import LoopClock

if TYPE_CHECKING:
    from proof.simulator.world import World


name: ContextVar[str] = ContextVar("statement", default="")
"""Of the statement that is being run, as the store calls it."""


class Server:
    """The file, its one write lock, and who wants to hear of commits."""

    def __init__(self, world: "World", path: Path) -> None:
        self.world, self.path = world, path
        self.away = False
        self.watchers: set[tuple[Process, Callable[[], None]]] = set()
        self._writer: Connection | None = None
        self._queue: deque[tuple[Connection, asyncio.Future[None]]] = deque()

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
            raise trouble("SQLITE_BUSY") from None

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

    def committed(self) -> None:
        """Wake-ups may get lost, as real ones do."""
        for process, wake in sorted(self.watchers, key=lambda watcher: watcher[0].name):
            if process.alive and self.world.random.random() < 0.7:
                wake()


def trouble(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database is locked" if name == "SQLITE_BUSY" else "disk I/O error")
    error.sqlite_errorname = name
    return error


def broken_off() -> sqlite3.ProgrammingError:
    """The words by which SQLAlchemy knows that the connection is of no more use."""
    error = sqlite3.ProgrammingError("Cannot operate on a closed database.")
    error.sqlite_errorname = "SQLITE_IOERR"
    return error


class Connection:
    """What SQLAlchemy takes for an aiosqlite connection. Nothing here waits for a thread."""

    def __init__(self, server: Server, process: Process) -> None:
        self.server, self.process = server, process
        self.raw = sqlite3.connect(server.path, isolation_level=None, timeout=0, cached_statements=256)
        self.raw.execute("PRAGMA synchronous = OFF")
        self.open = True
        process.at_death.append(self.sever)

    # -- as a server and its clients see it ---------------------------------------------------------------

    async def statement(self, sql: str, work: Callable[[], Any]) -> Any:
        """One round trip. Whatever may happen to one happens here."""
        world, process = self.server.world, self.process
        process.require_life()
        is_commit = sql == "COMMIT"
        what = sql if sql in ("COMMIT", "BEGIN", "BEGIN IMMEDIATE") else name.get() or " ".join(sql.split()[:3])
        fault = world.fates.draw(COMMIT if is_commit else STATEMENT)
        with world.reaching(process, what, fault):
            await process.step_outside(world.fates.latency())
            if is_commit and fault in ("refused", "busy"):
                self._roll_back()  # as databases do when they cannot commit
            self._suffer(fault, before=True)
            if sql == "BEGIN IMMEDIATE":
                await self.server.lock(self)
                process.require_life()
            result = work()
            if is_commit:
                self.server.unlock(self)
                self.server.committed()
        with world.reaching(process, what, fault, done=True):
            if fault:
                await process.step_outside()
            self._suffer(fault, before=False)
        return result

    def _suffer(self, fault: str, *, before: bool) -> None:
        if self.server.away or not self.open:
            self.sever()
            raise broken_off()
        match fault, before:
            case ("killed before", True) | ("killed after", False):
                self.process.die()
            case ("cut before", True) | ("cut after", False):
                self.sever()
                raise broken_off()
            case "refused", True:
                raise trouble("SQLITE_IOERR")
            case "busy", True:
                raise trouble("SQLITE_BUSY")
            case "frozen", True:
                self.process.freeze(self.server.world.freeze_seconds())

    def sever(self) -> None:
        """The server rolls back for a client that is gone."""
        if self.open:
            self.open = False
            self.raw.rollback()
            self.raw.close()
            self.server.unlock(self)

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

    async def create_function(self, name: str, parameters: int, function: Callable[..., Any], **options: bool) -> None:
        """Those of the store tell the time, which is asked for each row, and stands still meanwhile."""
        if not name.startswith("postroad_"):
            self.raw.create_function(name, parameters, function, **options)
            return
        asked_at, told = -1.0, dict[tuple[float, ...], Any]()

        def ask(*values: float) -> Any:
            nonlocal asked_at, told
            if asked_at != (now := asyncio.get_running_loop().time()):
                asked_at, told = now, {}
            if values not in told:
                told[values] = function(*values)
            return told[values]

        self.raw.create_function(name, parameters, ask)

    async def commit(self) -> None:
        if self.open and self.raw.in_transaction:
            await self.statement("COMMIT", self.raw.commit)

    async def rollback(self) -> None:
        self._roll_back()

    def _roll_back(self) -> None:
        if self.open and self.raw.in_transaction:
            self.raw.rollback()
            self.server.unlock(self)

    async def close(self) -> None:
        self.sever()

    def stop(self) -> None:
        self.sever()


class Cursor:
    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._raw: sqlite3.Cursor | None = None

    async def __aenter__(self) -> "Cursor":
        return self

    async def execute(self, sql: str, values: Any = ()) -> "Cursor":
        if sql.startswith("PRAGMA"):  # settings of a connection that nobody has begun to use
            self._raw = self._connection.raw.execute(sql)
            return self
        self._raw = await self._connection.statement(sql, lambda: self._connection.raw.execute(sql, values))
        return self

    async def executemany(self, sql: str, values: Sequence[Any]) -> "Cursor":
        self._raw = await self._connection.statement(sql, lambda: self._connection.raw.executemany(sql, values))
        return self

    async def fetchall(self) -> list[Any]:
        assert self._raw is not None
        return self._raw.fetchall()

    async def close(self) -> None:
        if self._raw is not None and self._connection.open:
            self._raw.close()

    @property
    def description(self) -> Any:
        return self._raw.description if self._raw is not None else None

    @property
    def rowcount(self) -> int:
        return self._raw.rowcount if self._raw is not None else -1

    @property
    def lastrowid(self) -> int | None:
        return self._raw.lastrowid if self._raw is not None else None


class SimulatedStore(driver.SQLite):
    """The SQLite store with its own statements; only the way to the file is another."""

    server: Server
    """Of the world that is being simulated: engines outlive worlds, because they take long to make."""

    async def execute(
        self, connection: Any, statement: str, /, outbox: OutboxTable | None = None, **values: Any
    ) -> Result:
        name.set(statement)
        if not isinstance(connection, Connection):
            return await super().execute(connection, statement, outbox, **values)
        sql, adapted = self.sql(statement, outbox), {name: self.adapt(value) for name, value in values.items()}
        cursor = await connection.statement(sql, lambda: connection.raw.execute(sql, adapted))
        return Result(_rows(cursor), cursor.rowcount)

    read, change = Store.read, Store.change  # on this way, and not on one of their own

    # Sessions go through SQLAlchemy, whose adapter is most of what a step costs; what needs none does without.

    def transaction(self) -> Any:
        return self._straight("BEGIN IMMEDIATE")

    def reading(self) -> Any:
        return self._straight("BEGIN")

    @asynccontextmanager
    async def _straight(self, begin: str) -> AsyncIterator["Connection"]:
        process = current.get()
        assert process is not None
        try:
            connection = process.idle.pop() if process.idle else await self.reach(process)
            try:
                await connection.statement(begin, lambda: connection.raw.execute(begin))
                yield connection
                if begin == "BEGIN IMMEDIATE":
                    await connection.commit()
            finally:
                await connection.rollback()
                if connection.open:
                    process.idle.append(connection)
        except sqlite3.Error as error:
            raise self.translate(error) from error

    async def reach(self, process: Process) -> "Connection":
        await process.step_outside()
        if self.server.away:
            raise trouble("SQLITE_CANTOPEN")
        connection = Connection(self.server, process)
        await connection.create_function("postroad_now", 0, lambda: self.time_in(self.clock.now()))
        await connection.create_function(
            "postroad_in", 1, lambda seconds: self.time_in(self.clock.now() + timedelta(seconds=seconds))
        )
        return connection

    async def watch(self, channel: str, wake: Callable[[], None], but_from: str = "") -> None:
        process = current.get()
        assert process is not None
        self.server.watchers.add((process, wake))
        try:
            await asyncio.Event().wait()
        finally:
            self.server.watchers.discard((process, wake))


def _rows(cursor: sqlite3.Cursor) -> list[Any]:
    if cursor.description is None:
        return []
    row = _row_type(tuple(column[0] for column in cursor.description))
    return [row(*values) for values in cursor.fetchall()]


@cache
def _row_type(names: tuple[str, ...]) -> type[Any]:
    return namedtuple("Row", names)


def open_store() -> SimulatedStore:
    """Its connections go to the server that `store.server` names, in the name of the process that asks."""
    made = driver.open(make_url("sqlite:////simulated"), LoopClock())
    store = SimulatedStore(made.url, made._engine, made.clock)

    @event.listens_for(made._engine.sync_engine, "do_connect")
    def connect(dialect: object, record: object, args: object, parameters: dict[str, Any]) -> None:
        async def reach(*_: object, **__: object) -> Connection:
            process = current.get()
            assert process is not None
            return await store.reach(process)

        parameters["async_creator_fn"] = reach

    return store
