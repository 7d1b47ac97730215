"""Every store passes the contract, and all of them speak through the same statements."""

import asyncio
import re
from contextlib import AsyncExitStack
from importlib import resources
from urllib.parse import urlsplit
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import make_url, text

from postroad.errors import ConfigurationError, StoreBusy, StoreUnavailable
from postroad.stores import STORES, Store, open_store, queries
from postroad.stores.postgresql.driver import PostgreSQL
from postroad.testing.faulty_store import FaultyStore
from postroad.testing.office import Office, Posted, opened
from postroad.testing.store_contract import StoreContract


class TestStores(StoreContract):
    pass


@pytest.mark.parametrize("dialect", STORES)
def test_every_store_has_the_same_statements_with_the_same_parameters(dialect: str) -> None:
    def told(dialect: str) -> dict[str, set[str]]:
        return {name: set(queries.parameters(sql)) for name, sql in queries.load(dialect).items()}

    assert told(dialect) == told("postgresql")


@pytest.mark.parametrize("dialect", STORES)
def test_a_statement_that_serves_all_stores_is_written_once(dialect: str) -> None:
    shared = resources.files("postroad.stores").joinpath("shared")
    common = {name for file in shared.iterdir() for name in queries.parse(file.read_text(encoding="utf-8"))}
    own: set[str] = set()
    for file in resources.files("postroad.stores").joinpath(dialect).iterdir():
        if file.name.endswith(".sql"):
            own |= set(queries.parse(file.read_text(encoding="utf-8")))
    assert common
    assert own
    assert not common & own


def test_an_address_shows_neither_user_nor_password() -> None:
    for scheme in ("postgresql", "mysql"):
        store = open_store(f"{scheme}://someone:secret@host:1234/name?option=hidden")
        assert store.address == f"{scheme}://host:1234/name"


