"""Trouble with the disk is an outage, to be waited out; it must not be taken for a handler's failure."""

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy.exc import OperationalError

from postroad.errors import StoreBusy, StoreUnavailable
from postroad.stores import open_store


@contextmanager
def no_room() -> Iterator[None]:
    """No file of this process may grow beyond its first page."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_file_that_cannot_grow_makes_the_store_unavailable_for_a_while(sqlite_url: str) -> None:
    store = open_store(sqlite_url)
    async with store.transaction() as connection:
        await connection.exec_driver_sql("CREATE TABLE note (text TEXT)")
    with no_room(), pytest.raises(StoreUnavailable, match="disk I/O error"):
        async with store.transaction() as connection:
            await connection.exec_driver_sql("INSERT INTO note VALUES (hex(randomblob(9000)))")
    async with store.transaction() as connection:
        await connection.exec_driver_sql("INSERT INTO note VALUES ('room again')")
    await store.aclose()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("SQLITE_IOERR", StoreUnavailable),
        ("SQLITE_IOERR_WRITE", StoreUnavailable),
        ("SQLITE_IOERR_FSYNC", StoreUnavailable),
        ("SQLITE_FULL", StoreUnavailable),
        ("SQLITE_CANTOPEN_ISDIR", StoreUnavailable),
        ("SQLITE_BUSY", StoreBusy),
        ("SQLITE_BUSY_RECOVERY", StoreBusy),
        ("SQLITE_BUSY_SNAPSHOT", StoreBusy),
        ("SQLITE_LOCKED_SHAREDCACHE", StoreBusy),
        ("SQLITE_CONSTRAINT_UNIQUE", OperationalError),
        ("", OperationalError),
    ],
)
def test_an_extended_code_means_what_its_kind_means(name: str, expected: type[Exception]) -> None:
    origin = sqlite3.OperationalError("trouble")
    origin.sqlite_errorname = name
    assert type(open_store("sqlite:///x.db").translate(OperationalError("", {}, origin))) is expected
