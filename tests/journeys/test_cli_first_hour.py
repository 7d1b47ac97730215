"""What a newcomer meets in the first hour, each point tried with the real command."""

import os
import shlex
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.support.commands import Shell
from tests.support.components import ROOT

on_either = pytest.mark.parametrize("shell", ["sqlite", "postgresql"], indirect=True)
"""On the defaults, and on PostgreSQL."""


@pytest.fixture
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    if getattr(request, "param", "sqlite") == "sqlite":
        return Shell(tmp_path)
    return Shell(tmp_path, DATABASE_URL=request.getfixturevalue("fresh_postgresql_url"))


@pytest.fixture
def timeless(tmp_path: Path) -> dict[str, str]:
    """An environment in which no time passes for asyncio: who waits for some, be it for a second attempt, waits for
    ever. What a command says there, it says at once."""
    (tmp_path / "timeless").mkdir()
    (tmp_path / "timeless" / "sitecustomize.py").write_text(
        "import asyncio\nasyncio.BaseEventLoop.time = lambda loop: 0.0\n", encoding="utf-8"
    )
    return {"PYTHONPATH": os.pathsep.join([str(tmp_path / "timeless"), str(ROOT / "src")])}


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Somebody takes the connection and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def test_a_script_that_is_taken_for_an_application_is_told_why_it_cannot_be_one(shell: Shell) -> None:
    with (shell.folder / "shop.py").open("a") as script:
        script.write("\n\nasyncio.run(road.migrate())\n")
    *_, last = shell("status shop:road", expect=1).splitlines()
    assert last.startswith("error: shop could not be imported: ")
    assert 'put that call under `if __name__ == "__main__":`' in last


@on_either
@pytest.mark.parametrize("command", ["run", "relay", "worker"])
def test_point_5_without_tables_the_exact_command_is_told(shell: Shell, command: str) -> None:
    (shell.folder / "shop.db").touch()
    told = shell(f"{command} shop:road", expect=1)
    assert "Run: postroad db migrate shop:road" in told
    assert len(told.splitlines()) < 10
    assert "started" not in told
    assert "Traceback" not in told


def test_point_5_who_publishes_without_tables_is_told_the_command_too(shell: Shell) -> None:
    (shell.folder / "shop.db").touch()
    told = shell("publish shop:road order.placed", '{"order_id": "7", "cents": 13}', expect=1)
    assert "Run: postroad db migrate shop:road" in told


def test_point_5_looking_does_not_create_the_database(shell: Shell) -> None:
    assert "Run: postroad db migrate shop:road" in shell("status shop:road", expect=1)
    assert not (shell.folder / "shop.db").exists()


def test_points_5_and_6_on_every_store(tmp_path: Path, database_url: str) -> None:
    shell = Shell(tmp_path, DATABASE_URL=database_url)
    assert "Run: postroad db migrate shop:road" in shell("run shop:road", expect=1)
    assert "applied 0001_core" in shell("db migrate shop:road")
    again = shell("db migrate shop:road")
    assert "up to date" in again
    assert "applied" not in again
    with shell.running("run shop:road") as running:
        assert running.until("started")


@pytest.mark.parametrize(("scheme", "command"), [("postgresql", "dev"), ("mysql", "run")])
def test_point_7_database_down(
    tmp_path: Path, timeless: dict[str, str], closed_port: int, scheme: str, command: str
) -> None:
    shell = Shell(tmp_path, DATABASE_URL=f"{scheme}://shop@127.0.0.1:{closed_port}/shop", **timeless)
    told = shell(f"{command} shop:road", expect=1)
    assert "127.0.0.1" in told
    assert str(closed_port) in told
    assert "started" not in told
    assert len(told.splitlines()) < 10


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_point_7_database_that_does_not_answer(tmp_path: Path, silent_port: int, scheme: str) -> None:
    shell = Shell(tmp_path, DATABASE_URL=f"{scheme}://shop@127.0.0.1:{silent_port}/shop")
    began = time.monotonic()
    shell("--version")
    start_up = time.monotonic() - began
    began = time.monotonic()
    told = shell("dev shop:road", expect=1)
    assert time.monotonic() - began - start_up < 5
    assert f"127.0.0.1:{silent_port}" in told
    assert "started" not in told


