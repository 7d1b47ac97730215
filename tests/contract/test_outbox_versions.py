"""Versions under concurrency, on real connections: no gap, no double, none after a higher, no deadlock."""

import asyncio
import random
from uuid import uuid4

import pytest
from sqlalchemy import text

from postroad.errors import InvalidPayload, StoreBusy, VersionConflict
from postroad.testing.office import Office, Posted
from tests.support.outbox import Weighed

WRITERS = 4


async def until_not_busy(act, *arguments, **options):
    while True:
        try:
            return await act(*arguments, **options)
        except StoreBusy:
            continue


@pytest.mark.spec("F5")
async def test_no_version_becomes_visible_after_a_higher_one(office: Office) -> None:
    done = asyncio.Event()
    looks = 0

    async def write(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(20):
            parcels = [chance.choice("ab") for _ in range(chance.randint(1, 3))]
            async with office.store.session() as session, session.begin():
                for parcel in parcels:
                    office.outbox.add(session, Posted(parcel))
                await session.flush()
                # The counter is locked; others must wait however long we take to commit.
                await asyncio.sleep(chance.random() / 200)
                if chance.random() < 0.2:
                    await session.rollback()

    async def watch() -> None:
        nonlocal looks
        while not done.is_set():
            for parcel in "ab":
                rows = await office.query(
                    "SELECT {version} AS version FROM {outbox} WHERE {aggregate_id} = :p ORDER BY {version}",
                    p=parcel,
                )
                assert [row.version for row in rows] == list(range(1, len(rows) + 1))
            looks += 1

    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch())
        await asyncio.gather(*(write(seed) for seed in range(WRITERS)))
        done.set()
        await watching
    assert looks > 3
    assert len(await office.rows()) > 20


async def test_transactions_that_touch_aggregates_in_opposite_order_do_not_deadlock(office: Office) -> None:
    busy = 0

    async def write(seed: int) -> None:
        nonlocal busy
        chance = random.Random(seed)
        for _ in range(25):
            parcels = list("abc") * 2
            chance.shuffle(parcels)
            try:
                async with office.store.session() as session, session.begin():
                    for parcel in parcels:
                        kind = chance.choice((Posted, Weighed))
                        office.outbox.add(session, kind(parcel), delay=chance.choice((None, 60)))
            except StoreBusy:
                busy += 1

    await asyncio.gather(*(write(seed) for seed in range(WRITERS)))
    assert busy == 0
    written = await office.query("SELECT version FROM postroad_version ORDER BY aggregate_id")
    assert [row.version for row in written] == [2 * 25 * WRITERS] * 3


async def test_of_writers_with_the_same_version_one_wins(office: Office) -> None:
    async def write() -> bool:
        try:
            await until_not_busy(office.post, "a", version=1)
        except VersionConflict:
            return False
        return True

    assert sorted(await asyncio.gather(*(write() for _ in range(WRITERS)))) == [False] * (WRITERS - 1) + [True]
    assert [row.version for row in await office.rows()] == [1]


@pytest.mark.spec("P9")
@pytest.mark.parametrize("version", [None, 1])
async def test_writers_with_the_same_idempotency_key_write_once(office: Office, version: int | None) -> None:
    """However they meet: the later ones find the event there and change nothing, not even the count."""
    for round in range(5):
        adds = (
            until_not_busy(office.post, f"p{round}", idempotency_key=f"key {round}", version=version)
            for _ in range(WRITERS)
        )
        ids = {added.id for (added,) in await asyncio.gather(*adds)}
        assert len(ids) == 1
        await office.post(f"p{round}")
    assert [row.version for row in await office.rows()] == [1, 2] * 5


