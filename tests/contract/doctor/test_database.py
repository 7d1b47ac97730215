"""Planted: clocks apart, settings that lose what was committed, transactions that hold back the purge, remote files."""

import asyncio
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import quote, urlsplit
from uuid import uuid4

import psycopg
import pytest

from postroad.clock import SystemClock
from postroad.operations.doctor import Level, files, snapshots
from postroad.operations.doctor.settings import RULES, judge
from tests.contract.doctor.conftest import Open
from tests.support.clinic import Clinic
from tests.support.databases import mariadb_admin, plain_mariadb_user, plain_postgresql_user

pytestmark = pytest.mark.spec("F14")


class Ahead(SystemClock):
    def now(self) -> datetime:
        return super().now() + timedelta(minutes=1)


@pytest.mark.parametrize("store_kind", ["postgresql", "mariadb"])
async def test_a_clock_that_is_a_minute_ahead_is_a_warning(store_url: str, open_road: Open) -> None:
    assert await Clinic(open_road(store_url)).found("clock") == []
    (finding,) = await Clinic(open_road(store_url, clock=Ahead())).found("clock")
    assert finding.level is Level.WARNING
    assert "60 s apart" in finding.cause


# -- settings --------------------------------------------------------------------------------------------

GOOD = {
    "postgresql": {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "remote_apply",
        "transaction_read_only": "off",
        "default_transaction_isolation": "read committed",
    },
    "mysql": {
        "sql_mode": "ANSI_QUOTES,STRICT_TRANS_TABLES",
        "autocommit": "1",
        "read_only": "0",
        "innodb_flush_log_at_trx_commit": "1",
        "binlog_format": "",
    },
    "sqlite": {"journal_mode": "wal"},
}
BAD = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "transaction_read_only": "on",
    "default_transaction_isolation": "repeatable read",
    "sql_mode": "NO_ENGINE_SUBSTITUTION",
    "autocommit": "0",
    "read_only": "1",
    "innodb_flush_log_at_trx_commit": "2",
    "binlog_format": "STATEMENT",
    "journal_mode": "delete",
}


@pytest.mark.parametrize("dialect", GOOD)
def test_each_setting_is_judged_by_itself(dialect: str) -> None:
    assert list(judge(dialect, GOOD[dialect])) == []
    for rule in RULES[dialect]:
        (problem,) = judge(dialect, {**GOOD[dialect], rule.setting: BAD[rule.setting]})
        assert problem.cause == rule.cause


async def test_every_setting_that_is_judged_is_asked_for(store_url: str, store_kind: str, open_road: Open) -> None:
    road = open_road(store_url)
    async with road.store.reading() as connection:
        rows = (await road.store.execute(connection, "settings_read")).rows
    assert {row.name for row in rows} == {rule.setting for rule in RULES[road.store.dialect]}


def planted(url: str, *settings: str) -> str:
    return f"{url}?options={quote(' '.join(f'-c {one}' for one in settings))}"


async def test_settings_of_postgresql_are_read_as_this_user_has_them(
    fresh_postgresql_url: str, open_road: Open
) -> None:
    strict = "default_transaction_isolation=serializable"
    url = planted(fresh_postgresql_url, "synchronous_commit=off", "default_transaction_read_only=on", strict)
    found = {problem.cause.split()[0]: problem.level for problem in await Clinic(open_road(url)).found("settings")}
    assert found["synchronous_commit"] is Level.WARNING
    assert found["This"] is Level.FAULT
    assert found["Transactions"] is Level.WARNING


async def test_an_sql_mode_that_cuts_values_is_a_fault(fresh_mariadb_url: str, open_road: Open) -> None:
    careless = quote("SET sql_mode = ''")
    url = f"{fresh_mariadb_url}?init_command={careless}"
    assert Level.FAULT in [problem.level for problem in await Clinic(open_road(url)).found("settings")]
    kept = await Clinic(open_road(fresh_mariadb_url)).found("settings")
    assert [problem for problem in kept if problem.level is Level.FAULT] == []


