"""MySQL 8 and MariaDB 10.6 or later, through asyncmy."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Executable, Table, func
from sqlalchemy.dialects.mysql import Insert
from sqlalchemy.engine import URL, ExceptionContext
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from postroad.clock import Clock
from postroad.errors import MissingExtra, StoreBusy
from postroad.stores.base import SWAP_PATIENCE, Store
from postroad.stores.tables import Syntax


class MySQL(Store):
    dialect = "mysql"
    port = 3306
    databases_sql = "SELECT DATABASE()"
    syntax = Syntax(
        mark="`",
        argument="a_",
        given="given",
        payload_in={
            "bytes": "a_payload",
            "text": "CONVERT(a_payload USING utf8mb4)",
            "json": "CONVERT(a_payload USING utf8mb4)",
        },
        payload_out={"bytes": "{column}", "text": "{column}", "json": "{column}"},
        id_types={"native": "BINARY(16)", "text": "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"},
        id_in_list={"native": "UNHEX(j.id)", "text": "j.id"},
        id_as={
            "native": "{id}",
            "text": "LOWER(CONCAT_WS('-', SUBSTR(HEX({id}), 1, 8), SUBSTR(HEX({id}), 9, 4), SUBSTR(HEX({id}), 13, 4),"
            " SUBSTR(HEX({id}), 17, 4), SUBSTR(HEX({id}), 21)))",
        },
        contains={
            "column": "INSTR({column}, :text) > 0",
            **dict.fromkeys(("bytes", "text", "json"), "INSTR({column}, :payload_text) > 0"),
        },
        unsent_shard="unsent_shard",
    )
    busy_codes = frozenset({"1205", "1213"})
    missing_table_codes = frozenset({"1146", "1305"})
    duplicate_codes = frozenset({"1062"})
    rows_at_once = False
    ddl_commits = True
    # Table, column, index, row, routine.
    there_already_codes = frozenset({"1050", "1060", "1061", "1062", "1304"})

    @asynccontextmanager
    async def migrating(self) -> AsyncIterator[AsyncConnection]:
        # On a connection of its own: DDL commits by itself, and the lock must outlast the last commit.
        async with self.reading() as guard:
            lock = "CONCAT('postroad_', MD5(DATABASE()))"
            if (await guard.exec_driver_sql(f"SELECT GET_LOCK({lock}, 60)")).scalar() != 1:
                raise StoreBusy(f"Somebody else has been migrating {self.address} for a minute. Try again.")
            try:
                async with self.transaction() as connection:
                    yield connection
            finally:
                await guard.exec_driver_sql(f"SELECT RELEASE_LOCK({lock})")

    def upsert_if_newer(self, table: Table, key: str, version: str) -> Executable:
        new = Insert(table)
        newer = new.inserted[version] > table.c[version]
        names = [c.name for c in table.columns if c.computed is None and c.name not in (key, version)]
        values = [(name, func.if_(newer, new.inserted[name], table.c[name])) for name in names]
        # The version last: assigned first, it would be the one that the others are compared with.
        return new.on_duplicate_key_update([*values, (version, func.greatest(new.inserted[version], table.c[version]))])

    async def swap(self, connection: AsyncConnection, schema: str, *, live: str, shadow: str, old: str) -> None:
        within = f"{self.syntax.quote(schema)}." if schema else ""
        pairs = ((live, old), (shadow, live)) if old else ((shadow, live),)
        renames = (f"{within}{self.syntax.quote(a)} TO {within}{self.syntax.quote(b)}" for a, b in pairs)
        await connection.exec_driver_sql(f"SET SESSION lock_wait_timeout = {SWAP_PATIENCE}")
        try:
            await connection.exec_driver_sql(f"RENAME TABLE {', '.join(renames)}")
        finally:
            await connection.exec_driver_sql("SET SESSION lock_wait_timeout = DEFAULT")

    def for_console(self, statement: str) -> str:
        if "\nBEGIN\n" not in statement:
            return super().for_console(statement)
        return f"DELIMITER //\n{statement.removesuffix(';')}//\nDELIMITER ;"

    def id_in(self, value: uuid.UUID) -> object:
        return value.bytes

    def id_out(self, value: Any) -> uuid.UUID:
        return uuid.UUID(bytes=bytes(value)) if len(value) == 16 else uuid.UUID(str(value))

    def time_in(self, value: datetime) -> object:
        return value.astimezone(UTC).replace(tzinfo=None)

    def is_cancellation(self, error: Exception) -> bool:
        # asyncmy's own words. Taken for trouble with the database, a relay went on that was told to end.
        return "Cancelled during execution" in str(error)

    def code_of(self, error: BaseException) -> str:
        arguments = (getattr(error, "orig", None) or error).args
        return str(arguments[0]) if arguments else ""

    def ends_transaction(self, context: ExceptionContext) -> bool:
        # A deadlock, or no room for more locks. Who has waited too long for one (1205) loses that statement only.
        return self.code_of(context.original_exception) in {"1206", "1213"}

    def is_ours(self, database: str) -> bool:
        # Whether case counts is for the server's file system to say.
        return self.url.database is None or database.casefold() == self.url.database.casefold()

    def missing_database(self, error: Exception) -> str:
        return (self.url.database or "") if self.code_of(error) == "1049" else ""

    def turns_away(self, error: Exception) -> bool:
        return self.code_of(error) in {"1044", "1045"}

    def is_disconnect(self, error: Exception) -> bool:
        return super().is_disconnect(error) or self.code_of(error) in {"2002", "2003", "2006", "2013", "1053"}


def open(url: URL, clock: Clock) -> Store:
    try:
        engine = create_async_engine(
            url.set(drivername="mysql+asyncmy"),
            pool_size=10,
            max_overflow=20,
            # Under REPEATABLE READ an empty SKIP LOCKED read blocks inserts until the commit.
            isolation_level="READ COMMITTED",
            connect_args={"connect_timeout": 5},
        )
    except ModuleNotFoundError:
        raise MissingExtra("The MySQL driver", "mysql") from None
    return MySQL(url, engine, clock)
