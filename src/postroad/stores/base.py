"""One database as Postroad sees it: transactions, named statements, values in and out, errors translated."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from sqlalchemy import Executable, Table, TextClause, event, inspect, text
from sqlalchemy.engine import URL, ExceptionContext
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoFreeConnection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

from postroad.clock import Clock
from postroad.errors import ConfigurationError, SchemaMissing, StoreBusy, StoreError, StoreUnavailable
from postroad.stores import queries
from postroad.stores.tables import OutboxTable, Syntax, outbox_names

SWAP_PATIENCE: Final = 5
"""Seconds that a swap waits for those who read in a transaction. Others wait behind it meanwhile."""
_CHECK_URL: Final = "Check user, password and database in its URL."
MIGRATE: Final = "Run: postroad db migrate (in Python: await road.migrate())"

TABLES = {
    "versions": "postroad_version",
    "shards": "postroad_shard",
    "workers": "postroad_worker",
    "pauses": "postroad_pause",
    "inbox": "postroad_inbox",
    "handlers": "postroad_handler",
    "audit": "postroad_audit",
    "results": "postroad_result",
    "projections": "postroad_projections",
    "journal": "postroad_projection_journal",
    "backfills": "postroad_backfill",
    "commands": "postroad_command_box",
    "domain_events": "postroad_domain_events",
    "migrations": "postroad_migration",
}


@dataclass(frozen=True, slots=True)
class Result:
    rows: Sequence[Any]
    """Their columns are attributes."""
    rowcount: int


class Store:
    """Subclassed once per database family; see `driver.py` in each store's folder."""

    dialect: str
    port = 0
    syntax: Syntax
    busy_codes: frozenset[str]
    missing_table_codes: frozenset[str]
    duplicate_codes: frozenset[str] = frozenset()
    """Where an insert cannot leave out rows that are there already and says so by an error."""
    one_writer = False
    """Whether a transaction that writes keeps out all others until it ends."""
    rows_at_once = True
    """Whether one call of the add routine may be given several rows."""
    names_refused_row = True
    """Whether an error of the add routine tells which of several rows it was."""
    ddl_commits = False
    """Whether a change of the schema commits by itself, so that a migration can be left half done."""
    there_already_codes: frozenset[str] = frozenset()
    """What the database says to a statement of a migration that was done before."""
    can_notify = False
    pools_by_loop = True
    unreachable_cure = "Is it running?"
    read_options: Mapping[str, Any] = {"postroad_read_only": True}
    databases_sql = "SELECT current_database()"
    """Where a connection is, by the database's own word."""

    def __init__(self, url: URL, engine: AsyncEngine, clock: Clock) -> None:
        self.url, self._engine, self.clock = url, engine, clock
        self.beside_us: WeakSet[object] = WeakSet([engine.sync_engine])
        """Engines, and drivers' connections, that were seen to be on this database."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sql: dict[tuple[str, OutboxTable | None], str] = {}
        self._texts: dict[tuple[str, OutboxTable | None], TextClause] = {}
        event.listen(engine.sync_engine, "handle_error", self._end_what_has_ended)

    @property
    def engine(self) -> AsyncEngine:
        """Pooled connections belong to one event loop; a second `asyncio.run` begins with new ones."""
        loop = asyncio._get_running_loop()
        if loop is not None and loop is not self._loop:
            if self._loop is not None and self.pools_by_loop:
                self._engine.sync_engine.dispose(close=False)
            self._loop = loop
        return self._engine

    @property
    def address(self) -> str:
        """Where it is, without user and password."""
        # Not `set`, for which None means "as it was".
        bare = self.url.set(drivername=self.dialect, query={})._replace(username=None, password=None)
        return bare.render_as_string()

    @property
    def host(self) -> str:
        """Where it listens; for a file, the file."""
        return f"{self.url.host or 'localhost'}:{self.url.port or self.port}"

    @property
    def file(self) -> Path | None:
        """What must be there before anything can be read; None where a server answers."""
        return None

    @cached_property
    def tables(self) -> Mapping[str, str]:
        return {name: self.syntax.quote(table) for name, table in TABLES.items()}

    # -- statements ----------------------------------------------------------------------------------

    def sql(self, statement: str, outbox: OutboxTable | None = None) -> str:
        """A statement with its identifiers filled in."""
        key = (statement, outbox)
        if key not in self._sql:
            self._sql[key] = self.fill(queries.load(self.dialect)[statement], outbox)
        return self._sql[key]

    def fill(self, sql: str, outbox: OutboxTable | None = None) -> str:
        names = self.tables if outbox is None else {**self.tables, **outbox_names(outbox, self.syntax)}
        return queries.fill(sql, names)

    async def execute(
        self, connection: AsyncConnection, statement: str, /, outbox: OutboxTable | None = None, **values: Any
    ) -> Result:
        """Run a named statement; all is fetched, because an open cursor can hold SQLite's write lock."""
        clause = self.clause(statement, outbox)
        cursor = await connection.execute(clause, {name: self.adapt(value) for name, value in values.items()})
        return Result(cursor.fetchall() if cursor.returns_rows else (), cursor.rowcount)

    def clause(self, statement: str, outbox: OutboxTable | None = None) -> TextClause:
        key = (statement, outbox)
        if key not in self._texts:
            self._texts[key] = text(self.sql(statement, outbox))
        return self._texts[key]

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        with self.translating():
            async with self.engine.begin() as connection:
                yield connection

    async def read(self, statement: str, /, outbox: OutboxTable | None = None, **values: Any) -> Result:
        """A single statement that changes nothing."""
        async with self.reading() as connection:
            return await self.execute(connection, statement, outbox, **values)

    async def server_time(self, connection: AsyncConnection) -> datetime:
        """What leases and beats are written by. By ours, if it is ahead, all of them would look over."""
        now = self.time_out((await self.execute(connection, "clock_read")).rows[0].now)
        assert now is not None  # a clock always has a time
        return now

    async def change(self, statement: str, /, outbox: OutboxTable | None = None, **values: Any) -> Result:
        """A single statement that is a transaction by itself."""
        async with self.transaction() as connection:
            return await self.execute(connection, statement, outbox, **values)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """For reading only; on SQLite it does not take the write lock."""
        with self.translating():
            async with self.engine.connect() as connection:
                yield await connection.execution_options(**self.read_options)

    def session(self) -> AsyncSession:
        return AsyncSession(self.engine, expire_on_commit=False)

    def keeping_others_out(self, connection: AsyncConnection) -> AbstractContextManager[None]:
        """Around what is done in the connection's transaction. Where there is but one writer, whoever opens a second
        transaction in there and writes is told so, because he would wait for himself."""
        return nullcontext()

    def is_rolled_back(self, connection: AsyncConnection) -> bool:
        """Whether the database has given up the transaction: a commit would be taken silently, and keep nothing."""
        return connection.invalidated

    def ends_transaction(self, context: ExceptionContext) -> bool:
        """Whether the database has rolled back with this error, unasked, and would begin anew with what follows."""
        return False

    def _end_what_has_ended(self, context: ExceptionContext) -> None:
        if self.ends_transaction(context):
            # As if the connection were lost: whoever swallows the error can do no more in a transaction of which he
            # would keep the second half.
            context.is_disconnect = True
            context.invalidate_pool_on_disconnect = False

    async def has_table(self, connection: AsyncConnection, name: str) -> bool:
        schema, _, table = name.rpartition(".")
        return await connection.run_sync(lambda sync: inspect(sync).has_table(table, schema=schema or None))

    @asynccontextmanager
    async def migrating(self) -> AsyncIterator[AsyncConnection]:
        """A transaction in which only one process at a time changes the schema."""
        async with self.transaction() as connection:
            yield connection

    def for_console(self, statement: str) -> str:
        """A migration's statement as the database's own console takes it."""
        return statement if statement.endswith(";") else f"{statement};"

    async def aclose(self) -> None:
        await self.engine.dispose()

    # -- read models ---------------------------------------------------------------------------------

    def upsert_if_newer(self, table: Table, key: str, version: str) -> Executable:
        """Inserts a row, or changes the one with its key if that is of a lower version."""
        new: Any = self.insert(table)
        names = [column.name for column in table.columns if column.computed is None and column.name != key]
        upsert: Executable = new.on_conflict_do_update(
            index_elements=[key],
            set_={name: new.excluded[name] for name in names},
            where=table.c[version] < new.excluded[version],
        )
        return upsert

    def insert(self, table: Table) -> object:
        """The dialect's own insert, which knows what to do about a row that is there."""
        raise StoreError("a store must say how it inserts")

    async def swap(self, connection: AsyncConnection, schema: str, *, live: str, shadow: str, old: str) -> None:
        """`shadow` becomes `live`, and `live` becomes `old` (unless that is empty: then there was none)."""
        quote = self.syntax.quote
        within = f"{quote(schema)}." if schema else ""
        for table, name in ((live, old), (shadow, live)):
            if name:
                await connection.exec_driver_sql(f"ALTER TABLE {within}{quote(table)} RENAME TO {quote(name)}")

    # -- wake-ups ------------------------------------------------------------------------------------

    def notifier(self, channel: str, sender: str) -> "Notifier":
        """For the writing process, which says who it is; used from one thread of its own."""
        return Notifier()

    async def watch(self, channel: str, wake: Callable[[], None], but_from: str = "") -> None:
        """For the relay: calls `wake` when something may have been written, but not if `but_from` says so, who
        has told it already. Runs until cancelled, or returns at once where the database has no way to tell."""

    # -- values --------------------------------------------------------------------------------------

    def adapt(self, value: object) -> object:
        """A Python value as this database's driver takes it."""
        if isinstance(value, uuid.UUID):
            return self.id_in(value)
        if isinstance(value, datetime):
            return self.time_in(value)
        if isinstance(value, list):
            return self.list_in(value)
        return value

    def id_in(self, value: uuid.UUID) -> object:
        return value

    def id_out(self, value: Any) -> uuid.UUID:
        return value if isinstance(value, uuid.UUID) else uuid.UUID(str(value))

    def time_in(self, value: datetime) -> object:
        return value

    def time_out(self, value: Any) -> datetime | None:
        if value is None or isinstance(value, datetime):
            return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value
        moment = datetime.fromisoformat(value)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    def list_in(self, values: list[Any]) -> object:
        """A list as one parameter; JSON text where there are no arrays, so that the statement stays one."""
        return json.dumps([value.hex if isinstance(value, uuid.UUID) else value for value in values])

    # -- errors --------------------------------------------------------------------------------------

    def translating(self) -> "_Translation":
        """`with store.translating():` around statements of our own: whatever goes wrong there is a StoreError."""
        return _Translation(self)

    def translate(self, error: Exception) -> Exception:
        if isinstance(error, NoFreeConnection):
            return StoreBusy(f"No connection to {self.address} was free. Do less at once, or repeat the call.")
        code = self.code_of(error)
        if code in self.missing_table_codes:
            return self.tables_missing()
        if code in self.busy_codes:
            return StoreBusy(f"{self.address} was busy (code {code}); nothing was stored. Repeat the transaction.")
        if database := self.missing_database(error):
            cure = f"Create it there with: CREATE DATABASE {self.syntax.quote(database)}"
            return StoreUnavailable(f"There is no database {database} at {self.host}. {cure}")
        if self.turns_away(error):
            return StoreUnavailable(f"{self.address} turns us away ({_cause(error)}). {_CHECK_URL}")
        if self.is_disconnect(error):
            return StoreUnavailable(f"{self.address} cannot be reached ({_cause(error)}). {self.unreachable_cure}")
        return error

    def is_cancellation(self, error: Exception) -> bool:
        """Whether the driver has made an error of it, so that nobody else hears of it."""
        return False

    def tables_missing(self) -> SchemaMissing:
        return SchemaMissing(f"Postroad's tables are missing in {self.address}. {MIGRATE}")

    def is_ours(self, database: str) -> bool:
        """By its name alone: one server has many addresses, and a proxy has its own."""
        return self.url.database in (None, database)

    def refuse_other(self, databases: Iterable[str | None]) -> None:
        """`databases`: where a connection is, by the answer to `databases_sql`. One of them must be this one."""
        names = [name for name in databases if name]
        if names and not any(self.is_ours(name) for name in names):
            raise ConfigurationError(
                f"This connection is on {names[0]}, Postroad's tables are in {self.address}. The event and the "
                "business rows must be in the same database. Use a connection to that one, or give Postroad the URL of "
                "this one."
            )

    def code_of(self, error: BaseException) -> str:
        """The database's own error code as text, from SQLAlchemy's or the driver's error; else empty."""
        raise StoreError("a store must say how its driver tells error codes")

    def is_version_conflict(self, error: BaseException) -> bool:
        """Whether this is the add routine's refusal of a version that the aggregate has already reached."""
        return "postroad: version conflict" in str(error)

    def missing_database(self, error: Exception) -> str:
        """The name of the database that is not there, on a server that is; else empty."""
        return ""

    def turns_away(self, error: Exception) -> bool:
        """Whether the server is there, but not for this user or password."""
        return False

    def is_disconnect(self, error: Exception) -> bool:
        return isinstance(error, DBAPIError) and error.connection_invalidated


def id_text(value: object) -> str:
    """An event id as a table returned it, for a list that goes into a statement."""
    return value.hex() if isinstance(value, bytes) else str(value)


class Notifier:
    """Tells other processes of a commit; this one cannot, and their polling has to serve."""

    def notify(self) -> None:
        return None

    def close(self) -> None:
        return None


class _Translation:
    def __init__(self, store: Store) -> None:
        self._store = store

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SQLAlchemyError):
            if self._store.is_cancellation(error):
                raise asyncio.CancelledError from error
            translated = self._store.translate(error)
            if translated is error:
                translated = StoreError(f"{self._store.address} did not take a statement of ours ({_cause(error)}).")
            raise translated from error
        if isinstance(error, OSError):
            raise StoreUnavailable(
                f"{self._store.address} cannot be reached ({_cause(error)}). Is it running?"
            ) from error


def _cause(error: BaseException) -> str:
    origin = getattr(error, "orig", None) or error
    return str(origin).strip().split("\n")[0] or type(origin).__name__
