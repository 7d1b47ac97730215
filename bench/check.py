"""The consistency check beside a bare scan of the same tables, and what memory it takes.

The bare scan reads, of each row of the three tables, what tells whether they fit together, and compares nothing: no
script that looks for the same faults could do with less. Beside it, for information, a count inside the database, where
no row is looked at by anybody.
"""

import time
import tracemalloc

import asyncpg

from bench.common import Figure, OrderPlaced, Scale, Target, fresh_road, side_by_side
from bench.rows import fill, settle_down
from postroad import Postroad

_EVENTS = """
INSERT INTO postroad_domain_events (event_id, event_type, aggregate_type, aggregate_id, aggregate_version, topic,
       schema_version, payload, content_type, correlation_id, attributes, occurred_at)
SELECT event_id, event_type, aggregate_type, aggregate_id, version, topic, schema_version, payload, content_type,
       correlation_id, attributes, occurred_at FROM postroad_outbox ORDER BY event_id ON CONFLICT DO NOTHING"""
_INBOX = """
INSERT INTO postroad_inbox (consumer_group, event_id, event_type, topic, ordering_key, version, status, processed_at)
SELECT 'receipts', event_id, event_type, topic, ordering_key, version, 1, clock_timestamp()
  FROM postroad_outbox ORDER BY event_id ON CONFLICT DO NOTHING"""
_HANDLER = (
    "INSERT INTO postroad_handler VALUES ('receipts', 'bench.order.placed', '2001-01-01', now()) ON CONFLICT DO NOTHING"
)
_TABLES = {
    "postroad_outbox": "event_id, event_type, aggregate_type, aggregate_id, version, state, published_at",
    "postroad_domain_events": "event_id, event_type, aggregate_type, aggregate_id, aggregate_version, occurred_at",
    "postroad_inbox": "event_id, consumer_group, topic, ordering_key, version, status, processed_at",
}
_AT_ONCE = 5_000
_FILLED_AT_ONCE = 1_000_000


async def measure(scale: Scale, server: str) -> list[Figure]:
    events, most = scale.of(500, 200_000, 1_000_000), scale.of(1_000, 200_000, 10_000_000)
    async with fresh_road(server) as road:
        road.on(OrderPlaced, group="receipts")(_nothing)
        keys = scale.of(10, 10_000)
        await _filled(road, 0, events, keys)
        scanned = await side_by_side(scale.rounds, lambda: _checked(road, events), lambda: _scanned(road, events))
        counted = await side_by_side(scale.rounds, lambda: _checked(road, events), lambda: _counted(road, events))
        await _filled(road, events, most, keys)
        memory = await _memory(road, most)
    note = f"{events:,} events in outbox, event store and inbox"
    little = Target(200, at_most=True, unit="MB")
    return [
        Figure("check", *scanned, "events/s", Target(0.5), f"{note}; bare: the rows of the three tables read once"),
        Figure("check / count", *counted, "events/s", None, "bare: these rows counted by the database"),
        Figure("check, memory", [memory], [], "MB", little, f"{most:,} events in each of them"),
    ]


async def _filled(road: Postroad, there: int, wanted: int, keys: int) -> None:
    for first in range(there, wanted, _FILLED_AT_ONCE):
        await fill(road, min(_FILLED_AT_ONCE, wanted - first), keys=keys, first=first, state="SENT")
    if there < wanted:
        async with road.store.transaction() as connection:
            for statement in (_EVENTS, _INBOX, _HANDLER):
                await connection.exec_driver_sql(statement)
        await settle_down(road, *_TABLES)


async def _nothing(event: OrderPlaced) -> None:
    return None


async def _checked(road: Postroad, events: int) -> float:
    begun = time.perf_counter()
    report = await road.check(grace=0)
    assert (report.events, report.consistent) == (events, True), report.findings
    return events / (time.perf_counter() - begun)


async def _scanned(road: Postroad, events: int) -> float:
    begun, read = time.perf_counter(), 0
    connection = await asyncpg.connect(road.database_url)
    async with connection.transaction():
        for table, columns in _TABLES.items():
            cursor = await connection.cursor(f"SELECT {columns} FROM {table}")
            while rows := await cursor.fetch(_AT_ONCE):
                read += len(rows)
    await connection.close()
    assert read == len(_TABLES) * events
    return events / (time.perf_counter() - begun)


async def _counted(road: Postroad, events: int) -> float:
    begun = time.perf_counter()
    async with road.store.reading() as connection:
        for table in _TABLES:
            await connection.exec_driver_sql(f"SELECT COUNT(t.*), MAX(event_type) FROM {table} t")
    return events / (time.perf_counter() - begun)


async def _memory(road: Postroad, events: int) -> float:
    """The most that one check holds at a time in this process."""
    tracemalloc.start()
    try:
        report = await road.check(grace=0)
        assert (report.events, report.consistent) == (events, True), report.findings
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