@pytest.mark.spec("P9")
@pytest.mark.parametrize("version", [None, 1])
async def test_a_writer_that_waited_for_the_same_event_writes_nothing(office: Office, version: int | None) -> None:
    async with office.store.session() as session, session.begin():
        office.outbox.add(session, Posted("a"), idempotency_key="once", version=version)
        await session.flush()
        waiting = asyncio.create_task(until_not_busy(office.post, "a", idempotency_key="once", version=version))
        # Long enough to come to the lock; if it were not, the test would only prove less.
        await asyncio.wait((waiting,), timeout=0.15)
        assert not waiting.done()
    await waiting
    await office.post("a")
    assert [row.version for row in await office.rows()] == [1, 2]


@pytest.mark.spec("P9")
async def test_the_same_event_again_neither_uses_up_a_version_nor_gives_one_back(office: Office) -> None:
    await office.post("a", idempotency_key="counted")
    await office.post("a", idempotency_key="counted")
    await office.post("a")
    await office.post("a", idempotency_key="given", version=7)
    await office.post("a")
    for version in (7, 9, 20):
        # Whatever version comes with it now: the event is there already.
        await office.post("a", idempotency_key="given", version=version)
    await office.post("a", idempotency_key="counted")
    await office.post("a")
    assert [row.version for row in await office.rows()] == [1, 2, 7, 8, 9]


@pytest.mark.spec("P9")
@pytest.mark.parametrize("store_kind", ["postgresql"])
@pytest.mark.parametrize(("given", "following"), [(None, 3), (5, 6)])
async def test_a_writer_that_waited_for_the_same_event_of_another_aggregate_leaves_the_count_whole(
    office: Office, store_kind: str, given: int | None, following: int
) -> None:
    """An allocated number is free again. A given one is not undone: nobody knows where the counter stood."""
    await office.post("b", "b")
    async with office.store.session() as session, session.begin():
        office.outbox.add(session, Posted("a"), idempotency_key="once")
        await session.flush()
        waiting = asyncio.create_task(office.post("b", idempotency_key="once", version=given))
        await until_somebody_waits(office)
    await waiting
    await office.post("b")
    assert [row.version for row in await office.rows()] == [1, 1, 2, following]


async def until_somebody_waits(office: Office) -> None:
    """For another's transaction, as PostgreSQL tells it."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with asyncio.timeout(20):
        while not await office.query(waiting):
            pass


@pytest.mark.parametrize("store_kind", ["postgresql", "mariadb"])
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
async def test_writers_of_different_aggregates_do_not_wait_for_each_other(
    office: Office, store_kind: str, level: str
) -> None:
    """Whatever the isolation of the caller's transaction."""
    engine = office.store.engine
    # New names: of those that a test before this one removed, MariaDB keeps a trace for a while, and locks it.
    parcels = [f"{uuid4().hex}-{n}" for n in range(4)]
    async with engine.connect() as first, engine.connect() as second, asyncio.timeout(20):
        for connection in (first, second):
            await connection.execution_options(isolation_level=level)
            await connection.begin()
        for connection, parcel in zip((first, second) * 2, parcels, strict=True):
            await office.outbox.add(connection, Posted(parcel))
        await second.commit()
        await first.commit()
    assert {row.ordering_key for row in await office.rows()} == {f"parcel/{parcel}" for parcel in parcels}


@pytest.mark.parametrize("store_kind", ["mariadb"])
async def test_a_snapshot_does_not_show_an_old_counter(office: Office, store_kind: str) -> None:
    """Under MySQL's default isolation a plain read would see the counter as it was at the beginning."""
    async with office.store.engine.connect() as connection:
        await connection.execution_options(isolation_level="REPEATABLE READ")
        async with connection.begin():
            assert not (await connection.execute(text("SELECT * FROM postroad_version"))).all()
            await office.post("a", "a")
            await office.outbox.add(connection, Posted("a"))
    assert [row.version for row in await office.rows()] == [1, 2, 3]


@pytest.mark.parametrize("version", [0, -1, True, 1.0, "1", 10**18])
async def test_a_version_that_cannot_travel_is_refused(office: Office, version: object) -> None:
    with pytest.raises(InvalidPayload, match="field version: must be a whole number"):
        await office.post("a", version=version)
    assert not await office.rows()
