"""Our own statements go straight to the driver: the layers in between would take longer than the statement.

Those that are transactions by themselves, the relay's looks and marks, have their own connections, which commit each
statement at once. The others run on a connection of SQLAlchemy's, in its transaction.
"""

import asyncio
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import psycopg
from psycopg.rows import namedtuple_row
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from postroad.stores.base import Result
from postroad.stores.postgresql.notify import connect_args
from postroad.stores.queries import restyle

Connection = psycopg.AsyncConnection[Any]
_CONNECTIONS: Final = 10
_restyled = cache(restyle)


async def execute(connection: Connection, sql: str, values: Mapping[str, Any], *, binary: bool = False) -> Result:
    """Errors become SQLAlchemy's, but never show the values. In `binary` a payload is half as long on its way, but a
    column of a type that the driver does not know is no text."""
    try:
        cursor = connection.cursor(binary=binary, row_factory=namedtuple_row)
        await cursor.execute(_restyled(sql, "pyformat"), values)
        return Result(await cursor.fetchall() if cursor.description else (), cursor.rowcount)
    except psycopg.Error as error:
        lost = connection.closed
        raise DBAPIError(sql, None, error, hide_parameters=True, connection_invalidated=lost) from error


class Autocommit:
    def __init__(self, url: URL, settings: str = "") -> None:
        self._url, self._settings = url, settings
        self._idle: list[Connection] = []
        self._room = asyncio.Semaphore(_CONNECTIONS)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, sql: str, values: Mapping[str, Any], *, binary: bool) -> Result:
        self._begin_anew_in_a_new_loop()
        async with self._room:
            idle = self._idle
            connection = idle.pop() if idle else await self._connect()
            try:
                return await execute(connection, sql, values, binary=binary)
            except BaseException as error:
                if not isinstance(error, Exception):
                    await connection.close()  # cancelled: nobody knows in what state it is
                if connection.closed:
                    await self.aclose()  # if the server went away, the others have lost it too
                raise
            finally:
                if idle is not self._idle:
                    await connection.close()
                elif not connection.closed:
                    idle.append(connection)

    async def aclose(self) -> None:
        self._begin_anew_in_a_new_loop()
        # Those that are in use now find another list when they come back, and are closed.
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    def _begin_anew_in_a_new_loop(self) -> None:
        """A connection belongs to one event loop; those of one that has ended can only be hung up."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            for connection in self._idle:
                connection.pgconn.finish()
            self._idle, self._loop = [], loop
            self._room = asyncio.Semaphore(_CONNECTIONS)

    async def _connect(self) -> Connection:
        connection: Connection | None = None
        try:
            connection = await psycopg.AsyncConnection.connect(
                **connect_args(self._url), autocommit=True, application_name="postroad"
            )
            # Compiling a look takes a hundred times longer than running it; a mark must see what was committed before.
            always = "SET jit = off; SET default_transaction_isolation = 'read committed'"
            await connection.execute(f"{always}; {self._settings}")
        except BaseException as error:
            if connection is not None:
                await connection.close()
            if isinstance(error, psycopg.Error):
                raise DBAPIError(None, None, error, connection_invalidated=True) from error
            raise
        return connection
