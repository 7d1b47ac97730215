"""What was found is kept in the database: for other processes, after a restart, and not without bounds."""

import uuid
from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from postroad.consistency import MOST_KEPT, Finding, Loss, Report, shortened
from postroad.operations import doctor, results
from postroad.stores import open_store
from postroad.stores.migrations import migrate

WHEN = datetime(2026, 11, 18, 3, tzinfo=UTC)
FOUND = Report(WHEN, WHEN, 7, 9, [Finding("missing_outbox", "", 1, ["0198c2c5-0000-7000-8000-000000000000"])])


@pytest.fixture
async def store(database_url: str):
    store = open_store(database_url)
    await migrate(store, ())
    yield store
    await store.aclose()


async def test_what_one_process_found_another_is_told_with_who_and_when(store, database_url: str) -> None:
    assert await results.last(store, results.CHECK, Report) is None
    before = store.clock.now()
    await results.keep(store, results.CHECK, FOUND, actor="ada")
    other = open_store(database_url)
    found = await results.last(other, results.CHECK, Report)
    assert found is not None
    at, actor, report = found
    assert before <= at <= other.clock.now()
    assert (actor, report) == ("ada", FOUND)
    assert await results.last(other, results.DOCTOR, doctor.Report) is None
    await other.aclose()


async def test_only_the_last_of_each_kind_is_kept(store) -> None:
    examined = doctor.Report("db", "broker", [doctor.Finding("tables", "all there", doctor.Level.FAULT, "ü" * 300)])
    for number in range(5):
        await results.keep(store, results.CHECK, FOUND, actor=f"worker {number}" * 100)
        await results.keep(store, results.DOCTOR, examined, actor="ada")
    async with store.reading() as connection:
        assert (await connection.execute(text("SELECT COUNT(*) FROM postroad_result"))).scalar_one() == 2
    _, actor, _ = await results.last(store, results.CHECK, Report)
    assert (actor[:8], len(actor)) == ("worker 4", 255)
    assert (await results.last(store, results.DOCTOR, doctor.Report))[2] == examined


async def test_what_another_version_kept_in_another_shape_is_nothing_found(store) -> None:
    await results.keep(store, results.CHECK, {"an": "other shape"}, actor="ada")
    assert await results.last(store, results.CHECK, Report) is None


async def test_a_day_of_losses_is_kept_shortened(store) -> None:
    minute = Loss("mail", "shop.order.events", "order.placed", 900, 0, [str(uuid.uuid4()) for _ in range(900)])
    losses = shortened([minute] * 1440)
    await results.keep(store, results.VERIFY, losses, actor="ada")
    _, _, kept = await results.last(store, results.VERIFY, list[Loss])
    assert kept == losses
    assert (len(kept), len(kept[0].ids), kept[0].sent) == (MOST_KEPT, 5, 900)
