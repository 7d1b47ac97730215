"""Waiting for SQLite's write lock."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from postroad.stores.sqlite import patience
from postroad.stores.sqlite.patience import BEGIN, PatientConnection

Connect = Callable[..., sqlite3.Connection]


@pytest.fixture
def connect(tmp_path: Path) -> Connect:
    def connect(timeout: float = 20.0) -> sqlite3.Connection:
        connection = sqlite3.connect(
            tmp_path / "test.db", timeout=timeout, isolation_level=None, factory=PatientConnection
        )
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        return connection

    return connect


def busy_timeout(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA busy_timeout").fetchone()[0])


def test_it_looks_again_soon_however_long_it_has_waited(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, patient = connect(), connect()
    holder.execute(BEGIN)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 50:
            holder.execute("COMMIT")

    monkeypatch.setattr(patience.time, "sleep", sleep)
    patient.execute(BEGIN)
    assert patient.in_transaction
    assert len(pauses) == 50
    assert max(pauses) <= 0.005
    assert busy_timeout(patient) == 20_000
    for connection in (patient, holder):
        connection.close()


def test_when_its_time_is_up_it_says_so(connect: Connect) -> None:
    holder, patient = connect(), connect(timeout=0.005)
    holder.execute(BEGIN)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        patient.execute(BEGIN)
    assert busy_timeout(patient) == 5
    for connection in (patient, holder):
        connection.close()


def test_what_is_no_lock_is_no_reason_to_wait(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(patience.time, "sleep")
    connection = connect()
    connection.execute(BEGIN)
    with pytest.raises(sqlite3.OperationalError, match="within a transaction"):
        connection.execute(BEGIN)
    connection.close()
