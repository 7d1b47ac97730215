"""A real PostgreSQL server on virtual time: its answers are waited for in place, its clock is the simulator's."""

import asyncio
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import event, make_url
from sqlalchemy.exc import DBAPIError

from postroad.stores.base import Notifier, Result, Store
from postroad.stores.postgresql import driver
from postroad.stores.postgresql.direct import Autocommit, execute
from postroad.stores.tables import OutboxTable
from proof.simulator.database import Database, Link, Server, create, named
from proof.simulator.process import Process, current
from proof.simulator.time import LoopClock

if TYPE_CHECKING:
    from proof.simulator.world import World

_LOCK_PAUSE, _LONGEST_LOCK = 0.005, 20.0
_COUNTED = "INTEGER PRIMARY KEY AUTOINCREMENT"
_OURS = (
    "outbox", "version", "worker", "inbox", "handler", "audit",
    "command_box", "domain_events", "projections", "projection_journal",
)  # fmt: skip
_THEIRS = ("booking", "effect", "till", "moved", "asked")
_EMPTIED = ", ".join((*_THEIRS, *(f"postroad_{table}" for table in _OURS)))
_CLOCKS = """
CREATE SCHEMA simulated;
CREATE FUNCTION simulated.clock_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS
  $$ SELECT COALESCE(NULLIF(current_setting('simulator.now', true), '')::timestamptz, pg_catalog.clock_timestamp()) $$;
CREATE FUNCTION simulated.now() RETURNS timestamptz LANGUAGE sql STABLE AS
  $$ SELECT COALESCE(NULLIF(current_setting('simulator.now', true), '')::timestamptz, pg_catalog.now()) $$;
"""


@contextmanager
def fresh_database(server: str, tables: Sequence[str]) -> Iterator["PostgreSQLDatabase"]:
    fresh = f"simulator_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {fresh} TEMPLATE template0 STRATEGY wal_log")
        try:
            # What comes first is found first: the simulator's clocks before the server's own.
            admin.execute(f"ALTER DATABASE {fresh} SET search_path = simulated, pg_catalog, public")
            database = PostgreSQLDatabase(make_url(server).set(database=fresh).render_as_string(False), tables)
            try:
                yield database
            finally:
                database.close()
        finally:
            admin.execute(f"DROP DATABASE IF EXISTS {fresh} WITH (FORCE)")


