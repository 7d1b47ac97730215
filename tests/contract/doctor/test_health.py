"""A healthy installation gives the doctor nothing to say; he changes nothing, and waits for nobody for long."""

import os
import re
import sqlite3
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import event

from postroad import OutboxTable
from postroad.operations.doctor import CHECKS, Level
from tests.contract.doctor.conftest import Open
from tests.support.clinic import Clinic


@pytest.mark.spec("F14")
async def test_a_healthy_installation_has_no_problems(clinic: Clinic) -> None:
    assert await clinic.problems() == {}
    applicable = {check.name for check in CHECKS if clinic.road.store.dialect in check.stores}
    assert {one.check for one in await clinic.all_findings()} == applicable


@pytest.mark.spec("F14")
async def test_a_healthy_installation_with_rabbitmq_has_no_problems(rabbit_clinic: Clinic) -> None:
    assert await rabbit_clinic.problems() == {}


async def test_every_layout_of_the_outbox_is_known(database_url: str, open_road: Open) -> None:
    outboxes = [OutboxTable(), OutboxTable("facts", append_only=True), OutboxTable("second")]
    clinic = await Clinic(open_road(database_url, outboxes=outboxes)).prepare()
    assert await (await clinic.staff()).problems() == {}


async def test_what_was_handled_leaves_nothing_to_find(unstaffed: Clinic) -> None:
    async with unstaffed.road.running():
        await unstaffed.post("p-1", "p-2")
        await unstaffed.road.drain()
        assert await unstaffed.problems() == {}


async def test_only_reading_is_needed_on_postgresql(
    postgresql_clinic: Clinic, fresh_postgresql_url: str, open_road: Open
) -> None:
    await postgresql_clinic.post("p-1")
    reading = Clinic(open_road(f"{fresh_postgresql_url}?options=-c%20default_transaction_read_only%3Don"))
    findings = await reading.all_findings()
    assert [one for one in findings if one.level is Level.UNMADE] == []
    assert [one.check for one in findings if one.level is Level.FAULT] == ["settings"]


@pytest.mark.parametrize("store_kind", ["sqlite", "mariadb"])
async def test_no_statement_writes(clinic: Clinic) -> None:
    await clinic.post("p-1")
    said: list[str] = []
    event.listen(
        clinic.road.store.engine.sync_engine,
        "before_cursor_execute",
        lambda connection, cursor, statement, *rest: said.append(re.sub("--[^\n]*", "", statement).split()[0]),
    )
    await clinic.all_findings()
    assert set(said) <= {"SELECT", "WITH", "PRAGMA", "SHOW", "DESCRIBE", "BEGIN", "SET"}


async def test_the_files_stay_as_they_were(sqlite_url: str, tmp_path: Path, open_road: Open) -> None:
    clinic = await (await Clinic(open_road(sqlite_url)).prepare()).staff()
    await clinic.post("p-1")

    def dumped() -> list[str]:
        found = []
        for name in ("test.db", "broker.db"):
            with sqlite3.connect(tmp_path / name) as connection:
                found += list(connection.iterdump())
            connection.close()
        return found

    before = dumped()
    await clinic.all_findings()
    assert dumped() == before


async def test_looking_creates_no_file(tmp_path: Path, open_road: Open) -> None:
    clinic = Clinic(open_road(f"sqlite:///{tmp_path / 'absent.db'}"))
    problems = await clinic.problems()
    assert (problems["database"], problems["broker"]) == (Level.FAULT, Level.FAULT)
    assert os.listdir(tmp_path) == []


@pytest.mark.spec("F14")
async def test_a_check_that_is_held_up_says_so_and_the_others_are_made(
    postgresql_clinic: Clinic, fresh_postgresql_url: str
) -> None:
    clinic = postgresql_clinic
    with psycopg.connect(fresh_postgresql_url) as other:
        other.execute("LOCK TABLE postroad_shard IN ACCESS EXCLUSIVE MODE")
        findings = await clinic.all_findings(patience=0.5)
        unmade = {one.check for one in findings if one.level is Level.UNMADE}
        assert unmade == {"shards", "leases"}
        assert all("0.5 s" in one.cause for one in findings if one.level is Level.UNMADE)
    assert await clinic.problems() == {}


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_a_mistake_of_the_checks_own_stops_no_other(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> None:
        raise ValueError("a mistake of ours")

    monkeypatch.setattr(clinic.road.broker, "subscriptions", broken)
    problems = await clinic.problems()
    assert {name for name, level in problems.items() if level is Level.UNMADE} == {
        "readers", "retention", "subscriptions", "dead letters",
    }  # fmt: skip
    assert set(problems.values()) == {Level.UNMADE}


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
async def test_a_database_that_does_not_answer_is_told_and_the_broker_still_examined(
    kind: str, tmp_path: Path, open_road: Open
) -> None:
    clinic = Clinic(open_road(f"{kind}://someone@127.0.0.1:9/none"))
    await clinic.road.broker.apply(clinic.road.topology)
    problems = await clinic.problems()
    assert problems["database"] is Level.FAULT
    assert problems["tables"] is Level.UNMADE
    assert not {"topology", "bindings", "readers"} & problems.keys()


async def test_a_broker_that_does_not_answer_is_told_and_the_database_still_examined(
    sqlite_url: str, open_road: Open
) -> None:
    clinic = Clinic(open_road(sqlite_url, "amqp://guest:guest@127.0.0.1:9/"))
    await clinic.road.migrate()
    await clinic.staff()
    problems = await clinic.problems()
    assert problems.pop("broker") is Level.FAULT
    assert set(problems.values()) == {Level.UNMADE}
    assert not {"tables", "keys", "relays"} & problems.keys()
