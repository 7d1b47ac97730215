"""RabbitMQ → an effect in PostgreSQL, once for each message."""

import asyncio
import time
from typing import Any

import psycopg
from sqlalchemy.ext.asyncio import AsyncSession

from bench.common import Figure, OrderPlaced, Scale, Target, fresh_road, side_by_side
from bench.rabbitmq.wire import TOPIC, channel, messages, purge
from postroad.brokers.base import Subscription, Topology
from postroad.codec import json
from postroad.events import event_type_of
from tests.support.rabbitmq import with_options

PREFETCH = 200
GROUPS = ("each", "together", "bare")
TABLES = (
    "CREATE TABLE totals (order_id text PRIMARY KEY, cents bigint)",
    "CREATE TABLE seen (event_id text PRIMARY KEY)",
)
SEE = "INSERT INTO seen VALUES (%s)"
ADD = "INSERT INTO totals VALUES (%s, %s) ON CONFLICT (order_id) DO UPDATE SET cents = totals.cents + excluded.cents"


async def measure(scale: Scale, server: str, url: str) -> list[Figure]:
    events = scale.of(50, 3_000, 10_000)
    async with fresh_road(server, *TABLES, broker_url=with_options(url, prefetch=PREFETCH)) as road:
        done, handled = asyncio.Event(), 0

        async def add(event: OrderPlaced, session: AsyncSession) -> None:
            nonlocal handled
            await (await session.connection()).exec_driver_sql(ADD, (event.order_id, event.cents))
            handled += 1
            if handled == events:
                done.set()

        road.on(OrderPlaced, group="each")(add)
        road.on(OrderPlaced, group="together", commit_every=100)(add)
        await road.broker.apply(Topology((TOPIC,), tuple(Subscription(f"{TOPIC}.{group}", TOPIC) for group in GROUPS)))

        async def ours(group: str) -> float:
            nonlocal handled
            for name in GROUPS:
                purge(url, f"{TOPIC}.{name}")
            for batch in range(0, events, 1_000):
                await road.broker.send(messages(min(1_000, events - batch)))
            handled = 0
            done.clear()
            begun = time.perf_counter()
            async with road.running(relay=False, groups=[group]):
                await done.wait()
                return events / (time.perf_counter() - begun)

        async def bare() -> float:
            return await _by_hand(road.database_url, url, f"{TOPIC}.bare", events)

        each = await side_by_side(scale.rounds, lambda: ours("each"), bare)
        together = await side_by_side(scale.rounds, lambda: ours("together"), bare)
    note = f"1 KB, prefetch {PREFETCH}, against insert, upsert, commit, ack"
    return [
        Figure("RabbitMQ, consume", *each, "events/s", None, note),
        Figure("RabbitMQ, consume, commit_every=100", *together, "events/s", Target(0.8), note),
    ]


async def _by_hand(database_url: str, url: str, queue: str, events: int) -> float:
    """Consume, insert an inbox row, upsert, commit, ack."""
    done = asyncio.get_running_loop().create_future()
    kind, count = event_type_of(OrderPlaced), 0
    with psycopg.connect(database_url) as connection:
        async with channel(url) as opened:

            def on_message(_: Any, method: Any, properties: Any, body: bytes) -> None:
                nonlocal count
                event: Any = json.decode(body, kind)
                connection.execute(SEE, (properties.headers["event_id"],))
                connection.execute(ADD, (event.order_id, event.cents))
                connection.commit()
                opened.basic_ack(method.delivery_tag)
                count += 1
                if count == events:
                    done.set_result(None)

            opened.basic_qos(prefetch_count=PREFETCH)
            begun = time.perf_counter()
            opened.basic_consume(queue, on_message)
            await done
            return events / (time.perf_counter() - begun)
