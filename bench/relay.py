"""From the outbox to a broker that does nothing, against a bare loop that reads and marks the same rows."""

import time
from pathlib import Path
from resource import getpagesize

import psycopg

from bench.common import Figure, Scale, Target, fresh_road, side_by_side
from bench.rows import carried, fill, refill, relay_to_nowhere, settle_down
from postroad import Postroad

BATCH = 1_000
# No leases, no parked keys, no order but the index's: the least that a relay could do.
READ = """
SELECT event_id, topic, event_type, aggregate_type, aggregate_id, version, schema_version, payload,
       content_type, tenant_id, correlation_id, causation_id, attributes, occurred_at, deliver_at,
       ordering_key, shard
  FROM postroad_outbox
 WHERE state NOT IN ('SENT', 'SKIPPED') AND (shard, ordering_key, version) > (%s, %s, %s)
 ORDER BY shard, ordering_key, version LIMIT %s"""
MARK = "UPDATE postroad_outbox SET state = 'SENT', published_at = clock_timestamp() WHERE event_id = ANY(%s)"


async def measure(scale: Scale, server: str) -> list[Figure]:
    return [await _against_bare_loop(scale, server), *await _with_history(scale, server)]


async def _against_bare_loop(scale: Scale, server: str) -> Figure:
    events, keys = scale.of(500, 30_000, 100_000), scale.of(100, 10_000)

    async def ours() -> float:
        await refill(road, events, keys=keys)
        return await carried(relay, events)

    async def bare() -> float:
        await refill(road, events, keys=keys)
        return await _bare_loop(road, events)

    async with fresh_road(server) as road:
        relay = relay_to_nowhere(road)
        figures = await side_by_side(scale.rounds, ours, bare)
    return Figure("relay", *figures, "events/s", Target(0.35), f"{keys:,} keys, batches of {BATCH:,}")


async def _bare_loop(road: Postroad, events: int) -> float:
    sent, begun = 0, time.perf_counter()
    async with await psycopg.AsyncConnection.connect(road.database_url) as connection:
        after: tuple[object, ...] = (-1, "", 0)
        while sent < events:
            rows = await (await connection.execute(READ, (*after, BATCH))).fetchall()
            await connection.execute(MARK, ([row[0] for row in rows],))
            await connection.commit()
            sent, after = sent + len(rows), (rows[-1][16], rows[-1][15], rows[-1][5])
    return sent / (time.perf_counter() - begun)


async def _with_history(scale: Scale, server: str) -> list[Figure]:
    """The same relay over a table that is full of what was sent before, and has a backlog."""
    sent, pending = scale.of(1_000, 1_000_000, 10_000_000), scale.of(10_000, 200_000, 1_000_000)
    little, keys = scale.of(500, 10_000), scale.of(100, 10_000)
    async with fresh_road(server) as large, fresh_road(server) as small:
        await fill(large, sent, keys=keys, state="SENT")
        await fill(large, pending, keys=keys, first=sent)
        await settle_down(large)
        relay_of_large, relay_of_small = relay_to_nowhere(large), relay_to_nowhere(small)

        async def with_history() -> float:
            # The first change of a page after a checkpoint costs much more than the next ones; refilling the small
            # table ends in a checkpoint for both.
            await carried(relay_of_large, little)
            return await carried(relay_of_large, little)

        async def without() -> float:
            await refill(small, little, keys=keys)
            return await carried(relay_of_small, little)

        await with_history()
        before = _resident()
        rates = await side_by_side(scale.rounds, with_history, without)
        await carried(relay_of_large, pending // 2)
        grown = (_resident() - before) / 1e6
    note = f"{sent:,} sent and {pending:,} pending rows against {little:,}"
    flat, carrying = Target(20, at_most=True, unit="MB"), f"while {pending // 2:,} events were carried"
    return [
        Figure("relay, with history", *rates, "events/s", Target(0.9), note),
        Figure("relay, memory growth", [grown], [], "MB", flat, carrying),
    ]


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()
