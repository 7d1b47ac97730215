"""Statements that are transactions by themselves, straight through the driver in a thread of their own: a relay's looks
and marks. With a layer and a change of thread for BEGIN, statement and COMMIT each, they would take ten times as long.
"""

import asyncio
import sqlite3
from collections import namedtuple
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from sqlalchemy.exc import DBAPIError

from postroad.stores.base import Result


class Direct:
    """One connection; `begin` is how its transactions begin."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], begin: str) -> None:
        self._connect, self._begin = connect, begin
        self.connected = 0
        """How often."""
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, "postroad-sqlite")

    async def run(self, sql: str, values: Mapping[str, Any]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, sql, values)

    async def aclose(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)

    def _run(self, sql: str, values: Mapping[str, Any]) -> Result:
        try:
            if self._connection is None:
                self._connection = self._connect()
                self.connected += 1
            return self._transact(self._connection, sql, values)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY:
                self._disconnect()
            raise DBAPIError(sql, None, error, hide_parameters=True) from error

    def _transact(self, connection: sqlite3.Connection, sql: str, values: Mapping[str, Any]) -> Result:
        connection.execute(self._begin)
        try:
            cursor = connection.execute(sql, values)
            result = Result(_rows(cursor), cursor.rowcount)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _rows(cursor: sqlite3.Cursor) -> list[Any]:
    if cursor.description is None:
        return []
    row = _row_type(tuple(column[0] for column in cursor.description))
    return [row(*values) for values in cursor.fetchall()]


@cache
def _row_type(names: tuple[str, ...]) -> type[Any]:
    return namedtuple("Row", names)