class PostgreSQLDatabase(Database):
    def __init__(self, url: str, tables: Sequence[str]) -> None:
        super().__init__([_open_store(url) for _ in range(5)])
        self._url = url
        self._admin = psycopg.connect(url, autocommit=True)
        self._admin.execute(_CLOCKS)
        asyncio.run(create(url, [table.replace(_COUNTED, "BIGSERIAL PRIMARY KEY") for table in tables]))
        for (table,) in self.ask("SELECT tablename FROM pg_tables WHERE schemaname = 'simulated'"):
            # Rows must not move because some time has passed outside.
            self._admin.execute(f'ALTER TABLE "{table}" SET (autovacuum_enabled = false)')

    def server_for(self, world: "World") -> Server:
        return PostgreSQLServer(world, self)

    def connect_anew(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(self._url, autocommit=True)
        # Nobody can let go of a lock while we wait for it: the wait happens here, in virtual time.
        connection.execute("SET lock_timeout = '1ms'; SET jit = off; SET synchronous_commit = off")
        return connection

    def ask(self, sql: str) -> list[Any]:
        return self._admin.execute(sql).fetchall()

    def forget(self, store: Store) -> None:
        super().forget(store)
        store.__dict__.pop("_autocommit", None)

    def empty(self) -> None:
        self._admin.execute("DROP TABLE IF EXISTS till_shadow, till_old")
        self._admin.execute(f"TRUNCATE {_EMPTIED} RESTART IDENTITY")
        self._admin.execute("UPDATE postroad_shard SET owner = NULL, token = NULL, epoch = 0, expires_at = NULL")
        # Nobody else does, and its rows change at every beat: each look would have to pass all that were there before.
        self._admin.execute("VACUUM postroad_shard")

    def close(self) -> None:
        for connection in (*self.idle, self._admin):
            connection.close()


class PostgreSQLServer(Server):
    def __init__(self, world: "World", database: PostgreSQLDatabase) -> None:
        super().__init__(world)
        self.database = database

    def unreachable(self) -> Exception:
        return psycopg.OperationalError("connection refused")


class Connection(Link):
    """What SQLAlchemy, and the store, take for a psycopg.AsyncConnection."""

    server: PostgreSQLServer

    def __init__(self, server: PostgreSQLServer, process: Process, autocommit: bool) -> None:
        super().__init__(server, process)
        self.raw: psycopg.Connection[Any] = server.database.connect()
        self.raw.autocommit = autocommit
        self._now = ""

    @property
    def in_transaction(self) -> bool:
        return self.open and self.raw.info.transaction_status != TransactionStatus.IDLE

    async def perform(self, sql: str, work: Callable[[], Any]) -> Any:
        if sql == "COMMIT" or "SAVEPOINT" in sql:
            return work()
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + _LONGEST_LOCK, _LOCK_PAUSE
        while True:
            self._tell_the_time()
            if not self.raw.autocommit:
                self._plain("SAVEPOINT simulator")
            try:
                result = work()
            except psycopg.errors.LockNotAvailable:
                if not self.raw.autocommit:
                    self._plain("ROLLBACK TO SAVEPOINT simulator")
                    self._now = ""
                if loop.time() > deadline:
                    raise
            else:
                if not self.raw.autocommit:
                    self._plain("RELEASE SAVEPOINT simulator")
                elif not sql.lstrip().upper().startswith(("SELECT", "WITH", "SET")):
                    self.server.committed()
                return result
            await self.process.step_outside(pause)
            pause = min(pause * 2, 0.5)
            if not self.open:
                raise self.broken_off()

    def _tell_the_time(self) -> None:
        now = self.server.world.clock.now().isoformat()
        if now != self._now and self.raw.info.transaction_status != TransactionStatus.INERROR:
            self.raw.execute("SELECT set_config('simulator.now', %s, false)", [now])
            self._now = now

    def _plain(self, sql: str) -> None:
        if self.raw.info.transaction_status != TransactionStatus.INERROR or sql.startswith("ROLLBACK"):
            self.raw.execute(sql, prepare=False)

    def roll_back(self) -> None:
        if self.in_transaction:
            self.raw.rollback()
            self._now = ""

    def hang_up(self) -> None:
        self.raw.rollback()
        self.server.database.idle.append(self.raw)

    def trouble(self, kind: str) -> Exception:
        if self.in_transaction:
            # A transaction in which something has failed is good for nothing but a rollback.
            try:
                self.raw.execute("SELECT 1 / 0", prepare=False)
            except psycopg.Error:
                pass
        errors: dict[str, type[psycopg.Error]] = {
            "busy": psycopg.errors.SerializationFailure,
            "refused": psycopg.errors.LockNotAvailable,
            "strange": psycopg.errors.QueryCanceled,
        }
        return errors[kind](f"{kind} by the simulator")

    def broken_off(self) -> Exception:
        return psycopg.OperationalError("server closed the connection unexpectedly")

    # -- as an AsyncConnection ------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return not self.open

    @property
    def broken(self) -> bool:
        return not self.open

    @property
    def autocommit(self) -> bool:
        return self.raw.autocommit

    def __getattr__(self, name: str) -> Any:
        if name == "raw":
            raise AttributeError(name)
        return getattr(self.raw, name)

    async def set_autocommit(self, value: bool) -> None:
        if self.open:
            self.raw.autocommit = value

    async def set_isolation_level(self, value: Any) -> None:
        if self.open:
            self.raw.isolation_level = value

    def add_notice_handler(self, handler: object) -> None:
        """Nobody listens."""

    def cursor(self, name: str = "", **options: Any) -> "Cursor":
        return Cursor(self, self.raw.cursor(**options))

    async def commit(self) -> None:
        if self.in_transaction:
            if self.raw.info.transaction_status == TransactionStatus.INERROR:
                self.roll_back()  # as the server does, whatever it is told
                return
            await self.statement("COMMIT", self.raw.commit)
            self._now = ""

    async def rollback(self) -> None:
        if self.in_transaction:
            await self.undo()

    async def close(self) -> None:
        self.sever()


class Cursor:
    def __init__(self, connection: Connection, raw: Any) -> None:
        self._connection, self._raw = connection, raw

    async def __aenter__(self) -> "Cursor":
        return self

    async def execute(self, sql: Any, values: Any = None) -> "Cursor":
        if not str(sql).startswith("SET "):  # those are settings, which every connection here has
            await self._connection.statement(str(sql), lambda: self._raw.execute(sql, values))
        return self

    async def executemany(self, sql: Any, values: Any) -> "Cursor":
        await self._connection.statement(str(sql), lambda: self._raw.executemany(sql, values))
        return self

    async def fetchall(self) -> list[Any]:
        rows: list[Any] = self._raw.fetchall()
        return rows

    def _close(self) -> None:
        self._raw.close()

    async def close(self) -> None:
        self._raw.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


class SimulatedPostgreSQL(driver.PostgreSQL):
    """The PostgreSQL store with its own statements; only the connections are others."""

    server: PostgreSQLServer
    can_notify = False

    @cached_property
    def _autocommit(self) -> Autocommit:
        return _Inline(self)

    @property
    def looks(self) -> Autocommit:
        return self._autocommit

    async def execute(
        self, connection: Any, statement: str, /, outbox: OutboxTable | None = None, **values: Any
    ) -> Result:
        with named(statement):
            return await super().execute(connection, statement, outbox, **values)

    async def _begin_with(self, driver: Any, sql: str, values: Mapping[str, str]) -> Result:
        return await execute(driver, sql, values)  # step by step, because each may go wrong

    async def change(self, statement: str, /, outbox: OutboxTable | None = None, **values: Any) -> Result:
        with named(statement):
            return await super().change(statement, outbox, **values)

    read = change

    async def reach(self, process: Process | None, *, autocommit: bool = False) -> Connection:
        assert process is not None
        await process.step_outside()
        if self.server.away:
            raise self.server.unreachable()
        return Connection(self.server, process, autocommit)

    def notifier(self, channel: str, sender: str) -> Notifier:
        return Notifier()

    async def watch(self, channel: str, wake: Callable[[], None], but_from: str = "") -> None:
        await self.server.watch(wake)
        raise self.translate(DBAPIError(None, None, self.server.unreachable()))


class _Inline(Autocommit):
    def __init__(self, store: SimulatedPostgreSQL) -> None:
        super().__init__(store.url)
        self._store = store

    async def _connect(self) -> Any:
        try:
            return await self._store.reach(current.get(), autocommit=True)
        except psycopg.Error as error:
            raise DBAPIError(None, None, error) from error


def _open_store(url: str) -> SimulatedPostgreSQL:
    made = driver.open(make_url(url), LoopClock())
    # Asking the server for types needs a connection that is what ours only looks like.
    made._engine.sync_engine.dialect.use_native_hstore = False  # type: ignore[attr-defined]
    store = SimulatedPostgreSQL(made.url, made._engine, made.clock)

    @event.listens_for(made._engine.sync_engine, "do_connect")
    def connect(dialect: object, record: object, args: object, parameters: dict[str, Any]) -> None:
        async def reach(*_: object, **__: object) -> Connection:
            return await store.reach(current.get())

        parameters["async_creator_fn"] = reach

    return store
