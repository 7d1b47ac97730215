"""PostgreSQL through psycopg 3."""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, event, text
from sqlalchemy.dialects.postgresql import Insert
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from postroad.clock import Clock
from postroad.errors import MissingExtra
from postroad.stores.base import SWAP_PATIENCE, Notifier, Result, Store
from postroad.stores.tables import OutboxTable, Syntax

if TYPE_CHECKING:
    from postroad.stores.postgresql.direct import Autocommit

_IDLE, _IN_ERROR = 0, 3  # PQTRANS_IDLE and PQTRANS_INERROR of libpq
_FIRST = {"inbox_claim", "events_version"}
"""With one of these nearly every transaction of a consumer, or of a command, begins. They take and return texts."""
_WALKS = {
    "read_due", "outbox_due_count", "outbox_held_count", "outbox_oldest", "outbox_sent_count", "inbox_failed_count",
    "command_counts", "command_unfinished",
}  # fmt: skip
"""Asked every few seconds, and answered by the first entries of an index, however much has come since statistics were
gathered."""

_GRANTS = """
SELECT format('GRANT %s ON %s TO %s%s', a.privilege_type, CAST(:shadow AS text),
              CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
              CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
  FROM pg_class c, aclexplode(c.relacl) a
 WHERE c.oid = to_regclass(CAST(:live AS text)) AND a.grantee <> c.relowner
"""


