"""Values, addresses and error codes, as each database's drivers take and tell them. Nothing here is connected."""

import asyncio
import sqlite3
from datetime import UTC, datetime, timedelta, timezone
from types import ModuleType, SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoFreeConnection

from postroad.clock import SystemClock
from postroad.errors import MissingExtra, SchemaMissing, StoreBusy, StoreError, StoreUnavailable
from postroad.stores import Store, open_store
from postroad.stores.base import id_text
from postroad.stores.mysql import driver as mysql
from postroad.stores.postgresql import driver as postgresql

URLS = {
    "postgres": "postgresql://shop:s3cret@db/shop?application_name=x",
    "mysql": "mysql://shop:s3cret@db/shop",
    "sqlite": "sqlite:///shop.db",
}
ID = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
NOON = datetime(2026, 1, 2, 12, 0, 0, 5, tzinfo=UTC)
IN_PARIS = NOON.astimezone(timezone(timedelta(hours=1)))
CODES: dict[str, dict[str, list[str]]] = {
    "postgres": {
        "missing": ["42P01", "42883", "3F000"],
        "busy": ["40001", "40P01", "55P03"],
        "away": ["08006", "57P01", "57P02", "57P03"],
        "other": ["23505", "42601"],
    },
    "mysql": {
        "missing": ["1146", "1305"],
        "busy": ["1205", "1213"],
        "away": ["2002", "2003", "2006", "2013", "1053"],
        "other": ["1062", "1064"],
    },
    "sqlite": {
        "missing": ["no such table"],
        "busy": ["SQLITE_BUSY", "SQLITE_BUSY_SNAPSHOT", "SQLITE_LOCKED"],
        "away": ["SQLITE_CANTOPEN", "SQLITE_IOERR_WRITE", "SQLITE_FULL"],
        "other": ["SQLITE_CONSTRAINT_UNIQUE", "SQLITE_ERROR"],
    },
}
EACH_CODE = [(kind, meaning, code) for kind, of in CODES.items() for meaning, codes in of.items() for code in codes]


@pytest.fixture(params=list(URLS))
def store(request: pytest.FixtureRequest) -> Store:
    return open_store(URLS[request.param])


class DriverError(Exception):
    sqlstate: str | None = None
    sqlite_errorname = ""


def told_by_the_driver(kind: str, code: str) -> DriverError:
    if kind == "mysql":
        return DriverError(int(code), "in its own words")
    error = DriverError(f"{code}: x" if code.startswith("no such") else "in its own words")
    if kind == "postgres":
        error.sqlstate = code
    elif code.startswith("SQLITE"):
        error.sqlite_errorname = code
    return error


@pytest.mark.parametrize(("kind", "meaning", "code"), EACH_CODE)
def test_the_databases_codes_become_our_errors(kind: str, meaning: str, code: str) -> None:
    store = open_store(URLS[kind])
    error = DBAPIError("SELECT 1", None, told_by_the_driver(kind, code))
    expected = {"missing": SchemaMissing, "busy": StoreBusy, "away": StoreUnavailable}.get(meaning)
    translated = store.translate(error)
    if expected is None:
        assert translated is error
    else:
        assert type(translated) is expected
        assert "s3cret" not in str(translated)
    assert store.code_of(error) == store.code_of(error.orig)  # type: ignore[arg-type]


def test_an_error_without_a_code_has_none(store: Store) -> None:
    assert store.code_of(ValueError()) == ""
    assert store.translate(ValueError("x")).args == ("x",)


def test_a_lost_connection_is_told_by_sqlalchemy_too() -> None:
    for kind in ("postgres", "mysql"):
        store = open_store(URLS[kind])
        origin = told_by_the_driver(kind, "23505" if kind == "postgres" else "1062")
        assert store.is_disconnect(DBAPIError("SELECT 1", None, origin, connection_invalidated=True))
        assert not store.is_disconnect(DBAPIError("SELECT 1", None, origin))
        assert not store.is_disconnect(ValueError())


def test_postgresql_refuses_a_connection_without_a_code() -> None:
    store = open_store(URLS["postgres"])
    refused = type("OperationalError", (DriverError,), {"__module__": "psycopg.errors"})
    assert store.is_disconnect(DBAPIError(None, None, refused("connection refused")))
    anothers = type("OperationalError", (DriverError,), {"__module__": "sqlite3"})
    assert not store.is_disconnect(DBAPIError(None, None, anothers("no such column")))
    coded = refused("terminated by a rule of mine")
    coded.sqlstate = "42501"
    assert not store.is_disconnect(DBAPIError(None, None, coded))


def test_a_pool_without_a_free_connection_is_busy(store: Store) -> None:
    assert isinstance(store.translate(NoFreeConnection()), StoreBusy)


def test_while_translating_the_databases_errors_are_ours_and_no_others(store: Store) -> None:
    with pytest.raises(StoreUnavailable, match="Is it running"), store.translating():
        raise ConnectionRefusedError("no")
    with pytest.raises(ValueError, match="mine"), store.translating():
        raise ValueError("mine")
    kind = store.dialect.replace("postgresql", "postgres")
    own = DBAPIError("SELECT 1", None, told_by_the_driver(kind, CODES[kind]["other"][0]))
    with pytest.raises(StoreError, match="did not take a statement of ours") as raised, store.translating():
        raise own
    assert raised.value.__cause__ is own
    with store.translating():
        pass


def test_the_cause_is_told_in_one_line(store: Store) -> None:
    with pytest.raises(StoreUnavailable, match=r"\(first line\)"), store.translating():
        raise OSError("first line\nsecond line")
    with pytest.raises(StoreUnavailable, match=r"\(OSError\)"), store.translating():
        raise OSError


