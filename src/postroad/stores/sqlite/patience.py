"""Waiting for SQLite's one write lock. SQLite itself sleeps longer and longer between its looks, up to a tenth of a
second: with a few busy processes most of the time nobody has the lock, and somebody waits for more than a second.
"""

import random
import sqlite3
import time
from typing import Any, Final

BEGIN: Final = "BEGIN IMMEDIATE"
_PAUSE: Final = (0.0005, 0.005)


class PatientCursor(sqlite3.Cursor):
    def execute(self, sql: str, parameters: Any = (), /) -> "PatientCursor":
        if sql == BEGIN:
            self._begin()
        else:
            super().execute(sql, parameters)
        return self

    def _begin(self) -> None:
        plain = self.connection.cursor(sqlite3.Cursor)
        (timeout,) = plain.execute("PRAGMA busy_timeout").fetchone()
        deadline = time.monotonic() + timeout / 1_000
        plain.execute("PRAGMA busy_timeout = 0").fetchall()
        try:
            while not self._has_lock(deadline):
                time.sleep(random.uniform(*_PAUSE))
        finally:
            # Everything else hardly ever waits, and may do it SQLite's way.
            plain.execute(f"PRAGMA busy_timeout = {timeout}").fetchall()

    def _has_lock(self, deadline: float) -> bool:
        try:
            super().execute(BEGIN)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            return False
        return True


class PatientConnection(sqlite3.Connection):
    """For `sqlite3.connect(…, factory=PatientConnection)`."""

    def cursor(self, factory: Any = PatientCursor) -> Any:
        return super().cursor(factory)

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        return self.cursor().execute(sql, parameters)
