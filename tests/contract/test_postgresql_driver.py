"""PostgreSQL without SQLAlchemy in between: lost connections, event loops and errors are ours to see to."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError

from postroad.errors import ConfigurationError, SchemaMissing, StoreBusy, StoreError, StoreUnavailable
from postroad.inbox import Inbox
from postroad.inbox.transaction import handling
from postroad.retry import Retry
from postroad.stores import Store, open_store
from postroad.stores.migrations import migrate
from postroad.stores.postgresql.notify import connect_args
from postroad.stores.tables import DEFAULT_OUTBOX
from tests.support.consuming import placed
from tests.support.genesis import StartSession, genesis
from tests.support.outbox import until

KNOWN = placed()


@pytest.fixture
def url(fresh_postgresql_url: str) -> str:
    async def prepare() -> None:
        store = open_store(fresh_postgresql_url)
        await migrate(store, [DEFAULT_OUTBOX])
        await store.aclose()

    asyncio.run(prepare())
    return fresh_postgresql_url


@pytest.fixture
def admin(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as admin:
        yield admin


Call = Callable[[Store], Awaitable[None]]
OURS = "FROM pg_stat_activity WHERE application_name = 'postroad' AND datname = current_database()"


def ours(admin: psycopg.Connection) -> int:
    """How many connections the server has from us."""
    return len(admin.execute(f"SELECT pid {OURS}").fetchall())


def backends(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as admin:
        return ours(admin)


def terminate(admin: psycopg.Connection) -> int:
    return len(admin.execute(f"SELECT pg_terminate_backend(pid, 10000) {OURS}").fetchall())


async def look(store: Store) -> None:
    await store.read("inbox_find", group="g", event_id=uuid4())


async def look_in_a_handler(store: Store) -> None:
    async with handling(store) as (_, connection):
        await store.execute(connection, "inbox_find", group="g", event_id=uuid4())


async def look_in_a_transaction(store: Store) -> None:
    async with store.transaction() as connection:
        await store.execute(connection, "inbox_find", group="g", event_id=uuid4())


async def claim(store: Store) -> None:
    """As a consumer begins, with a message that is new or, the second time, not."""
    async with handling(store) as (_, connection):
        await Inbox(store).claim(connection, "g", [KNOWN])
        assert (await connection.exec_driver_sql("SHOW transaction_isolation")).scalar() == "read committed"


async def begin_with_a_version(store: Store) -> None:
    """As a command's work begins."""
    async with handling(store) as (_, connection):
        now = await store.execute(connection, "events_version", aggregate_type="story", aggregate_id="s-1")
        assert [int(row.version) for row in now.rows] == [0]
        assert (await connection.exec_driver_sql("SHOW transaction_isolation")).scalar() == "read committed"


@pytest.mark.parametrize("call", [look, look_in_a_transaction, look_in_a_handler, claim, begin_with_a_version])
async def test_when_the_server_went_away_one_call_hears_of_it_and_the_next_are_served(
    url: str, admin: psycopg.Connection, call: Call
) -> None:
    store = open_store(url)
    await asyncio.gather(*(call(store) for _ in range(3)))
    assert terminate(admin) >= 2
    with pytest.raises(StoreUnavailable, match=r"terminating connection|closed the connection"):
        await call(store)
    await asyncio.gather(*(call(store) for _ in range(3)))
    await store.aclose()


async def test_a_connection_that_the_server_gave_up_is_an_outage_and_no_failure(url: str) -> None:
    """As after idle_session_timeout, whose code says nothing of a lost connection."""
    store = open_store(f"{url}?options=-c%20idle_session_timeout%3D50")
    for call in (look, look_in_a_transaction):
        await call(store)
        await until(lambda: not backends(url))
        with pytest.raises(StoreUnavailable, match="idle-session timeout"):
            await call(store)
    await store.aclose()


