"""The event lives and dies with the caller's transaction, whatever that is made of."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from postroad.errors import ConfigurationError, NoTransaction, SchemaMissing, VersionConflict, WriteRefused
from postroad.outbox import Outbox
from postroad.stores import open_store
from postroad.testing.office import Office, Posted
from tests.support.outbox import Weighed

SYNC_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mariadb": "mysql+pymysql"}
ASYNC_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+asyncpg",
    "mariadb": "mysql+asyncmy",
}


@pytest.fixture
def engine(store_kind: str, store_url: str) -> Iterator[Engine]:
    """The application's own, with its own settings, as a service has it."""
    engine = create_engine(f"{SYNC_DRIVERS[store_kind]}:{store_url.partition(':')[2]}")
    yield engine
    engine.dispose()


@pytest.fixture
async def async_engine(store_kind: str, store_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(f"{ASYNC_DRIVERS[store_kind]}:{store_url.partition(':')[2]}")
    yield engine
    await engine.dispose()


@pytest.mark.spec("F2")
async def test_an_own_session_writes_events_that_are_sent(office: Office, engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        office.outbox.add(session, Posted("a"))
        office.outbox.add(session, Posted("a", "again"), version=10**17)
    with sessionmaker(engine).begin() as session:
        office.outbox.add(session, Posted("b"))
    assert office.broker.sent == []
    await office.carry()
    assert (office.broker.versions("a"), office.broker.versions("b")) == ([1, 10**17], [1])


@pytest.mark.spec("F2")
async def test_an_own_async_session_writes_events_that_are_sent(office: Office, async_engine: AsyncEngine) -> None:
    async with AsyncSession(async_engine) as session, session.begin():
        office.outbox.add(session, Posted("a"), delay=60)
        await office.outbox.add(session, Posted("a"), version=10**17)
    await office.carry()
    assert sorted(office.broker.versions("a")) == [1, 10**17]


@pytest.mark.spec("F2")
async def test_the_session_of_a_thread_or_a_task_writes_events_that_are_sent(
    office: Office, engine: Engine, async_engine: AsyncEngine
) -> None:
    of_thread = scoped_session(sessionmaker(engine))
    with of_thread.begin():
        office.outbox.add(of_thread, Posted("a"))
    of_thread.remove()
    of_task = async_scoped_session(async_sessionmaker(async_engine), scopefunc=asyncio.current_task)
    async with of_task.begin():
        office.outbox.add(of_task, Posted("b"))
    await of_task.remove()
    await office.carry()
    assert (office.broker.versions("a"), office.broker.versions("b")) == ([1], [1])


async def test_connections_write_events_that_are_sent(
    office: Office, engine: Engine, async_engine: AsyncEngine
) -> None:
    with engine.begin() as connection:
        office.outbox.add(connection, Posted("a"))
    async with async_engine.begin() as connection:
        await office.outbox.add(connection, Posted("a"))
    await office.carry()
    assert office.broker.versions("a") == [1, 2]


async def test_a_rolled_back_savepoint_takes_its_events_along(office: Office, engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        office.outbox.add(session, Posted("before"))
        pending = session.begin_nested()
        office.outbox.add(session, Posted("pending"))
        pending.rollback()
        flushed = session.begin_nested()
        office.outbox.add(session, Posted("flushed"))
        session.flush()
        flushed.rollback()
        with session.begin_nested():
            office.outbox.add(session, Posted("kept"))
        office.outbox.add(session, Posted("after"))
    assert [row.ordering_key for row in await office.rows()] == [
        "parcel/after",
        "parcel/before",
        "parcel/kept",
    ]


async def test_a_rolled_back_session_forgets_its_events(office: Office, engine: Engine) -> None:
    with Session(engine) as session:
        with session.begin():
            office.outbox.add(session, Posted("a"))
            session.rollback()
        with session.begin():
            session.execute(text("SELECT 1"))
    assert not await office.rows()


async def test_without_a_transaction_each_kind_tells_the_right_call(
    office: Office, engine: Engine, async_engine: AsyncEngine
) -> None:
    def told(target: object) -> str:
        with pytest.raises(NoTransaction) as refused:
            office.outbox.add(target, Posted("a"))
        return str(refused.value)

    with Session(engine) as session, engine.connect() as connection:
        assert "\n    with session.begin():" in told(session)
        assert "road.add(session, event)" in told(session)
        assert "\n    with engine.begin() as connection:" in told(connection)
    async with AsyncSession(async_engine) as session, async_engine.connect() as connection:
        assert "\n    async with session.begin():" in told(session)
        assert "\n    async with engine.begin() as connection:" in told(connection)
        assert "await road.add(connection, event)" in told(connection)
    assert not await office.rows()


@pytest.mark.parametrize("ending", ["after_commit", "after_rollback"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_a_hook_that_runs_when_the_transaction_has_ended_adds_nothing(
    office: Office, engine: Engine, async_engine: AsyncEngine, ending: str, asynchronous: bool
) -> None:
    refused: list[str] = []

    async def run(session: Session | AsyncSession, sync_session: Session) -> None:
        def too_late(_: Session) -> None:
            with pytest.raises(NoTransaction, match="or it has ended already") as error:
                office.outbox.add(session, Posted("late"))
            refused.append(str(error.value))

        event.listen(sync_session, ending, too_late)
        office.outbox.add(session, Posted("a"))
        ended = session.commit() if ending == "after_commit" else session.rollback()
        if ended is not None:
            await ended

    if asynchronous:
        async with AsyncSession(async_engine) as session:
            await session.execute(text("SELECT 1"))
            await run(session, session.sync_session)
    else:
        with Session(engine) as session:
            session.execute(text("SELECT 1"))
            await run(session, session)
    assert len(refused) == 1
    assert [row.ordering_key for row in await office.rows()] == (["parcel/a"] if ending == "after_commit" else [])


@pytest.mark.parametrize("level", ["engine", "option", "connection"])
async def test_autocommit_is_refused(office: Office, engine: Engine, level: str) -> None:
    if level == "engine":
        autocommit = create_engine(engine.url, isolation_level="AUTOCOMMIT")
    else:
        autocommit = engine.execution_options(isolation_level="AUTOCOMMIT") if level == "option" else engine
    with autocommit.connect() as connection:
        connection = connection.execution_options(isolation_level="AUTOCOMMIT") if level == "connection" else connection
        connection.begin()
        with pytest.raises(NoTransaction, match="AUTOCOMMIT"):
            office.outbox.add(connection, Posted("a"))
        connection.rollback()
    with Session(autocommit) as session:
        session.begin()
        office.outbox.add(session, Posted("a"))
        if level != "connection":
            with pytest.raises(NoTransaction, match="AUTOCOMMIT"):
                session.commit()
        session.rollback()
    assert not await office.rows()
    autocommit.dispose()


async def test_an_add_is_one_statement_and_a_flush_of_many_as_few_as_possible(
    office: Office, engine: Engine, store_kind: str
) -> None:
    calls: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda c, cursor, sql, *_: calls.append(sql))
    with engine.begin() as connection:
        calls.clear()
        office.outbox.add(connection, Posted("a"))
        assert len(calls) == 1
    with Session(engine) as session, session.begin():
        session.connection()
        calls.clear()
        for _ in range(5):
            office.outbox.add(session, Posted("a"))
        session.flush()
    assert len(calls) == (5 if store_kind == "mariadb" else 1)
    assert len(await office.rows()) == 6


async def test_a_refused_version_cannot_be_left_out_of_a_session(office: Office, engine: Engine) -> None:
    await office.post("taken")
    with Session(engine) as session:
        session.execute(text("CREATE TABLE business (id INT)"))
        session.commit()
        session.begin()
        session.execute(text("INSERT INTO business VALUES (1)"))
        office.outbox.add(session, Posted("fine"), version=3)
        office.outbox.add(session, Posted("taken"), version=1)
        with pytest.raises(VersionConflict, match=r"parcel 'taken' has already reached version 1"):
            session.flush()
        # The error is caught, but the event still stands between the rows and their commit: it is tried again, and
        # nobody is told that he took it away. PostgreSQL has ended the transaction in its own words.
        with pytest.raises(Exception) as again:
            session.commit()
        assert "made to forget" not in str(again.value)
        session.rollback()
    assert not await office.query("SELECT id FROM business")
    assert len(await office.rows()) == 1


@pytest.mark.parametrize("awaited", [True, False], ids=["failed", "never awaited"])
async def test_a_connection_does_not_commit_without_an_event_it_was_given(
    office: Office, async_engine: AsyncEngine, awaited: bool
) -> None:
    await office.post("taken")
    await office.run("CREATE TABLE business (id INT)")

    async def careless(connection: AsyncConnection) -> None:
        await connection.execute(text("INSERT INTO business VALUES (1)"))
        added = office.outbox.add(connection, Posted("taken"), version=1)
        if awaited:
            with pytest.raises(VersionConflict):
                await added
        else:
            with pytest.warns(RuntimeWarning, match="was NOT stored, because its `add` was never awaited"):
                del added

    with pytest.raises((WriteRefused, ConfigurationError), match=r"parcel\.posted of parcel 'taken'"):
        async with async_engine.begin() as connection:
            await careless(connection)
    assert not await office.query("SELECT id FROM business")

    async with async_engine.connect() as connection:
        await connection.begin()
        await office.outbox.add(connection, Posted("kept"))
        savepoint = await connection.begin_nested()
        await careless(connection)
        await savepoint.rollback()
        await connection.commit()
        await connection.begin()
        await careless(connection)
        await connection.rollback()
        async with connection.begin():
            await office.outbox.add(connection, Posted("kept"))
    assert [(row.ordering_key, row.version) for row in await office.rows()] == [
        ("parcel/kept", 1),
        ("parcel/kept", 2),
        ("parcel/taken", 1),
    ]


async def test_two_versions_in_one_flush_name_the_one_that_is_taken(office: Office, engine: Engine) -> None:
    await office.post("b")
    with Session(engine) as session, session.begin():
        for parcel in "abc":
            office.outbox.add(session, Posted(parcel), version=1)
        with pytest.raises(VersionConflict) as refused:
            session.flush()
        session.rollback()
    assert refused.value.aggregate_id == "b"


@pytest.mark.parametrize("store_kind", ["postgresql", "mariadb"])
async def test_a_session_on_another_kind_of_database_is_refused(office: Office, store_kind: str) -> None:
    other = create_engine("sqlite://")
    with Session(other) as session, session.begin():
        office.outbox.add(session, Posted("a"))
        with pytest.raises(ConfigurationError, match="is on a sqlite database"):
            session.flush()
        session.rollback()
    other.dispose()
    assert not await office.rows()


async def test_a_database_without_the_tables_says_which_command_helps(database_url: str) -> None:
    empty = open_store(database_url)
    async with empty.session() as session, session.begin():
        Outbox(empty, "office").add(session, Posted("a"))
        with pytest.raises(SchemaMissing, match="postroad db migrate"):
            await session.flush()
        await session.rollback()
    await empty.aclose()


async def test_events_of_several_tables_go_through_one_flush(office: Office, engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        office.outbox.add(session, Posted("a"))
        office.outbox.add(session, Weighed("a"))
        office.outbox.add(session, Posted("a"))
    assert [row.version for row in await office.rows()] == [1, 3]
    assert [row.version for row in await office.rows(office.outbox.tables["postroad_second"])] == [2]


async def test_relays_are_told_when_a_session_has_committed_and_not_before(office: Office, engine: Engine) -> None:
    told: list[str] = []
    office.outbox.wakes[office.table].listen(lambda: told.append("here"))
    with Session(engine) as session:
        session.begin()
        with session.begin_nested():
            office.outbox.add(session, Posted("a"))
        session.flush()
        assert told == []
        session.commit()
        assert told == ["here"]
        session.execute(text("SELECT 1"))
        session.commit()
    assert told == ["here"]


async def test_a_connection_whose_error_was_caught_does_not_commit_either(office: Office, engine: Engine) -> None:
    await office.post("taken")
    with engine.connect() as connection:
        connection.begin()
        with pytest.raises(VersionConflict):
            office.outbox.add(connection, Posted("taken"), version=1)
        with pytest.raises(WriteRefused, match=r"parcel\.posted of parcel 'taken'"):
            connection.commit()
        connection.rollback()
    assert len(await office.rows()) == 1
