"""From the business transaction to the handler's effect by way of Pub/Sub's emulator."""

import subprocess
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncSession

from postroad import Backoff, PoisonError, Postroad, RelayOptions, SubscriberOptions, event, operations
from tests.journeys.test_docs import blocks, run
from tests.support.commands import Shell

TOPIC = "journey.parcel.events"
GROUP = "trails"

SHOP = """
import asyncio
import sys
from pathlib import Path

import msgspec
from sqlalchemy import text

from postroad import Postroad, SubscriberOptions, event

road = Postroad(source="parcels", subscriber=SubscriberOptions(ack_deadline=10))


@event("parcel.moved", topic="journey.depot.events", aggregate="parcel", key="parcel")
class ParcelMoved(msgspec.Struct, frozen=True):
    parcel: str
    step: int


@road.on(ParcelMoved, group="trails")
def record(moved: ParcelMoved, session) -> None:
    session.execute(text("INSERT INTO trail (parcel, step) VALUES (:parcel, :step)"), msgspec.to_builtins(moved))
    if not Path("second").exists() and moved.step == 2:
        print("in the middle of it", flush=True)
        sys.stdin.read()


async def place() -> None:
    async with road:
        await road.migrate()
        async with road.session() as session, session.begin():
            await session.execute(text("CREATE TABLE trail (id SERIAL, parcel TEXT, step INT)"))
            for step in range(5):
                for parcel in "ab":
                    road.add(session, ParcelMoved(parcel, step))


if __name__ == "__main__":
    asyncio.run(place())
"""


@event("journey.moved", topic=TOPIC, aggregate="parcel", key="parcel")
class Moved(msgspec.Struct, frozen=True):
    parcel: str
    step: int


@pytest.fixture
async def road(fresh_postgresql_url: str, pubsub_url: str) -> AsyncIterator[Postroad]:
    options = SubscriberOptions(backoff=Backoff(attempts=3, base=0.05))
    relaying = RelayOptions(poll=0.1)
    async with Postroad("parcels", fresh_postgresql_url, pubsub_url, subscriber=options, relay=relaying) as road:
        await road.migrate()
        async with road.session() as session, session.begin():
            await session.execute(text("CREATE TABLE trail (id SERIAL, parcel TEXT, step INT)"))
        yield road


async def trail(road: Postroad) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    async with road.session() as session:
        for parcel, step in await session.execute(text("SELECT parcel, step FROM trail ORDER BY id")):
            found.setdefault(parcel, []).append(step)
    return found


async def note(session: AsyncSession, moved: Moved) -> None:
    await session.execute(text("INSERT INTO trail (parcel, step) VALUES (:parcel, :step)"), msgspec.to_builtins(moved))


@pytest.mark.spec("P6", "F6")
async def test_every_effect_happens_once_and_in_order_although_handlers_fail(road: Postroad) -> None:
    failed: set[Moved] = set()

    @road.on(Moved, group=GROUP)
    async def record(moved: Moved, session: AsyncSession) -> None:
        await note(session, moved)
        if moved.step % 2 and moved not in failed:
            failed.add(moved)
            raise ConnectionError("the depot does not answer")

    async with road.running():
        for step in range(5):
            async with road.session() as session, session.begin():
                for parcel in "abcd":
                    road.add(session, Moved(parcel, step))
        await road.drain(60)
    assert await trail(road) == {parcel: list(range(5)) for parcel in "abcd"}
    assert len(failed) == 8


@pytest.mark.spec("P14")
async def test_poison_is_found_among_the_dead_and_comes_back_when_it_is_mended(road: Postroad) -> None:
    mended = False

    @road.on(Moved, group=GROUP)
    async def record(moved: Moved, session: AsyncSession) -> None:
        if moved.parcel == "p" and not mended:
            raise PoisonError("no such parcel")
        await note(session, moved)

    async with road.running():
        async with road.session() as session, session.begin():
            for parcel in "ap":
                road.add(session, Moved(parcel, 0))
        await road.drain(60)
        (letter,) = await road.broker.dead_letters(TOPIC)
        assert (letter.subscription, letter.reason) == (f"{TOPIC}.{GROUP}", "PoisonError: no such parcel")
        mended = True
        dead = await operations.dead_page(road.broker, [TOPIC])
        assert await operations.retry_dead(road.store, road.broker, dead, actor="ann") == 1
        await road.drain(60)
    assert await trail(road) == {"a": [0], "p": [0]}


async def test_a_delayed_event_waits_for_its_time_and_nothing_waits_for_it(road: Postroad) -> None:
    handled: list[tuple[int, datetime]] = []

    @road.on(Moved, group=GROUP)
    async def record(moved: Moved) -> None:
        handled.append((moved.step, datetime.now(UTC)))

    async with road.running():
        async with road.session() as session, session.begin():
            due = datetime.now(UTC) + timedelta(seconds=1)
            road.add(session, Moved("a", 0), delay=1)
            road.add(session, Moved("a", 1))
        await road.drain(60)
    assert [step for step, _ in handled] == [1, 0]
    assert handled[1][1] >= due


@pytest.mark.spec("P6", "F6")
def test_a_worker_killed_in_a_handler_costs_time_and_nothing_else(
    fresh_postgresql_url: str, pubsub_url: str, tmp_path: Path
) -> None:
    """Everything is sent before the kill: what comes later, the emulator would deliver before what died."""
    shell = Shell(tmp_path, DATABASE_URL=fresh_postgresql_url, BROKER_URL=pubsub_url)
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    subprocess.run([sys.executable, "shop.py"], cwd=tmp_path, env=shell.environment, check=True, timeout=60)
    with shell.running("run shop:road --log-level warning") as first:
        first.until("in the middle of it")
        first.process.kill()
        first.process.wait()
    (tmp_path / "second").touch()
    with shell.running("run shop:road --log-level warning"):
        rows = all_rows(fresh_postgresql_url)
    assert {p: [step for parcel, step in rows if parcel == p] for p in "ab"} == {p: list(range(5)) for p in "ab"}


def all_rows(url: str) -> list[tuple[str, int]]:
    """Once there are all ten; whoever waits too long is told by the clock of the tests."""
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), poolclass=NullPool)
    while True:
        with engine.connect() as connection:
            rows = connection.execute(text("SELECT parcel, step FROM trail ORDER BY id")).all()
        if len(rows) >= 10:
            return [(row.parcel, row.step) for row in rows]
        time.sleep(0.1)


def test_the_readme_block_runs_on_pubsub(tmp_path: Path, pubsub_url: str) -> None:
    _, code = blocks("README.md")[0]
    (tmp_path / "block.py").write_text(code, encoding="utf-8")
    ran = run(tmp_path, sys.executable, "block.py", BROKER_URL=pubsub_url)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("receipt for o-1: 42.00\n", "", 0)


@pytest.mark.spec("F8")
def test_the_schema_of_the_guide_is_attached(tmp_path: Path, pubsub_url: str) -> None:
    ((_, code),) = blocks("docs/brokers/pubsub.md")
    shell = Shell(tmp_path, BROKER_URL=pubsub_url)
    (tmp_path / "shop.py").write_text(code, encoding="utf-8")
    assert "create  schema        order-placed-v1" in shell("topology apply shop:road")
