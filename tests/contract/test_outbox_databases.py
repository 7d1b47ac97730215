"""An event is written where the service's tables are, and not where somebody else's are."""

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import psycopg
import pymysql
import pytest
from psycopg.rows import dict_row
from pymysql.cursors import DictCursor
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from postroad.errors import ConfigurationError
from postroad.stores import Store, open_store
from postroad.stores.migrations import migrate
from postroad.stores.tables import DEFAULT_OUTBOX
from postroad.testing.office import Office, Posted
from tests.contract.test_outbox_drivers import begun, connect
from tests.contract.test_outbox_transactions import ASYNC_DRIVERS, SYNC_DRIVERS


@pytest.fixture
async def other(database_url: str) -> AsyncIterator[Store]:
    """Another service's database, with tables of its own."""
    store = open_store(database_url)
    await migrate(store, [DEFAULT_OUTBOX])
    yield store
    await store.aclose()


only_postgresql = pytest.mark.parametrize("store_kind", ["postgresql"])
only_servers = pytest.mark.parametrize("store_kind", ["postgresql", "mariadb"])


def engine_to(store_kind: str, url: str) -> Engine:
    return create_engine(f"{SYNC_DRIVERS[store_kind]}:{url.partition(':')[2]}")


@pytest.mark.spec("F2")
@pytest.mark.parametrize("through", ["session", "connection", "async connection"])
async def test_another_services_database_is_refused_although_it_has_the_tables(
    office: Office, other: Store, store_kind: str, database_url: str, through: str
) -> None:
    told = re.escape(f"This connection is on {make_url(database_url).database}, Postroad's tables are in ")
    if through == "async connection":
        engine = create_async_engine(f"{ASYNC_DRIVERS[store_kind]}:{database_url.partition(':')[2]}")
        async with engine.connect() as connection, connection.begin() as transaction:
            with pytest.raises(ConfigurationError, match=told):
                await office.outbox.add(connection, Posted("a"))
            await transaction.rollback()
        await engine.dispose()
    else:
        engine = engine_to(store_kind, database_url)
        with Session(engine) as session, session.begin():
            with pytest.raises(ConfigurationError, match=told):  # noqa: PT012 - a session writes with its flush
                office.outbox.add(session if through == "session" else session.connection(), Posted("a"))
                session.flush()
            session.rollback()
        engine.dispose()
    assert not await Office(other).rows()


@pytest.mark.spec("F2")
async def test_so_it_is_through_a_plain_driver(
    office: Office, other: Store, store_kind: str, database_url: str
) -> None:
    told = re.escape(f"This connection is on {make_url(database_url).database}, Postroad's tables are in ")
    with begun(store_kind, database_url) as connection:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=told):
                office.outbox.add(connection, Posted("a"))
    assert not await Office(other).rows()


@only_postgresql
async def test_so_it_is_through_asynchronous_psycopg(office: Office, other: Store, database_url: str) -> None:
    told = re.escape(f"This connection is on {make_url(database_url).database}, Postroad's tables are in ")
    async with await psycopg.AsyncConnection.connect(database_url) as connection, connection.transaction():
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=told):
                await office.outbox.add(connection, Posted("a"))
    assert not await Office(other).rows()


@pytest.fixture
def asked(office: Office, monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Is told what a database has said of itself."""
    asked = Mock(wraps=office.store.refuse_other)
    monkeypatch.setattr(office.store, "refuse_other", asked)
    return asked


@only_servers
async def test_a_driver_that_names_the_services_database_costs_no_question(
    office: Office, store_kind: str, store_url: str, asked: Mock
) -> None:
    with begun(store_kind, store_url) as connection:
        office.outbox.add(connection, Posted("a"))
    assert not asked.called


@pytest.mark.parametrize("store_kind", ["mariadb"])
@pytest.mark.parametrize("first", ["", "other"])
async def test_a_pymysql_connection_may_have_changed_to_the_services_database(
    office: Office, store_kind: str, store_url: str, database_url: str, first: str, asked: Mock
) -> None:
    with closing(connect(store_kind, database_url if first else f"{store_url.rpartition('/')[0]}/")) as connection:
        assert isinstance(connection, pymysql.Connection)
        connection.select_db(make_url(store_url).database)
        connection.cursorclass = DictCursor
        for parcel in "ab":
            connection.begin()
            office.outbox.add(connection, Posted(parcel))
            connection.commit()
    assert asked.call_count == 1
    assert len(await office.rows()) == 2


@only_postgresql
async def test_a_psycopg_connection_may_have_another_name_for_it(
    office: Office, store_kind: str, store_url: str, asked: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler."""
    monkeypatch.setattr(psycopg.ConnectionInfo, "dbname", "by-another-name")
    with begun(store_kind, store_url) as connection:
        assert isinstance(connection, psycopg.Connection)
        connection.row_factory = dict_row
        for parcel in "ab":
            office.outbox.add(connection, Posted(parcel))
    async with await psycopg.AsyncConnection.connect(store_url, row_factory=dict_row) as other, other.transaction():
        for parcel in "cd":
            await office.outbox.add(other, Posted(parcel))
    assert asked.call_count == 2
    assert len(await office.rows()) == 4


async def test_an_engine_that_only_the_database_can_tell_about_is_asked_once(
    office: Office, store_kind: str, store_url: str
) -> None:
    """By way of a proxy a database may have another name, and there may be none at all in a URL."""
    own = engine_to(store_kind, store_url)
    arguments, options = own.dialect.create_connect_args(own.url)
    engine = create_engine(
        own.url.set(database="by-another-name"), creator=lambda: own.dialect.connect(*arguments, **options)
    )
    asked: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *args: asked.append(args[2]))
    for parcel in "ab":
        with Session(engine) as session, session.begin():
            office.outbox.add(session, Posted(parcel))
    assert asked.count(office.store.databases_sql) == 1
    engine.dispose()
    assert len(await office.rows()) == 2


only_sqlite = pytest.mark.parametrize("store_kind", ["sqlite"])


@only_sqlite
@pytest.mark.parametrize("name", ["other.db", ":memory:"])
async def test_another_file_and_the_services_own_are_both_named(
    office: Office, store_url: str, tmp_path: Path, name: str
) -> None:
    file = name if name == ":memory:" else str(tmp_path / name)
    told = re.escape(f"This connection is on {file}, Postroad's tables are in {store_url}.")
    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(ConfigurationError, match=told):
            office.outbox.add(connection, Posted("a"))
    engine = create_engine(f"sqlite:///{file}")
    with Session(engine) as session, session.begin():
        office.outbox.add(session, Posted("a"))
        with pytest.raises(ConfigurationError, match=told):
            session.flush()
        session.rollback()
    engine.dispose()


@only_sqlite
async def test_the_services_file_may_be_attached_to_another_or_have_two_paths(
    office: Office, store_url: str, tmp_path: Path
) -> None:
    file, second = Path(str(make_url(store_url).database)), tmp_path / "second.db"
    second.symlink_to(file)
    with closing(sqlite3.connect(tmp_path / "business.db")) as connection:
        connection.execute("ATTACH ? AS road", (str(file),))
        connection.execute("BEGIN IMMEDIATE")
        office.outbox.add(connection, Posted("a"))
        connection.commit()
    engine = create_engine(f"sqlite:///{second}")
    with Session(engine) as session, session.begin():
        office.outbox.add(session, Posted("b"))
    engine.dispose()
    assert len(await office.rows()) == 2
