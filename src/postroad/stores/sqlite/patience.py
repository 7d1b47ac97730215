"""Waiting for the one write lock. SQLite itself would nap longer and longer, up to a tenth of a second, while those who
have just come take the lock: under load a relay could not renew its leases for seconds.
"""

import random
import sqlite3
import time
from typing import Any, Final

WRITE: Final = "BEGIN IMMEDIATE"
_WRITE_AHEAD: Final = "PRAGMA journal_mode = WAL"
"""Beside a writer this fails at once, whatever the busy timeout: of two processes that find a new file, one would."""
_LONGEST_NAP: Final = 0.003


class PatientConnection(sqlite3.Connection):
    def __init__(self, database: str, timeout: float, **options: Any) -> None:
        super().__init__(database, timeout=timeout, **options)
        self.patience = timeout

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(factory or _PatientCursor)

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        """By our cursor: by itself a connection would ask no cursor's `execute`, and wait as SQLite does."""
        return self.cursor().execute(sql, parameters)

    def wait_by_itself(self, seconds: float) -> None:
        super().execute(f"PRAGMA busy_timeout = {seconds * 1_000:.0f}").close()


class _PatientCursor(sqlite3.Cursor):
    connection: PatientConnection

    def execute(self, sql: str, parameters: Any = ()) -> "_PatientCursor":
        if sql not in (WRITE, _WRITE_AHEAD):
            return super().execute(sql, parameters)
        give_up_at = time.monotonic() + self.connection.patience
        self.connection.wait_by_itself(0)
        try:
            while True:
                try:
                    return super().execute(sql)
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= give_up_at:
                        raise
                time.sleep(random.uniform(0, _LONGEST_NAP))
        finally:
            self.connection.wait_by_itself(self.connection.patience)
