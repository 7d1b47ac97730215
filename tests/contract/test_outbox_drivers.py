"""Plain driver connections write the same row as SQLAlchemy does."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pymysql
import pytest
from sqlalchemy import create_engine

from postroad.errors import ConfigurationError, NoTransaction, SchemaMissing, StoreBusy, VersionConflict
from postroad.outbox import Outbox
from postroad.stores import open_store
from postroad.testing.office import Office, Posted
from tests.contract.test_outbox_transactions import SYNC_DRIVERS


def connect(kind: str, url: str, *, autocommit: bool = False) -> object:
    if kind == "postgresql":
        return psycopg.connect(url, autocommit=autocommit)
    if kind == "sqlite":
        return sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None if autocommit else "")
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname or "",
        port=parts.port or 3306,
        user=parts.username,
        password=parts.password or "",
        database=parts.path[1:],
        autocommit=autocommit,
    )


@contextmanager
def begun(kind: str, url: str) -> Iterator[object]:
    """A connection in a transaction that commits at the end."""
    with closing(connect(kind, url)) as connection:
        if kind == "sqlite":
            connection.execute("BEGIN IMMEDIATE")
        elif kind == "postgresql":
            connection.execute("SELECT 1")
        else:
            connection.begin()
        yield connection
        connection.commit()


@pytest.mark.spec("F2")
async def test_a_driver_connection_writes_what_the_relay_sends(office: Office, store_kind: str, store_url: str) -> None:
    with begun(store_kind, store_url) as connection:
        added = office.outbox.add(connection, Posted("a", "☃\\'\""), headers={"x": "1"})
        office.outbox.add(connection, Posted("a"), version=7)
    await office.carry()
    first, second = office.broker.sent
    assert (first.payload, first.id, first.headers) == (added.message.payload, added.id, {"x": "1"})
    assert (first.version, second.version) == (1, 7)


async def test_a_driver_connection_wakes_the_relay(office: Office, store_kind: str, store_url: str) -> None:
    told = threading.Event()
    office.outbox.wakes[office.table].listen(told.set)
    with begun(store_kind, store_url) as connection:
        office.outbox.add(connection, Posted("a"))
    assert await asyncio.to_thread(told.wait, 20)


async def test_a_driver_connection_rolls_the_event_back(office: Office, store_kind: str, store_url: str) -> None:
    with begun(store_kind, store_url) as connection:
        office.outbox.add(connection, Posted("a"))
        connection.rollback()
    assert not await office.rows()


@pytest.mark.parametrize("autocommit", [False, True])
async def test_outside_a_transaction_a_driver_connection_is_refused(
    office: Office, store_kind: str, store_url: str, autocommit: bool
) -> None:
    call = {
        "sqlite": r'connection\.execute\("BEGIN IMMEDIATE"\)',
        "postgresql": r"with connection\.transaction\(\):",
        "mariadb": r"connection\.begin\(\)",
    }[store_kind]
    with (
        closing(connect(store_kind, store_url, autocommit=autocommit)) as connection,
        pytest.raises(NoTransaction, match=call),
    ):
        office.outbox.add(connection, Posted("a"))
    assert not await office.rows()


async def test_a_driver_connection_tells_a_version_conflict(office: Office, store_kind: str, store_url: str) -> None:
    await office.post("a")
    with begun(store_kind, store_url) as connection:
        with pytest.raises(VersionConflict, match="'a' has already reached version 1"):
            office.outbox.add(connection, Posted("a"), version=1)
        connection.rollback()
    assert len(await office.rows()) == 1


@pytest.mark.parametrize("store_kind", ["postgresql", "mariadb"])
@pytest.mark.parametrize("through", ["driver", "sqlalchemy"])
async def test_a_deadlock_between_two_connections_says_that_one_may_repeat(
    office: Office, store_kind: str, store_url: str, through: str
) -> None:
    engine = create_engine(f"{SYNC_DRIVERS[store_kind]}:{store_url.partition(':')[2]}")
    # Counters that are there already: to insert one, MariaDB may lock the gap in which the other's would be.
    await office.post("a", "b")
    meeting = threading.Barrier(2)

    def transact(first: str, second: str, deadlocks: int = 0) -> int:
        connecting = begun(store_kind, store_url) if through == "driver" else engine.begin()
        try:
            with connecting as connection:
                office.outbox.add(connection, Posted(first))
                if not deadlocks:
                    meeting.wait(timeout=60)
                office.outbox.add(connection, Posted(second))
        except StoreBusy:
            return transact(first, second, deadlocks + 1)
        return deadlocks

    met = await asyncio.gather(asyncio.to_thread(transact, "a", "b"), asyncio.to_thread(transact, "b", "a"))
    engine.dispose()
    assert sum(met) >= 1  # who repeats may be faster than whom it made room for, and meet it again
    assert sorted(row.version for row in await office.rows()) == [1, 1, 2, 2, 3, 3]


async def test_a_driver_connection_without_the_tables_says_which_command_helps(
    store_kind: str, database_url: str
) -> None:
    empty = open_store(database_url)
    with begun(store_kind, database_url) as connection:
        with pytest.raises(SchemaMissing, match="postroad db migrate"):
            Outbox(empty, "office").add(connection, Posted("a"))
        connection.rollback()
    await empty.aclose()


async def test_a_cursor_is_no_connection(office: Office, store_kind: str, store_url: str) -> None:
    with (
        begun(store_kind, store_url) as connection,
        pytest.raises(ConfigurationError, match=r"cannot write through a .*Cursor"),
    ):
        office.outbox.add(connection.cursor(), Posted("a"))
    with pytest.raises(ConfigurationError, match=r"cannot write through a builtins\.str"):
        office.outbox.add("session", Posted("a"))


only_postgresql = pytest.mark.parametrize("store_kind", ["postgresql"])


@only_postgresql
async def test_asyncpg_writes_in_its_transaction_only(office: Office, store_kind: str, store_url: str) -> None:
    connection = await asyncpg.connect(store_url)
    with pytest.raises(NoTransaction, match=r"async with connection\.transaction\(\):[\s\S]*await road\.add"):
        office.outbox.add(connection, Posted("a"))
    async with connection.transaction():
        added = await office.outbox.add(connection, Posted("a"), delay=60)
        with pytest.raises(VersionConflict):
            async with connection.transaction():
                await office.outbox.add(connection, Posted("a"), version=1)
        await office.outbox.add(connection, Posted("a"), version=5)
    await connection.close()
    await office.carry()
    assert sorted(office.broker.versions("a")) == [1, 5]
    assert {message.deliver_at for message in office.broker.sent} == {added.message.deliver_at, None}


@only_postgresql
async def test_a_deadlock_between_asyncpg_connections_says_so_too(
    office: Office, store_kind: str, store_url: str
) -> None:
    connections = [await asyncpg.connect(store_url) for _ in range(2)]
    meeting = asyncio.Barrier(2)

    async def transact(connection: asyncpg.Connection, first: str, second: str) -> None:
        async with connection.transaction():
            await office.outbox.add(connection, Posted(first))
            await meeting.wait()
            await office.outbox.add(connection, Posted(second))

    errors = await asyncio.gather(
        transact(connections[0], "a", "b"), transact(connections[1], "b", "a"), return_exceptions=True
    )
    for connection in connections:
        await connection.close()
    assert {type(error) for error in errors} == {type(None), StoreBusy}
    assert [row.version for row in await office.rows()] == [1, 1]


@only_postgresql
async def test_an_asynchronous_driver_connection_wakes_the_relay(
    office: Office, store_kind: str, store_url: str
) -> None:
    told = threading.Event()
    office.outbox.wakes[office.table].listen(told.set)
    async with await psycopg.AsyncConnection.connect(store_url) as connection, connection.transaction():
        await office.outbox.add(connection, Posted("a"))
    assert await asyncio.to_thread(told.wait, 20)


@only_postgresql
async def test_a_pooled_asyncpg_connection_writes_too(office: Office, store_kind: str, store_url: str) -> None:
    async with asyncpg.create_pool(store_url, min_size=1) as pool:
        with pytest.raises(ConfigurationError, match="Pool"):
            office.outbox.add(pool, Posted("a"))
        async with pool.acquire() as connection, connection.transaction():
            await office.outbox.add(connection, Posted("a"))
    assert len(await office.rows()) == 1


@only_postgresql
async def test_asynchronous_psycopg_writes_in_its_transaction_only(
    office: Office, store_kind: str, store_url: str
) -> None:
    async with await psycopg.AsyncConnection.connect(store_url, autocommit=True) as connection:
        with pytest.raises(NoTransaction, match=r"async with connection\.transaction\(\):"):
            office.outbox.add(connection, Posted("a"))
        async with connection.transaction():
            await office.outbox.add(connection, Posted("a"))
    await office.carry()
    assert office.broker.versions("a") == [1]


@only_postgresql
async def test_an_add_that_is_never_awaited_is_loud(office: Office, store_kind: str, store_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(store_url) as connection, connection.transaction():
        with pytest.warns(RuntimeWarning, match=r"parcel\.posted .* was NOT stored"):
            office.outbox.add(connection, Posted("a"))
    assert not await office.rows()
