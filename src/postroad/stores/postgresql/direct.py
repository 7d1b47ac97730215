"""Our own statements go straight to the driver: the layers in between would take longer than the statement.

Those that are transactions by themselves, the relay's looks and marks, have their own connections, which commit each
statement at once. The others run on a connection of SQLAlchemy's, in its transaction.
"""

import asyncio
from collections.abc import Mapping
from functools import cache
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from postroad.stores.base import Result
from postroad.stores.postgresql.notify import conninfo
from postroad.stores.queries import restyle

Connection = psycopg.AsyncConnection[Any]
_restyled = cache(restyle)
_CONNECTIONS = 10


async def execute(connection: Connection, sql: str, values: Mapping[str, Any]) -> Result:
    """Raises what SQLAlchemy would raise, but never shows the values."""
    try:
        cursor = connection.cursor(row_factory=namedtuple_row)
        await cursor.execute(_restyled(sql, "pyformat"), values)
        return Result(await cursor.fetchall() if cursor.description else (), cursor.rowcount)
    except psycopg.Error as error:
        raise DBAPIError(sql, None, error, hide_parameters=True) from error


class Autocommit:
    def __init__(self, url: URL) -> None:
        self._url = url
        self._idle: list[Connection] = []
        self._room = asyncio.Semaphore(_CONNECTIONS)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, sql: str, values: Mapping[str, Any]) -> Result:
        self._begin_anew_in_a_new_loop()
        async with self._room:
            connection = self._idle.pop() if self._idle else await self._connect()
            try:
                return await execute(connection, sql, values)
            except BaseException:
                # Nobody knows in what state it is; and if the server went away, the others have lost it too.
                await self.aclose()
                await connection.close()
                raise
            finally:
                if not connection.closed:
                    self._idle.append(connection)

    async def aclose(self) -> None:
        self._begin_anew_in_a_new_loop()
        while self._idle:
            await self._idle.pop().close()

    def _begin_anew_in_a_new_loop(self) -> None:
        """A connection belongs to one event loop; those of one that has ended can only be hung up."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            for connection in self._idle:
                connection.pgconn.finish()
            self._idle, self._loop = [], loop
            self._room = asyncio.Semaphore(_CONNECTIONS)

    async def _connect(self) -> Connection:
        try:
            connection = await psycopg.AsyncConnection.connect(
                conninfo(self._url), autocommit=True, connect_timeout=5, application_name="postroad"
            )
        except psycopg.Error as error:
            raise DBAPIError(None, None, error) from error
        # Compiling a look takes a hundred times longer than running it; a mark must see what was committed before it.
        await connection.execute("SET jit = off; SET default_transaction_isolation = 'read committed'")
        return connection