async def test_a_connection_that_breaks_while_it_is_made_is_an_outage(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = psycopg.AsyncConnection.connect

    async def connect_and_break(*args: Any, **options: Any) -> Any:
        connection = await connect(*args, **options)
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(%s, 10000)", [connection.info.backend_pid])
        return connection

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", connect_and_break)
    store = open_store(url)
    with pytest.raises(StoreUnavailable):
        await look(store)
    await store.aclose()


async def test_who_is_cancelled_while_he_connects_is_cancelled(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def cancelled(*_: Any, **__: Any) -> Any:
        raise asyncio.CancelledError

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", cancelled)
    store = open_store(url)
    with pytest.raises(asyncio.CancelledError):
        await look(store)
    await store.aclose()


async def test_a_handler_that_goes_on_without_its_connection_has_not_succeeded(
    url: str, admin: psycopg.Connection
) -> None:
    store = open_store(url)

    async def go_on() -> None:
        async with handling(store) as (_, connection):
            await Inbox(store).claim(connection, "g", [KNOWN])
            terminate(admin)
            with suppress(DBAPIError):
                await store.execute(connection, "inbox_find", group="g", event_id=uuid4())

    with pytest.raises(ConfigurationError, match="but the handler went on"):
        await go_on()
    await store.aclose()


async def test_those_who_use_a_connection_while_another_breaks_leave_none_behind(
    url: str, admin: psycopg.Connection
) -> None:
    async def lose_one() -> None:
        async with store.transaction() as another:
            pid = (await another.exec_driver_sql("SELECT pg_backend_pid()")).scalar()
            admin.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
            await store.execute(another, "inbox_counts")

    store = open_store(url)
    async with store.transaction() as one:
        await store.execute(one, "inbox_counts")
        with pytest.raises(StoreUnavailable):
            await lose_one()
    gc.disable()
    try:
        await store.aclose()
        await until(lambda: not ours(admin))
    finally:
        gc.enable()


@pytest.mark.parametrize("call", [look_in_a_transaction, claim])
async def test_a_call_in_a_transaction_can_be_cancelled(url: str, admin: psycopg.Connection, call: Call) -> None:
    store = open_store(url)
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE postroad_inbox")
        waiting = asyncio.create_task(call(store))
        await until(lambda: admin.execute(f"SELECT pid {OURS} AND wait_event_type = 'Lock'").fetchall())
        waiting.cancel()
        await asyncio.wait({waiting})
    assert waiting.cancelled()
    await until(lambda: not ours(admin))
    await store.aclose()


def serializable(url: str) -> Store:
    return open_store(f"{url}?options=-c%20default_transaction_isolation%3Dserializable")


def count_begins(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows with each BEGIN that is sent by itself."""
    begun: list[object] = []
    begin = psycopg.AsyncConnection._get_tx_start_command

    def counted(connection: Any) -> bytes:
        begun.append(connection)
        return begin(connection)

    monkeypatch.setattr(psycopg.AsyncConnection, "_get_tx_start_command", counted)
    return begun


@pytest.mark.parametrize("first", [claim, begin_with_a_version])
async def test_the_first_statement_begins_its_transaction_in_the_same_round_trip(
    url: str, monkeypatch: pytest.MonkeyPatch, first: Call
) -> None:
    """Whatever isolation the server gives others."""
    store = serializable(url)
    await first(store)  # which also connects
    begun = count_begins(monkeypatch)
    await first(store)
    assert not begun
    await store.aclose()


async def test_a_claim_joins_a_transaction_that_has_begun_already(
    url: str, admin: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, begun = serializable(url), count_begins(monkeypatch)
    await claim(store)
    begun.clear()
    async with handling(store) as (session, connection):
        await session.execute(text("SELECT 1"))
        assert not await Inbox(store).claim(connection, "g", [KNOWN])
        assert await Inbox(store).claim(connection, "another", [KNOWN])
    assert len(begun) == 1
    assert admin.execute("SELECT consumer_group FROM postroad_inbox ORDER BY 1").fetchall() == [("another",), ("g",)]
    await store.aclose()


async def test_a_claim_may_be_larger_than_what_a_connection_sends_at_once(url: str, admin: psycopg.Connection) -> None:
    store = open_store(url)
    many = [placed(number, "o" * 200) for number in range(1, 20_001)]
    async with handling(store) as (_, connection):
        assert await Inbox(store).claim(connection, "g", many)
    assert admin.execute("SELECT COUNT(*) FROM postroad_inbox").fetchall() == [(20_000,)]
    await store.aclose()


async def test_a_claim_that_fails_when_it_is_first_tried_does_not_spoil_the_connection(
    url: str, admin: psycopg.Connection
) -> None:
    """It stays prepared, though its transaction is rolled back."""
    first, second = open_store(url), open_store(f"{url}?options=-c%20lock_timeout%3D1")
    async with handling(first) as (_, connection):
        await Inbox(first).claim(connection, "g", [KNOWN])
        for _ in range(2):
            with pytest.raises(StoreBusy):
                await claim(second)
    await claim(second)
    await first.aclose()
    await until(lambda: ours(admin) == 1)
    await second.aclose()


async def test_claims_go_on_after_the_driver_has_let_the_server_forget_what_was_prepared(
    url: str, admin: psycopg.Connection
) -> None:
    """psycopg does so when a transaction is rolled back in which it has used something prepared."""
    store = open_store(url)

    async def claim_and_fail() -> None:
        async with handling(store) as (_, connection):
            assert await Inbox(store).claim(connection, "g", [KNOWN])
            for _ in range(10):
                await connection.exec_driver_sql("SELECT 1")
            raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await claim_and_fail()
    await claim(store)
    assert ours(admin) == 1
    assert admin.execute("SELECT COUNT(*) FROM postroad_inbox").fetchall() == [(1,)]
    await store.aclose()


async def test_a_claim_is_written_in_the_encoding_of_its_connection(url: str) -> None:
    """Else it would not find the earlier event of its key, which waits, and go first."""
    store = open_store(f"{url}?client_encoding=latin1")
    inbox, first, second = Inbox(store), placed(1, "Zoë"), placed(2, "Zoë")
    await inbox.mark_failed("g", first, RuntimeError(), Retry(60.0))
    async with handling(store) as (_, connection):
        assert not await inbox.claim(connection, "g", [second])
    await store.aclose()


async def test_a_claim_that_the_server_refuses_is_told_and_leaves_the_connection_usable(
    url: str, admin: psycopg.Connection
) -> None:
    store = open_store(url)
    admin.execute("ALTER TABLE postroad_inbox RENAME TO gone")
    for _ in range(2):
        with pytest.raises(SchemaMissing):
            await claim(store)
    admin.execute("ALTER TABLE gone RENAME TO postroad_inbox")
    await claim(store)
    admin.execute("ALTER TABLE postroad_inbox RENAME TO gone")  # also of a statement that is prepared
    with pytest.raises(SchemaMissing):
        await claim(store)
    admin.execute("ALTER TABLE gone RENAME TO postroad_inbox")
    await claim(store)
    assert ours(admin) == 1
    await store.aclose()


def test_an_address_is_understood_as_the_engine_understands_it() -> None:
    several = connect_args(make_url("postgresql://someone:s%20p%40ss@/shop?host=a:5432&host=b:5433"))
    assert (several["host"], several["port"], several["password"]) == ("a,b", "5432,5433", "s p@ss")


async def test_connections_are_used_again_and_never_more_than_ten(url: str, admin: psycopg.Connection) -> None:
    store = open_store(url)
    for _ in range(5):
        await look(store)
    assert ours(admin) == 1
    await asyncio.gather(*(look(store) for _ in range(40)))
    assert 1 < ours(admin) <= 10
    await store.aclose()
    await until(lambda: not ours(admin))  # a server needs a moment to notice that its client has hung up


async def test_a_connection_whose_call_was_cancelled_is_not_used_again(url: str, admin: psycopg.Connection) -> None:
    store = open_store(url)
    await look(store)
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE postroad_inbox")
        waiting = asyncio.create_task(look(store))
        await until(lambda: admin.execute(f"SELECT pid {OURS} AND wait_event_type = 'Lock'").fetchall())
        waiting.cancel()
        await asyncio.wait({waiting})
    assert waiting.cancelled()
    await until(lambda: not ours(admin))  # a server needs a moment to notice that its client has hung up
    await look(store)
    await store.aclose()


def test_a_second_event_loop_has_connections_of_its_own(url: str, admin: psycopg.Connection) -> None:
    store = open_store(url)
    for _ in range(2):
        asyncio.run(look(store))
        assert ours(admin) == 1
    asyncio.run(store.aclose())


async def due_by_mistake(store: Store) -> None:
    await store.read("inbox_due", group="g", limit="s3cret")


async def due_in_a_transaction_by_mistake(store: Store) -> None:
    async with store.transaction() as connection:
        await store.execute(connection, "inbox_due", group="g", limit="s3cret")


@pytest.mark.parametrize("call", [due_by_mistake, due_in_a_transaction_by_mistake])
async def test_an_error_does_not_show_the_values(url: str, call: Call) -> None:
    store = open_store(url)
    with pytest.raises(StoreError) as raised:
        await call(store)
    cause = raised.value.__cause__
    assert isinstance(cause, DBAPIError)
    shown = str(cause).replace(str(cause.orig), "")
    assert "SELECT" in shown
    assert "s3cret" not in shown
    await store.aclose()


async def test_a_command_that_begins_does_not_wait_for_the_disk_and_one_that_ends_does(
    url: str, admin: psycopg.Connection
) -> None:
    """If the server dies in between, what was begun may be forgotten; what was answered may not."""
    admin.execute(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO noted VALUES (TG_OP, current_setting('synchronous_commit')); RETURN NULL; END $$;"
        "CREATE TABLE noted (what text, setting text);"
        "CREATE TRIGGER note AFTER INSERT OR UPDATE ON postroad_command_box FOR EACH ROW EXECUTE FUNCTION note()"
    )
    async with genesis(url, "embedded:") as road:
        for number in range(2):
            await road.execute(StartSession(f"s-{number}", "Dawn"))
    assert admin.execute("SELECT * FROM noted").fetchall() == [("INSERT", "off"), ("UPDATE", "on")] * 2


async def test_what_a_connection_was_asked_for_first_is_there_after_its_commit(url: str) -> None:
    store = open_store(url)
    async with store.engine.connect() as connection:
        await store.execute(connection, "journal_add", name="shelf", message=b"{}")
        await connection.commit()
    assert len((await store.read("journal_page", name="shelf", limit=10)).rows) == 1
    await store.aclose()


@pytest.mark.parametrize(
    ("said", "turned_away"),
    [
        ('FATAL:  password authentication failed for user "shop"', True),
        ('FATAL:  role "shop" does not exist', True),
        ('relation "orders" does not exist', False),
        ("FATAL:  the database system is starting up", False),
    ],
)
def test_who_is_turned_away_is_told_apart_from_who_has_to_wait(url: str, said: str, turned_away: bool) -> None:
    assert open_store(url).turns_away(psycopg.OperationalError(said)) == turned_away
