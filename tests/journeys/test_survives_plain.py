"""A commit on a plain driver connection is a commit like any other, as long as it can be seen."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from sqlite3 import connect as connect_unseen
from typing import Any

import asyncpg
import psycopg
import pymysql
import pytest

from postroad import Postroad
from tests.support.outbox import Recycled, recycled_databases
from tests.support.survival import OrderPlaced, Trial, only_receipts, place

Scenario = Callable[[Postroad, list[str]], Any]


def file_of(road: Postroad) -> str:
    return str(road.store.url.database)


def dsn_of(road: Postroad) -> str:
    return road.store.url.set(drivername="postgresql").render_as_string(hide_password=False)


def open_pymysql(road: Postroad) -> Any:
    url = road.store.url
    return pymysql.connect(
        host=url.host or "", port=url.port or 3306, user=url.username, password=url.password or "",
        database=url.database,
    )  # fmt: skip


# Each adds o-1 and mails before it commits: the mistake that a disturbed commit shows.


def hasty(road: Postroad, connection: Any, mails: list[str]) -> None:
    road.add(connection, OrderPlaced("o-1"))
    mails.append("o-1")


async def sqlite_statement(road: Postroad, mails: list[str]) -> None:
    connection = sqlite3.connect(file_of(road), isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    hasty(road, connection, mails)
    connection.execute("-- now\ncommit")
    mails.append("committed")
    connection.close()


async def sqlite_method(road: Postroad, mails: list[str]) -> None:
    with closing(sqlite3.dbapi2.connect(file_of(road))) as connection:
        connection.execute("BEGIN IMMEDIATE")
        hasty(road, connection, mails)
        connection.commit()
        mails.append("committed")


async def sqlite_block(road: Postroad, mails: list[str]) -> None:
    class Connection(sqlite3.Connection):
        pass

    with closing(sqlite3.connect(file_of(road), factory=Connection)) as connection:
        assert isinstance(connection, Connection)
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            hasty(road, connection, mails)
        mails.append("committed")


async def sqlite_cursor(road: Postroad, mails: list[str]) -> None:
    connection = sqlite3.connect(file_of(road), isolation_level=None)
    cursor = connection.cursor()
    cursor.execute("BEGIN IMMEDIATE")
    hasty(road, connection, mails)
    cursor.executescript("SELECT 1")  # which commits first what is open
    mails.append("committed")
    connection.close()


async def psycopg_method(road: Postroad, mails: list[str]) -> None:
    connection = psycopg.connect(dsn_of(road))
    connection.execute("SELECT 1")
    hasty(road, connection, mails)
    connection.commit()
    mails.append("committed")
    connection.close()


async def psycopg_block(road: Postroad, mails: list[str]) -> None:
    with psycopg.connect(dsn_of(road), autocommit=True) as connection:
        with connection.transaction():
            hasty(road, connection, mails)
        mails.append("committed")


async def psycopg_async(road: Postroad, mails: list[str]) -> None:
    connection = await psycopg.AsyncConnection.connect(dsn_of(road), autocommit=True)
    async with connection.transaction():
        await road.add(connection, OrderPlaced("o-1"))
        mails.append("o-1")
    mails.append("committed")
    await connection.close()


async def asyncpg_block(road: Postroad, mails: list[str]) -> None:
    connection = await asyncpg.connect(dsn_of(road))
    async with connection.transaction():
        await road.add(connection, OrderPlaced("o-1"))
        mails.append("o-1")
    mails.append("committed")
    await connection.close()


async def asyncpg_pool(road: Postroad, mails: list[str]) -> None:
    async with asyncpg.create_pool(dsn_of(road), min_size=1, max_size=1) as pool, pool.acquire() as connection:
        await connection.execute("BEGIN")
        await road.add(connection, OrderPlaced("o-1"))
        mails.append("o-1")
        await connection.execute("COMMIT")
        mails.append("committed")


async def pymysql_method(road: Postroad, mails: list[str]) -> None:
    connection = open_pymysql(road)
    connection.begin()
    hasty(road, connection, mails)
    connection.commit()
    mails.append("committed")
    connection.close()


async def pymysql_statement(road: Postroad, mails: list[str]) -> None:
    connection = open_pymysql(road)
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        hasty(road, connection, mails)
        cursor.execute("COMMIT")
    mails.append("committed")
    connection.close()


SCENARIOS: dict[str, list[Scenario]] = {
    "sqlite": [sqlite_statement, sqlite_method, sqlite_block, sqlite_cursor],
    "postgresql": [psycopg_method, psycopg_block, psycopg_async, asyncpg_block, asyncpg_pool],
    "mariadb": [pymysql_method, pymysql_statement],
}


@pytest.fixture(scope="module")
def recycled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recycled]:
    """Emptied by the trials themselves."""
    with recycled_databases(tmp_path_factory.mktemp("databases")) as databases:
        yield databases


def trial_on(kind: str, tmp_path: Path, recycled: Recycled) -> Trial:
    return Trial(tmp_path, None if kind == "sqlite" else recycled.url(kind))


def run_hasty(trial: Trial, scenario: Scenario, only: str) -> tuple[str, list[str]]:
    """What is told, and the mails of the last run."""
    mails: list[str] = []

    def handlers(road: Postroad) -> None:
        mails.clear()
        only_receipts(road)

    async def commit(road: Postroad) -> None:
        await scenario(road, mails)

    return trial.story(handlers, commit, outcome=lambda: mails, only=only), mails


CASES = [(kind, scenario) for kind, scenarios in SCENARIOS.items() for scenario in scenarios]


@pytest.mark.parametrize(("kind", "scenario"), CASES, ids=[f"{kind}-{one.__name__}" for kind, one in CASES])
class TestOnEachDriver:
    def test_what_is_done_before_its_commit_is_caught(
        self, kind: str, scenario: Scenario, tmp_path: Path, recycled: Recycled
    ) -> None:
        story, _ = run_hasty(trial_on(kind, tmp_path, recycled), scenario, "commit-before:1")
        assert story.startswith("Your scenario did something before its commit that stayed, although the commit fail")
        assert "Expected (as if it had not come so far): [] Got: ['o-1']" in story

    def test_after_its_commit_the_rest_does_not_happen(
        self, kind: str, scenario: Scenario, tmp_path: Path, recycled: Recycled
    ) -> None:
        story, mails = run_hasty(trial_on(kind, tmp_path, recycled), scenario, "commit-after:1")
        assert (story, mails) == ("", ["o-1"])


def test_the_drivers_are_left_as_they_were(tmp_path: Path, recycled: Recycled) -> None:
    def methods() -> list[object]:
        return [
            sqlite3.connect,
            sqlite3.dbapi2.connect,
            psycopg.Connection._exec_command,
            asyncpg.Connection.execute,
            pymysql.connections.Connection.commit,
            pymysql.connections.Connection.query,
        ]

    before = methods()
    for kind, scenarios in SCENARIOS.items():
        run_hasty(trial_on(kind, tmp_path, recycled), scenarios[0], "duplicate")
    assert methods() == before


# -- commits that nobody can see -----------------------------------------------------------------------


def test_a_connection_that_was_opened_past_us_is_told(tmp_path: Path) -> None:
    async def unseen(road: Postroad, mails: list[str]) -> None:
        with closing(connect_unseen(file_of(road))) as connection:
            connection.execute("BEGIN IMMEDIATE")
            hasty(road, connection, mails)
            connection.commit()

    story, _ = run_hasty(Trial(tmp_path), unseen, "")
    assert story.startswith("The commit of order.placed o-1 cannot be disturbed, because its connection was not opened")
    assert "Open it in the scenario or the handler, and by that name" in story


def test_a_commit_in_other_words_is_told(tmp_path: Path, fresh_postgresql_url: str) -> None:
    async def unseen(road: Postroad, mails: list[str]) -> None:
        with psycopg.connect(dsn_of(road), autocommit=True) as connection:
            connection.execute("BEGIN")
            hasty(road, connection, mails)
            connection.execute("COMMIT")

    story, _ = run_hasty(Trial(tmp_path, fresh_postgresql_url), unseen, "")
    assert story == (
        "The commit of order.placed o-1 cannot be disturbed, because its psycopg connection ended the transaction in a "
        "way that is not noticed. Use `with connection.transaction():` or connection.commit() there."
    )


def test_what_was_rolled_back_had_no_commit_to_disturb(tmp_path: Path) -> None:
    async def undecided(road: Postroad) -> None:
        with closing(connect_unseen(file_of(road))) as connection:
            connection.execute("BEGIN IMMEDIATE")
            road.add(connection, OrderPlaced("o-2"))
            connection.rollback()
        await place(road, "o-1")

    assert Trial(tmp_path).story(only_receipts, undecided, only="commit-before") == ""


def test_a_plain_connection_in_setup_is_left_alone(tmp_path: Path) -> None:
    async def setup(road: Postroad) -> None:
        from tests.support.survival import create_tables

        await create_tables(road)
        with closing(connect_unseen(file_of(road))) as connection:
            connection.execute("BEGIN IMMEDIATE")
            road.add(connection, OrderPlaced("o-0"))
            connection.commit()

    async def scenario(road: Postroad) -> None:
        await place(road, "o-1")

    assert Trial(tmp_path).story(only_receipts, scenario, setup=setup, only="commit-before") == ""