def test_an_id_comes_back_as_it_was(store: Store) -> None:
    assert store.id_out(store.id_in(ID)) == ID
    assert store.id_out(str(ID)) == ID
    assert store.adapt(ID) == store.id_in(ID)


def test_each_driver_gets_its_own_kind_of_id() -> None:
    found = {kind: open_store(url).id_in(ID) for kind, url in URLS.items()}
    assert found == {"postgres": ID, "mysql": ID.bytes, "sqlite": str(ID)}


def test_a_time_comes_back_as_it_was_in_utc(store: Store) -> None:
    for moment in (NOON, IN_PARIS):
        back = store.time_out(store.time_in(moment))
        assert back == NOON
        assert store.adapt(moment) == store.time_in(moment)
    assert store.time_out(None) is None


@pytest.mark.parametrize("value", ["2026-01-02T12:00:00.000005", "2026-01-02 12:00:00.000005+00:00"])
def test_a_time_without_zone_is_utc(store: Store, value: str) -> None:
    assert store.time_out(value) == NOON
    assert store.time_out(NOON.replace(tzinfo=None)) == NOON
    assert store.time_out(IN_PARIS) is IN_PARIS


def test_on_sqlite_times_sort_as_text() -> None:
    assert open_store(URLS["sqlite"]).time_in(IN_PARIS) == "2026-01-02T12:00:00.000005Z"
    assert open_store(URLS["mysql"]).time_in(IN_PARIS) == NOON.replace(tzinfo=None)


def test_a_list_is_one_parameter() -> None:
    values: list[Any] = [1, "a", ID]
    found = {kind: open_store(url).adapt(values) for kind, url in URLS.items()}
    assert found == {
        "postgres": f'{{1,"a",{ID}}}',
        "mysql": f'[1, "a", "{ID.hex}"]',
        "sqlite": f'[1, "a", "{ID}"]',
    }
    assert open_store(URLS["postgres"]).adapt([None, 'say "hi"', "\\"]) == '{NULL,"say \\"hi\\"","\\\\"}'


def test_whatever_else_goes_in_as_it_is(store: Store) -> None:
    for value in (None, 7, "x", b"\0", 1.5):
        assert store.adapt(value) is value


def test_an_id_in_a_list_is_text() -> None:
    assert (id_text(ID.bytes), id_text(ID), id_text("EVT-1")) == (ID.hex, str(ID), "EVT-1")


def test_an_address_shows_where_and_nothing_else() -> None:
    found = {kind: (open_store(url).address, open_store(url).host) for kind, url in URLS.items()}
    assert found == {
        "postgres": ("postgresql://db/shop", "db:5432"),
        "mysql": ("mysql://db/shop", "db:3306"),
        "sqlite": ("sqlite:///shop.db", "sqlite:///shop.db"),
    }
    assert open_store("postgresql://db:6000/shop").host == "db:6000"
    assert open_store("postgresql:///shop").host == "localhost:5432"


def test_only_a_file_must_be_there_before_it_is_read() -> None:
    files = {kind: open_store(url).file for kind, url in URLS.items()}
    assert (files["postgres"], files["mysql"], str(files["sqlite"])) == (None, None, "shop.db")


def test_a_console_wants_a_semicolon(store: Store) -> None:
    assert store.for_console("SELECT 1") == "SELECT 1;"
    assert store.for_console("SELECT 1;") == "SELECT 1;"


def test_a_routine_is_told_apart_from_its_statements_on_a_mysql_console() -> None:
    routine = "CREATE PROCEDURE x()\nBEGIN\nSELECT 1;\nEND;"
    told = open_store(URLS["mysql"]).for_console(routine)
    assert told == "DELIMITER //\nCREATE PROCEDURE x()\nBEGIN\nSELECT 1;\nEND//\nDELIMITER ;"


def test_a_database_in_memory_is_a_file_of_its_own_that_nobody_keeps() -> None:
    files = {str(open_store(url).file) for url in ("sqlite://", "sqlite:///:memory:", "sqlite://")}
    assert len(files) == 3
    assert all(file.endswith("memory.db") for file in files)


def test_a_version_conflict_is_known_by_its_words(store: Store) -> None:
    assert store.is_version_conflict(ValueError("1644: postroad: version conflict (7)"))
    assert not store.is_version_conflict(ValueError("deadlock"))


def test_sqlite_tells_its_kind_of_error_by_two_words() -> None:
    store = open_store(URLS["sqlite"])
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_SHORT_READ"
    assert store.code_of(error) == "SQLITE_IOERR"
    assert store.code_of(SimpleNamespace(orig=error)) == "SQLITE_IOERR"  # type: ignore[arg-type]


@pytest.mark.parametrize("driver", [postgresql, mysql])
def test_without_its_driver_a_store_says_what_to_install(driver: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("no such driver")

    monkeypatch.setattr(driver, "create_async_engine", missing)
    with pytest.raises(MissingExtra, match="driver"):
        driver.open(make_url("postgresql://db/shop"), SystemClock())


@pytest.mark.parametrize(("kind", "anew"), [("postgres", [False]), ("mysql", [False]), ("sqlite", [])])
def test_pooled_connections_belong_to_one_event_loop(kind: str, anew: list[bool]) -> None:
    """Those of a loop that has ended can neither be used nor closed: the next begins with new ones."""
    store, disposed = open_store(URLS[kind]), []
    store._engine = cast(
        Any, SimpleNamespace(sync_engine=SimpleNamespace(dispose=lambda close: disposed.append(close)))
    )

    async def use() -> None:
        assert store.engine is store.engine

    asyncio.run(use())
    assert disposed == []
    asyncio.run(use())
    assert disposed == anew
