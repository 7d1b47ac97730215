"""SQLite straight through its driver: what a failure leaves behind."""

import sqlite3
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from postroad.stores.sqlite.direct import Direct


class BusyAtTheEnd(sqlite3.Connection):
    """The first COMMIT finds the file locked."""

    commits = 0

    def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
        if sql == "COMMIT":
            self.commits += 1
            if self.commits == 1:
                locked = sqlite3.OperationalError("database is locked")
                locked.sqlite_errorcode = sqlite3.SQLITE_BUSY
                raise locked
        return super().execute(sql, values)


def connect() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", factory=BusyAtTheEnd, isolation_level=None, check_same_thread=False)


async def test_what_could_not_be_committed_is_rolled_back_and_the_connection_goes_on() -> None:
    direct = Direct(connect, "BEGIN IMMEDIATE")
    with pytest.raises(DBAPIError, match="locked"):
        await direct.run("CREATE TABLE t (x)", {})
    await direct.run("CREATE TABLE t (x)", {})
    assert (await direct.run("INSERT INTO t VALUES (:x)", {"x": 7})).rowcount == 1
    assert [row.x for row in (await direct.run("SELECT x FROM t", {})).rows] == [7]
    assert direct.connected == 1
    await direct.aclose()


async def test_after_any_other_error_it_connects_anew() -> None:
    direct = Direct(lambda: sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False), "BEGIN")
    for _ in range(2):
        with pytest.raises(DBAPIError, match="no such table"):
            await direct.run("SELECT x FROM nowhere", {})
    assert direct.connected == 2
    await direct.aclose()
