"""What a check holds at a time does not grow with what there is to look at, nor with what is wrong."""

import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import BigInteger, Column, MetaData, String, Table

from postroad import Postroad
from postroad.consistency.check import FIRST
from postroad.stores.tables import OutboxTable
from tests.support.genesis import TOPIC, SessionStarted, change, genesis
from tests.support.harm import OLD

FEW, MANY = 2_000, 8_000
"""Both more than a page of anything."""
TITLES = Table("titles", MetaData(), Column("id", String(64), primary_key=True), Column("version", BigInteger))
_NUMBERS = "WITH RECURSIVE numbers(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM numbers WHERE n < {last})"
_ID = "printf('00000000-0000-7000-8000-%012x', n)"
_NOW = "strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')"  # as Postroad writes it
_FACTS = f"{_ID}, 'Genesis.Session.Started', 'session', 's-' || n, '{TOPIC}', 1, '{{}}', 'application/json', {_NOW}"
_UNKNOWN = (
    _FACTS.replace("-7000-8000-", "-7000-9000-")
    .replace("Genesis.Session.Started", "gone.away")
    .replace("'session'", "'gone'")
)


@pytest.fixture(params=["own", "adopted"])
async def road(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Postroad]:
    outbox = OutboxTable("theirs", topic=TOPIC) if request.param == "adopted" else OutboxTable()
    urls = f"sqlite:///{tmp_path / 'much.db'}", f"embedded:{tmp_path / 'broker.db'}"
    async with genesis(*urls, outboxes=[outbox]) as road:
        await road.migrate()
        async with road.store.transaction() as connection:
            await connection.run_sync(TITLES.create)
        titles = road.projection("titles", TITLES, group="titles")
        titles.on(SessionStarted)(_title)
        road.on(SessionStarted, group="readers")(_nothing)
        await change(road, f"INSERT INTO {{handlers}} SELECT 'readers', 'Genesis.Session.Started', {OLD}, {OLD}")
        yield road


async def _nothing(event: SessionStarted) -> None:
    return None


def _title(event: SessionStarted) -> dict[str, object]:
    return {"id": event.session_id}


async def fill(road: Postroad, first: int, last: int) -> None:
    """Each event was sent, is unknown to a group, has no predecessor, and its row of the read model is missing. As many
    more are late, and nobody knows what they are."""
    numbers, outbox = _NUMBERS.format(first=first, last=last), road.outboxes[0].name
    facts = (
        "event_id, event_type, aggregate_type, aggregate_id, topic, schema_version, payload, content_type, occurred_at"
    )
    delivery = "ordering_key, shard, state, attempts, published_at, next_attempt_at"
    inbox = "consumer_group, event_id, event_type, topic, ordering_key, version, status, processed_at"
    for statement in (
        f"INSERT INTO {outbox} ({facts}, version, {delivery}) {numbers}"
        f" SELECT {_FACTS}, 2, 'session/s-' || n, n % 256, 'SENT', 1, {_NOW}, NULL FROM numbers",
        f"INSERT INTO {outbox} ({facts}, version, {delivery}) {numbers}"
        f" SELECT {_UNKNOWN}, 2, 'gone/s-' || n, n % 256, 'RETRY', 1, NULL, {OLD} FROM numbers",
        f"INSERT INTO {{domain_events}} ({facts}, aggregate_version) {numbers} SELECT {_FACTS}, 2 FROM numbers",
        f"INSERT INTO {{inbox}} ({inbox}) {numbers} SELECT 'titles', {_ID}, 'Genesis.Session.Started', '{TOPIC}',"
        f" 'session/s-' || n, 2, 1, {_NOW} FROM numbers",
    ):
        await change(road, statement)


async def most_held(road: Postroad, events: int) -> int:
    tracemalloc.start()
    try:
        report = await road.check(grace=0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    expected = {"unseen", "version_gap", "behind_projection", "late_outbox"}
    if not road.outboxes[0].adopted:
        expected.add("unreadable")
    found = {one.kind: (one.count, len(one.ids)) for one in report.findings}
    assert found == dict.fromkeys(expected, (events, FIRST))
    return peak


@pytest.mark.spec("G8")
async def test_four_times_as_many_events_take_no_more_memory(road: Postroad) -> None:
    await fill(road, 1, FEW)
    await most_held(road, FEW)  # what is loaded and kept once
    few = await most_held(road, FEW)
    await fill(road, FEW + 1, MANY)
    many = await most_held(road, MANY)
    assert many < 1.25 * few, f"{few:,} bytes for {FEW:,} events, {many:,} for {MANY:,}"