def test_point_7_broker_down(tmp_path: Path, timeless: dict[str, str], closed_port: int) -> None:
    shell = Shell(tmp_path, BROKER_URL=f"amqp://guest@127.0.0.1:{closed_port}/", **timeless)
    told = shell("dev shop:road", expect=1)
    assert f"127.0.0.1:{closed_port}" in told
    assert "started" not in told
    assert len(told.splitlines()) < 10


def test_point_7_no_place_for_the_broker(tmp_path: Path, timeless: dict[str, str]) -> None:
    shell = Shell(tmp_path, BROKER_URL="embedded:no-such-folder/broker.db", **timeless)
    told = shell("dev shop:road", expect=1)
    assert "no-such-folder/broker.db" in told
    assert "started" not in told
    assert len(told.splitlines()) < 10


@on_either
def test_point_9_retries_exhausted_kept_listed_replayed(shell: Shell) -> None:
    with shell.running("dev shop:road") as running:
        running.until("started")
        shell("publish shop:road order.placed", '{"order_id": "7", "cents": 13}')
        running.until("dead letters")
        listed = shell("dlq list --app shop:road")
        assert "unlucky" in listed
        letter, event_id = _cell(listed, "id"), _cell(listed, "event")
        (shell.folder / "mended").touch()
        assert " will be handled again by " in shell(f"dlq retry {letter} --app shop:road")
        running.until("receipt 7")
        assert "no dead letters" in shell("dlq list --app shop:road")
        assert '"state":"succeeded"' in shell(f"inbox show receipts {event_id} --app shop:road --json")
    assert (shell.folder / "receipts").read_text() == "7\n"


@on_either
def test_point_14_a_poison_event_first(shell: Shell) -> None:
    shell("db migrate shop:road")
    for order, cents in (("poison", 1), ("poison", 2), ("other", 3)):
        shell("publish shop:road order.placed", f'{{"order_id": "{order}", "cents": {cents}}}')
    first = "version = 1 AND aggregate_id = 'poison'"
    _in_database(shell, f"UPDATE postroad_outbox SET topic = 'shop.gone.events' WHERE {first}")
    with shell.running("run shop:road") as running:
        running.until("receipt other")
        if "is parked" not in running.text:
            running.until("is parked")
        told = shell("status shop:road")
        assert "order/poison" in told
        assert "1 behind it" in told
        _in_database(shell, "UPDATE postroad_outbox SET topic = 'shop.order.events'")
        command = next(line.strip() for line in told.splitlines() if "postroad outbox retry" in line)
        shell(shlex.join(shlex.split(command)[1:]))
        running.until("receipt poison")
        running.until("receipt poison")
        assert "order/poison" not in shell("status shop:road")
    assert (shell.folder / "receipts").read_text().split() == ["other", "poison", "poison"]


@on_either
def test_point_15_status_answers_without_sql(shell: Shell) -> None:
    shell("db migrate shop:road")
    written = shell("publish shop:road order.placed", '{"order_id": "7", "cents": 14}')
    event_id = written.split()[1]
    before = shell("status shop:road")
    assert "waiting" in before
    assert "oldest unsent" in before
    assert "nobody" in before
    with shell.running("run shop:road") as running:
        running.until("was refused by group")
        told = shell("status shop:road")
        assert "relay" in told
        assert "worker" in told
        assert "receipts" in told
        assert event_id in told
        command = next(line.strip() for line in told.splitlines() if "postroad inbox retry" in line)
        shell(shlex.join(shlex.split(command)[1:]))
        assert "not for sale" in running.until("not for sale")
    shown = shell(f"outbox show {event_id} --app shop:road")
    assert "SENT" in shown
    assert '{"order_id":"7","cents":14}' in shown


def _cell(table: str, column: str) -> str:
    """The first row's value in a plain table."""
    header, row = table.splitlines()[:2]
    start = f" {header}".index(f" {column} ")
    return row[start:].split()[0]


def _in_database(shell: Shell, statement: str) -> None:
    if url := shell.environment.get("DATABASE_URL"):
        with psycopg.connect(url) as server:
            server.execute(statement)
        return
    with closing(sqlite3.connect(shell.folder / "shop.db", timeout=30)) as connection, connection:
        connection.execute(statement)