class PostgreSQL(Store):
    dialect = "postgresql"
    port = 5432
    syntax = Syntax(
        mark='"',
        argument="a_",
        given="given",
        payload_in={
            "bytes": "a_payload",
            "text": "convert_from(a_payload, 'UTF8')",
            "json": "CAST(convert_from(a_payload, 'UTF8') AS jsonb)",
        },
        payload_out={"bytes": "{column}", "text": "{column}", "json": "CAST({column} AS text)"},
        id_types={"native": "uuid", "text": "text"},
        id_in_list={"native": "CAST(j.id AS uuid)", "text": "CAST(j.id AS text)"},
        id_as={"native": "{id}", "text": "CAST({id} AS text)"},
        contains={
            "column": "strpos(CAST({column} AS text), CAST(:text AS text)) > 0",
            "bytes": "position(convert_to(CAST(:payload_text AS text), 'UTF8') IN {column}) > 0",
            "text": "strpos({column}, CAST(:payload_text AS text)) > 0",
            "json": "strpos(CAST({column} AS text), CAST(:payload_text AS text)) > 0",
        },
    )
    busy_codes = frozenset({"40001", "40P01", "55P03"})
    missing_table_codes = frozenset({"42P01", "42883", "3F000"})
    can_notify = True
    # Each statement has its own snapshot anyway: BEGIN and ROLLBACK would only be two round trips more.
    read_options: Mapping[str, Any] = {"isolation_level": "AUTOCOMMIT"}

    @asynccontextmanager
    async def migrating(self) -> AsyncIterator[AsyncConnection]:
        async with self.transaction() as connection:
            await connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7078843)")
            yield connection

    @cached_property
    def _autocommit(self) -> "Autocommit":
        from postroad.stores.postgresql.direct import Autocommit  # needs the driver

        return Autocommit(self.url)

    @cached_property
    def looks(self) -> "Autocommit":
        """The connections of the relays' looks, which are skip-scans, and of what metrics count. Statistics of an
        outbox that was empty make the planner collect and sort all that waits, where the first entry of an index is
        asked for."""
        from postroad.stores.postgresql.direct import Autocommit  # needs the driver

        by_index = "SET enable_bitmapscan = off; SET enable_seqscan = off; SET enable_sort = off"
        return Autocommit(self.url, by_index)

    async def execute(
        self, connection: AsyncConnection, statement: str, /, outbox: OutboxTable | None = None, **values: Any
    ) -> Result:
        from postroad.stores.postgresql.direct import execute  # needs the driver

        if not connection.in_transaction():
            await connection.begin()  # or a commit would not know that there is something to commit
        assert connection.sync_connection is not None  # there is one while it is open
        driver: Any = connection.sync_connection.connection.driver_connection
        try:
            if statement in _FIRST and driver.pgconn.transaction_status == _IDLE:
                return await self._begin_with(driver, self.sql(statement), values)
            return await execute(driver, self.sql(statement, outbox), self._adapted(values))
        except BaseException as error:
            # As SQLAlchemy does it: what was cancelled is in no known state, and if the server went away, those that
            # wait in the pool have lost it too.
            if driver.closed:
                sync = connection.sync_connection
                sync.engine.pool._invalidate(sync.connection, error, _checkin=False)
            if driver.closed or not isinstance(error, Exception):
                await connection.invalidate()
            raise

    def is_rolled_back(self, connection: AsyncConnection) -> bool:
        if super().is_rolled_back(connection):
            return True
        assert connection.sync_connection is not None  # there is one while it is open
        driver: Any = connection.sync_connection.connection.driver_connection
        return bool(driver.pgconn.transaction_status == _IN_ERROR)

    async def _begin_with(self, driver: Any, sql: str, values: Mapping[str, str]) -> Result:
        from postroad.stores.postgresql.beginning import begin_with  # needs the driver

        return await begin_with(driver, sql, values)

    async def change(self, statement: str, /, outbox: OutboxTable | None = None, **values: Any) -> Result:
        pool = self.looks if statement in _WALKS else self._autocommit
        binary = statement == "read_due" and outbox is not None and not outbox.adopted
        with self.translating():
            return await pool.run(self.sql(statement, outbox), self._adapted(values), binary=binary)

    read = change

    def _adapted(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.adapt(value) for name, value in values.items()}

    async def aclose(self) -> None:
        await self._autocommit.aclose()
        await self.looks.aclose()
        await super().aclose()

    def list_in(self, values: list[Any]) -> object:
        # As text, which the statements cast: the driver's own arrays take many times longer to write, and the
        # relay sends several with every read.
        return "{" + ",".join(map(_element, values)) + "}"

    def insert(self, table: Table) -> Insert:
        return Insert(table)

    async def swap(self, connection: AsyncConnection, schema: str, *, live: str, shadow: str, old: str) -> None:
        await connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{SWAP_PATIENCE}s'")
        within = f"{self.syntax.quote(schema)}." if schema else ""
        names = {"live": f"{within}{self.syntax.quote(live)}", "shadow": f"{within}{self.syntax.quote(shadow)}"}
        # Rights belong to a table, not to its name: whoever may read the one must be able to read the other.
        for grant in (await connection.execute(text(_GRANTS), names)).scalars().all():
            await connection.exec_driver_sql(grant)
        await super().swap(connection, schema, live=live, shadow=shadow, old=old)

    def missing_database(self, error: Exception) -> str:
        # Of a connection that never was there is no code, only what the server said.
        said = re.search(r'FATAL: +database "(.+)" does not exist', str(error))
        return said[1] if said else ""

    def turns_away(self, error: Exception) -> bool:
        said = str(error)
        return "FATAL" in said and any(part in said for part in ("does not exist", "authentication failed", "pg_hba"))

    def notifier(self, channel: str, sender: str) -> Notifier:
        from postroad.stores.postgresql.notify import PostgreSQLNotifier  # needs the driver

        return PostgreSQLNotifier(self.url, channel, sender)

    async def watch(self, channel: str, wake: Callable[[], None], but_from: str = "") -> None:
        from postroad.stores.postgresql.notify import watch  # needs the driver

        await watch(self.url, channel, wake, but_from, self.clock)

    def code_of(self, error: BaseException) -> str:
        origin = getattr(error, "orig", None) or error
        return str(getattr(origin, "sqlstate", None) or "")

    def is_disconnect(self, error: Exception) -> bool:
        # Refused connections carry no code; class 08 is "connection exception", 57P0x a server going down.
        code = self.code_of(error)
        lost = code.startswith("08") or code in {"57P01", "57P02", "57P03"}
        origin = type(getattr(error, "orig", None))
        # Of this driver: a handler may have a database of its own besides.
        ours = origin.__name__ == "OperationalError" and origin.__module__.startswith("psycopg")
        return lost or super().is_disconnect(error) or (ours and not code)


def _element(value: object) -> str:
    """One element of an array in PostgreSQL's own notation."""
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return "NULL" if value is None else str(value)


def open(url: URL, clock: Clock) -> Store:
    try:
        engine = create_async_engine(
            url.set(drivername="postgresql+psycopg"),
            # Each statement must see what was committed before it, whatever the server's default.
            isolation_level="READ COMMITTED",
            pool_size=10,
            max_overflow=20,
            # The connection used last has its statements prepared and its caches warm.
            pool_use_lifo=True,
            connect_args={"connect_timeout": 5, "application_name": "postroad"},
        )
    except ModuleNotFoundError:
        raise MissingExtra("The PostgreSQL driver", "postgresql") from None

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, record: object) -> None:
        # Compiling the relay's read takes a hundred times longer than running it.
        with connection.cursor() as cursor:
            cursor.execute("SET jit = off")
        connection.commit()

    return PostgreSQL(url, engine, clock)
