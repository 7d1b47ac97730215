"""What is done to thousands is done in portions: each is committed by itself, and told."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner

from postroad import Postroad, operations
from postroad.cli import main
from postroad.errors import BrokerUnavailable
from postroad.operations import portions
from postroad.testing.office import Posted


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "PORTION", 3)


@pytest.fixture
async def road(tmp_path: Path) -> AsyncIterator[Postroad]:
    async with Postroad("office", f"sqlite:///{tmp_path}/office.db", f"embedded:{tmp_path}/broker.db") as road:
        await road.migrate()
        yield road


def counted(road: Postroad, query: str) -> int:
    """As another connection sees it."""
    with closing(sqlite3.connect(str(road.database_url).removeprefix("sqlite:///"))) as other:
        return int(other.execute(f"SELECT count(*) FROM {query}").fetchone()[0])


async def parked(road: Postroad, number: int) -> Sequence[UUID]:
    async with road.session() as session, session.begin():
        ids = [road.add(session, Posted(str(n))).id for n in range(number)]
    async with road.store.transaction() as connection:
        await connection.exec_driver_sql("UPDATE postroad_outbox SET state = 'FAILED'")
    return ids


async def test_parked_events_are_freed_portion_by_portion(road: Postroad) -> None:
    ids, told = await parked(road, 7), list[tuple[int, int, int]]()

    def progress(done: int, total: int) -> None:
        told.append((done, total, counted(road, "postroad_outbox WHERE state = 'FAILED'")))

    await operations.retry_events(road.store, road.outboxes, ids, actor="ann", progress=progress)
    assert told == [(3, 7, 4), (6, 7, 1), (7, 7, 0)]


def dead(number: int) -> operations.DeadEvent:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return operations.DeadEvent(str(number), "office.parcel.events", "desk", "", "x.y", "", "broken", 1, at, {}, None)


async def test_dead_letters_are_given_back_portion_by_portion(road: Postroad, monkeypatch: pytest.MonkeyPatch) -> None:
    revived: list[tuple[Sequence[str], int]] = []

    async def revive(topic: str, ids: Sequence[str]) -> int:
        if len(revived) == 2:
            raise BrokerUnavailable("away")
        revived.append((ids, counted(road, "postroad_audit")))
        return len(ids)

    monkeypatch.setattr(road.broker, "revive", revive)
    told: list[tuple[int, int]] = []
    with pytest.raises(BrokerUnavailable):
        await operations.retry_dead(
            road.store, road.broker, [dead(n) for n in range(8)], actor="ann", progress=lambda *how: told.append(how)
        )
    # What was given back stays so; the rest is still dead, and can be given back later.
    assert revived == [(["0", "1", "2"], 3), (["3", "4", "5"], 6)]
    assert told == [(3, 8), (6, 8)]


@pytest.mark.parametrize("on_terminal", [True, False], ids=["terminal", "pipe"])
def test_a_person_sees_a_bar_and_a_pipe_does_not(tmp_path: Path, on_terminal: bool) -> None:
    places = {"DATABASE_URL": f"sqlite:///{tmp_path}/office.db", "BROKER_URL": f"embedded:{tmp_path}/broker.db"}
    forced = {"FORCE_COLOR": "1"} if on_terminal else {}

    async def prepare() -> None:
        async with Postroad("office", places["DATABASE_URL"], places["BROKER_URL"]) as road:
            await road.migrate()
            await parked(road, 4)

    asyncio.run(prepare())
    done = CliRunner().invoke(main, ["outbox", "retry", "--all-parked"], env={**places, **forced, "POSTROAD_APP": None})
    assert done.exit_code == 0, done.output
    assert done.stdout.count("will be tried again") == 4
    assert ("freeing" in done.stderr) == on_terminal
    again = CliRunner().invoke(main, ["dlq", "retry", "--all"], env={**places, **forced, "POSTROAD_APP": None})
    assert again.exit_code == 0, again.output
    assert ("giving back" in again.stderr) == on_terminal
