"""A read model built anew while events are written and people read, beside the same model kept by live events."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from uuid import uuid4

from bench import readmodel
from bench.common import Figure, OrderPlaced, Scale, Target, fresh_road, side_by_side
from bench.rabbitmq.relaying import run_until_sent
from bench.rabbitmq.wire import TOPIC
from bench.rows import fill
from postroad import Postroad
from postroad.brokers.base import Subscription, Topology
from postroad.projections import OutboxSource, Projection, Rebuild
from postroad.relay import Relay

PAUSE = 0.05
"""Seconds between two writes, and between two looks of the reader."""
_LONGER_THAN_A_LEASE = 90.0
# Neither falls, unless a reader is shown a table that is not complete.
_LOOK = "SELECT COUNT(*), COALESCE(SUM(version), 0) FROM order_search"
_WRONG = """
SELECT COUNT(*)
  FROM (SELECT aggregate_id, MAX(version) AS version FROM postroad_outbox GROUP BY aggregate_id) written
  FULL JOIN order_search found ON found.order_id = written.aggregate_id
 WHERE found.version IS DISTINCT FROM written.version"""


async def measure(scale: Scale, server: str) -> list[Figure]:
    return [await rebuild_beside_live(scale, server, "embedded:", "rebuild / live")]


async def rebuild_beside_live(scale: Scale, server: str, broker_url: str, name: str) -> Figure:
    events, keys = scale.of(200, 50_000, 200_000), scale.of(20, 5_000, 20_000)
    share = events // scale.rounds
    numbers = count(0, share)
    async with fresh_road(server, readmodel.TABLE, broker_url=broker_url) as road:
        projection = readmodel.declare(road)
        await road.broker.apply(Topology((TOPIC,), (Subscription(f"{TOPIC}.{readmodel.GROUP}", TOPIC),)))

        async def live() -> float:
            await fill(road, share, keys=keys, first=next(numbers))
            await run_until_sent(Relay(road.store, road.broker), share)
            return await readmodel.consumed(road, share)

        async def rebuilt() -> float:
            return await _rebuilt_under_load(road, projection)

        for _ in range(scale.rounds - 1):
            await live()
        rates = await side_by_side(scale.rounds, rebuilt, live)
    note = f"from an outbox of {events:,} events and more, while events are written and the table is read"
    return Figure(name, *rates, "events/s", Target(5), note)


async def _rebuilt_under_load(road: Postroad, projection: Projection) -> float:
    source = OutboxSource(road.store, road.outboxes, projection.aggregate)
    async with road.running(), _readers_and_writers(road):
        begun = time.perf_counter()
        result = await Rebuild(road, projection, source).run()
        rate = result.events / (time.perf_counter() - begun)
        # What has been written but not yet consumed may be missing in the old table, and nothing else may differ.
        found = result.differences
        assert (result.swapped, found.extra, found.ahead, found.differing) == (True, 0, 0, 0), found
    async with road.running():
        # What was on its way to a stream that has ended comes again when its lease is over.
        await road.drain(_LONGER_THAN_A_LEASE)
    async with road.store.reading() as connection:
        assert (await connection.exec_driver_sql(_WRONG)).scalar_one() == 0
    return rate


@asynccontextmanager
async def _readers_and_writers(road: Postroad) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_read(road, stop))
        tasks.create_task(_write(road, stop))
        try:
            yield
        finally:
            stop.set()


async def _write(road: Postroad, stop: asyncio.Event) -> None:
    while not stop.is_set():
        async with road.session() as session, session.begin():
            road.add(session, OrderPlaced(order_id=f"live-{uuid4().hex}", customer="customer-2", cents=100))
        await asyncio.sleep(PAUSE)


async def _read(road: Postroad, stop: asyncio.Event) -> None:
    rows = versions = 0
    while not stop.is_set():
        async with road.store.reading() as connection:
            before, (rows, versions) = (rows, versions), (await connection.exec_driver_sql(_LOOK)).one()
        assert rows >= before[0], f"{before[0]} rows, then {rows}"
        assert versions >= before[1], f"versions add up to {before[1]}, then to {versions}"
        await asyncio.sleep(PAUSE)