@pytest.mark.parametrize(
    ("url", "told"),
    [("oracle://x/y", "No store for 'oracle'"), ("nonsense", "The database URL cannot be read")],
)
def test_a_url_without_a_store_is_refused(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        open_store(url)


@pytest.mark.parametrize("store_kind", ["postgresql", "mariadb"])
def test_a_database_that_is_away_is_unavailable(store_kind: str) -> None:
    async def ask() -> None:
        store = open_store(f"{store_kind}://nobody@127.0.0.1:1/nothing")
        try:
            async with store.reading() as connection:
                await store.execute(connection, "migrations_applied")
        finally:
            await store.aclose()

    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1/nothing cannot be reached"):
        asyncio.run(ask())


@pytest.mark.parametrize("store_kind", ["postgresql", "mariadb"])
async def test_a_server_that_turns_us_away_is_told_from_one_that_is_away(database_url: str) -> None:
    wrong = {"username": "nobody", "password": "wrong"}
    store = open_store(make_url(database_url).set(**wrong).render_as_string(hide_password=False))
    with pytest.raises(StoreUnavailable, match=r"turns us away .* Check user, password and database") as raised:
        await store.read("migrations_applied")
    await store.aclose()
    assert "wrong" not in str(raised.value)


@pytest.mark.parametrize("store_kind", ["postgresql", "mariadb"])
async def test_a_database_that_is_not_there_is_named_with_what_creates_it(database_url: str) -> None:
    url = make_url(database_url)
    store = open_store(url.set(database="no where").render_as_string(hide_password=False))
    named = re.escape(f"There is no database no where at {url.host}:{url.port}. Create it there with: ")
    missing = pytest.raises(StoreUnavailable, match=f'{named}CREATE DATABASE ["`]no where["`]$')
    with missing:
        await store.read("migrations_applied")
    with missing:
        async with store.transaction():
            pass
    await store.aclose()


async def test_when_every_connection_is_in_use_the_store_is_busy_and_not_broken(store: Store) -> None:
    """A relay or subscriber then waits and tries again, as with a deadlock; it does not die of it."""
    pool = store.engine.pool
    pool._timeout = 0.01
    async with AsyncExitStack() as in_use:
        for _ in range(pool.size() + pool._max_overflow):
            await in_use.enter_async_context(store.reading())
        with pytest.raises(StoreBusy, match=r"No connection to .* was free"):
            await in_use.enter_async_context(store.reading())
    async with store.reading() as connection:
        await store.execute(connection, "migrations_applied")


@pytest.mark.parametrize("store_kind", ["postgresql"])
async def test_each_statement_sees_what_was_committed_before_it_whatever_the_servers_default(
    store_kind: str, fresh_postgresql_url: str
) -> None:
    name = urlsplit(fresh_postgresql_url).path[1:]
    with psycopg.connect(fresh_postgresql_url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    store, other = open_store(fresh_postgresql_url), open_store(fresh_postgresql_url)
    assert isinstance(store, PostgreSQL)
    async with opened(store) as office:
        writer = Office(other)
        count = store.fill("SELECT count(*) FROM {versions}")
        async with store.transaction() as connection, store.session() as session, session.begin():
            assert (await connection.exec_driver_sql(count)).scalar() == 0
            assert (await session.execute(text(count))).scalar() == 0
            await writer.post("a")
            assert (await connection.exec_driver_sql(count)).scalar() == 1
            assert (await session.execute(text(count))).scalar() == 1
        # Two writers of one aggregate: the later one waits for the counter, and then counts on from it.
        async with store.session() as session, session.begin():
            await session.execute(text(count))
            await writer.post("a")
            office.outbox.add(session, Posted("a"))
        assert [row.version for row in await office.rows()] == [1, 2, 3]
        # Statements that are transactions by themselves: under another level a mark would fail that had to wait.
        asked = await store._autocommit.run(
            "SELECT current_setting('transaction_isolation') AS level", {}, binary=False
        )
        assert [row.level for row in asked.rows] == ["read committed"]
        writer.outbox.close()
    await other.aclose()


async def test_what_a_session_has_read_stays_readable_after_its_commit(store: Store) -> None:
    """Read again, it would need a connection that an async session does not open by itself."""
    async with store.session() as session:
        assert not session.sync_session.expire_on_commit


@pytest.mark.parametrize("store_kind", ["mariadb"])
async def test_each_statement_sees_what_was_committed_before_it_where_the_default_is_another(
    store_kind: str, store: Store, store_url: str
) -> None:
    """Also because a look that finds nothing would else keep others from inserting until its commit."""
    writer = Office(open_store(store_url))
    count = store.fill("SELECT count(*) FROM {versions}")
    async with store.transaction() as connection:
        assert (await connection.exec_driver_sql(count)).scalar() == 0
        await writer.post("a")
        assert (await connection.exec_driver_sql(count)).scalar() == 1
    writer.outbox.close()
    await writer.store.aclose()


def test_parameters_are_restyled_for_each_driver() -> None:
    sql = "SELECT ':no', :a, x LIKE '%', :b, :a -- :neither"
    assert queries.parameters(sql) == ("a", "b")
    assert queries.restyle(sql, "pyformat").startswith("SELECT ':no', %(a)s, x LIKE '%%', %(b)s, %(a)s")
    assert queries.restyle(sql, "numbered").startswith("SELECT ':no', $1, x LIKE '%', $2, $1")


async def test_a_scripted_store_fails_as_told(office: Office) -> None:
    faulty = FaultyStore(office.store)
    with pytest.raises(ValueError, match="'wrong' is no fate of a statement"):
        faulty.script("mark_sent", "wrong")
    with pytest.raises(KeyError):
        faulty.script("no_such_statement", "busy")
    assert faulty.dialect == office.store.dialect
    faulty.script("worker_gone", "busy", "unavailable", "failed_commit", "lost_commit", "none")
    for expected in (StoreBusy, StoreUnavailable, StoreUnavailable, StoreUnavailable):
        with pytest.raises(expected):
            async with faulty.transaction() as connection:
                await faulty.execute(connection, "worker_gone", id=UUID(int=1))
    async with faulty.transaction() as connection:
        assert (await faulty.execute(connection, "worker_gone", id=UUID(int=1))).rowcount == 0