async def test_a_sqlite_file_without_wal_is_a_fault(sqlite_url: str, open_road: Open) -> None:
    road = open_road(sqlite_url)
    road.store.pragmas[:] = ["journal_mode = DELETE"]  # type: ignore[attr-defined]
    clinic = await (await Clinic(road).prepare()).staff()
    assert [problem.level for problem in await clinic.found("settings")] == [Level.FAULT]


# -- who holds back the purge ------------------------------------------------------------------------------


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every transaction counts as long."""
    monkeypatch.setattr(snapshots, "LONG", 0.0)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("statement", ["CREATE TABLE t (n int)", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"])
async def test_a_forgotten_session_of_postgresql_is_a_warning_and_the_cure_ends_it(
    fresh_postgresql_url: str, open_road: Open, statement: str
) -> None:
    clinic = Clinic(open_road(fresh_postgresql_url))
    assert await clinic.found("snapshots") == []
    with closing(psycopg.connect(fresh_postgresql_url)) as forgotten:
        forgotten.execute(statement)
        forgotten.execute("SELECT 1")
        (finding,) = await clinic.found("snapshots")
        assert finding.level is Level.WARNING
        assert str(forgotten.info.backend_pid) in finding.cause
        await clinic.run(finding.command)
        with pytest.raises(psycopg.OperationalError):
            forgotten.execute("SELECT 1")


@pytest.mark.usefixtures("soon")
async def test_a_session_that_holds_nothing_is_none(fresh_postgresql_url: str, open_road: Open) -> None:
    """It is in a transaction that has neither written nor keeps what it saw."""
    with closing(psycopg.connect(fresh_postgresql_url)) as idle:
        idle.execute("SELECT 1")
        assert await Clinic(open_road(fresh_postgresql_url)).found("snapshots") == []


async def test_a_transaction_that_has_just_begun_is_none(fresh_postgresql_url: str, open_road: Open) -> None:
    with closing(psycopg.connect(fresh_postgresql_url)) as busy:
        busy.execute("CREATE TABLE t (n int)")
        assert await Clinic(open_road(fresh_postgresql_url)).found("snapshots") == []


@pytest.mark.usefixtures("soon")
async def test_a_prepared_transaction_that_nobody_ends_is_a_warning(fresh_postgresql_url: str, open_road: Open) -> None:
    name = uuid4().hex
    with psycopg.connect(fresh_postgresql_url, autocommit=True) as connection:
        if connection.execute("SHOW max_prepared_transactions").fetchone() == ("0",):
            pytest.skip("this server takes no prepared transactions")
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE t (n int)")
        connection.execute(f"PREPARE TRANSACTION '{name}'")
        clinic = Clinic(open_road(fresh_postgresql_url))
        (finding,) = await clinic.found("snapshots")
        assert name in finding.cause
        connection.execute(finding.command)  # it cannot run inside a transaction
        assert await clinic.found("snapshots") == []


async def test_a_replication_slot_that_nobody_reads_is_a_warning(fresh_postgresql_url: str, open_road: Open) -> None:
    clinic = Clinic(open_road(fresh_postgresql_url))
    name = clinic.slot
    with psycopg.connect(fresh_postgresql_url, autocommit=True) as connection:
        connection.execute("SELECT pg_create_physical_replication_slot(%s, true)", [name])
        try:
            found = await clinic.found("snapshots")
        finally:
            connection.execute("SELECT pg_drop_replication_slot(%s)", [name])
    assert [problem.level for problem in found if name in problem.cause] == [Level.WARNING]
    assert not [problem for problem in await clinic.found("snapshots") if name in problem.cause]


async def test_a_replication_slot_that_keeps_nothing_yet_is_none(fresh_postgresql_url: str, open_road: Open) -> None:
    clinic = Clinic(open_road(fresh_postgresql_url))
    with psycopg.connect(fresh_postgresql_url, autocommit=True) as connection:
        connection.execute("SELECT pg_create_physical_replication_slot(%s)", [clinic.slot])
        try:
            assert not [problem for problem in await clinic.found("snapshots") if clinic.slot in problem.cause]
        finally:
            connection.execute("SELECT pg_drop_replication_slot(%s)", [clinic.slot])


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("begin", ["START TRANSACTION WITH CONSISTENT SNAPSHOT", "BEGIN"])
async def test_a_forgotten_session_of_mariadb_is_a_warning(fresh_mariadb_url: str, open_road: Open, begin: str) -> None:
    clinic = Clinic(open_road(fresh_mariadb_url))
    with closing(mariadb_admin(fresh_mariadb_url)) as forgotten, forgotten.cursor() as cursor:
        name = urlsplit(fresh_mariadb_url).path.removeprefix("/")
        cursor.execute(f"CREATE TABLE {name}.t (n INT) ENGINE = InnoDB")
        cursor.execute(begin)
        cursor.execute(f"INSERT INTO {name}.t VALUES (1)")
        # The server shows a copy for as long as others look at it more often than every 0.1 s.
        async with asyncio.timeout(60):
            while True:
                if any(str(forgotten.thread_id()) in one.cause for one in await clinic.found("snapshots")):
                    break
                await asyncio.sleep(0.2)


# -- missing rights ------------------------------------------------------------------------------------------


async def test_a_plain_user_of_postgresql_is_told_what_he_cannot_see(
    fresh_postgresql_url: str, open_road: Open
) -> None:
    with plain_postgresql_user(fresh_postgresql_url) as url:
        road = open_road(url)
        clinic = await (await Clinic(road).prepare()).staff()
        with psycopg.connect(fresh_postgresql_url) as other:
            other.execute("SELECT 1")
            finding = await clinic.only("snapshots")
            assert finding.level is Level.UNMADE
            assert "sessions of other users" in finding.cause
            other.execute(finding.command)
            other.commit()
        assert await clinic.problems() == {}
        assert await clinic.found("rights") == []
        await road.aclose()


async def test_a_plain_user_of_mariadb_is_told_what_he_cannot_see(fresh_mariadb_url: str, open_road: Open) -> None:
    with plain_mariadb_user(fresh_mariadb_url) as (url, admin):
        road = open_road(url)
        clinic = await (await Clinic(road).prepare()).staff()
        finding = await clinic.only("snapshots")
        assert finding.level is Level.UNMADE
        assert "PROCESS" in finding.cause
        admin.execute(finding.command)
        # Whoever may read what others may do is not taken for them.
        admin.execute(f"GRANT SELECT ON mysql.* TO {url.partition('//')[2].partition(':')[0]}@'%'")
        await road.store.aclose()  # the rights are there for new sessions
        assert await clinic.problems() == {}
        assert await clinic.found("rights") == []
        await road.aclose()


@pytest.mark.parametrize("store_kind", ["postgresql", "mariadb"])
async def test_an_administrator_is_more_than_is_needed(store_url: str, open_road: Open) -> None:
    (finding,) = await Clinic(open_road(store_url)).found("rights")
    assert finding.level is Level.HINT
    assert "SUPER" in finding.cause


# -- files -------------------------------------------------------------------------------------------------


async def test_files_on_a_network_file_system_are_faults(
    sqlite_url: str, tmp_path: Path, open_road: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mounts are made up: a file server is not to be had everywhere."""
    clinic = Clinic(open_road(sqlite_url))
    assert await clinic.found("local disk") == []
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(files, "MOUNTS", mounts)
    lines = ["22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw", f"40 22 0:5 / {tmp_path} rw - nfs4 files:/export rw"]
    mounts.write_text("\n".join(lines), encoding="utf-8")
    found = await clinic.found("local disk")
    assert [problem.level for problem in found] == [Level.FAULT, Level.FAULT]
    assert "nfs4" in found[0].cause
    mounts.write_text("\n".join([*lines, f"41 40 8:2 / {tmp_path} rw - xfs /dev/sdb rw"]), encoding="utf-8")
    assert await clinic.found("local disk") == []
    mounts.unlink()
    assert await clinic.found("local disk") == []
