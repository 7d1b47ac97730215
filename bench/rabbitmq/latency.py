"""From the commit through RabbitMQ to the start of the handler, against a listener written by hand."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pika
import psycopg

from bench.common import Figure, OrderPlaced, Scale, fresh_road
from bench.latency import TABLES, Moments, delays, figures
from bench.rabbitmq.wire import channel, confirming
from postroad import Postroad

EXCHANGE = QUEUE = "bench.letters"


async def measure(scale: Scale, server: str, url: str) -> list[Figure]:
    rounds = []
    for _ in range(scale.rounds):
        async with fresh_road(server, *TABLES, broker_url=url) as road:
            rounds.append(await delays(road, _serving, scale.of(5, 250, 1_000)))
    return figures("RabbitMQ, latency", rounds, "RabbitMQ")


@asynccontextmanager
async def _serving(road: Postroad) -> AsyncIterator[Moments]:
    begun: Moments = {}

    @road.on(OrderPlaced, group="clock")
    async def look_at_the_clock(event: OrderPlaced) -> None:
        begun[event.order_id] = time.monotonic()

    async with channel(road.broker_url) as publishing, channel(road.broker_url) as consuming:
        await _prepare(consuming)

        def on_message(_: Any, method: Any, properties: Any, body: bytes) -> None:
            begun[body.decode()] = time.monotonic()
            consuming.basic_ack(method.delivery_tag)

        consuming.basic_consume(QUEUE, on_message)
        listening = asyncio.create_task(_listen(road.database_url, publishing))
        try:
            async with road.running():
                yield begun
        finally:
            listening.cancel()
            await asyncio.wait({listening})


async def _prepare(channel: Any) -> None:
    """One after the other, as RabbitMQ works them off."""
    done = asyncio.get_running_loop().create_future()
    channel.exchange_declare(EXCHANGE, "topic", durable=True)
    channel.queue_declare(QUEUE, durable=True)
    channel.queue_bind(QUEUE, EXCHANGE, "#", callback=done.set_result)
    await done


async def _listen(database_url: str, channel: Any) -> None:
    """NOTIFY → fetch → confirmed publish → mark; no order, no lease, no inbox."""
    published, confirmed = 0, asyncio.Event()

    def on_confirm(number: int, multiple: bool) -> None:
        if number == published:
            confirmed.set()

    await confirming(channel, on_confirm)
    persistent = pika.BasicProperties(delivery_mode=2)
    async with (
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as listener,
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection,
    ):
        await listener.execute("LISTEN letters")
        async for _ in listener.notifies():
            found = await connection.execute("SELECT n, id FROM letters WHERE NOT sent ORDER BY n LIMIT 1000")
            rows = await found.fetchall()
            if not rows:
                continue
            confirmed.clear()
            for _, id in rows:
                channel.basic_publish(EXCHANGE, "letter.written", id.encode(), persistent)
                published += 1
            await confirmed.wait()
            numbers = [number for number, _ in rows]
            await connection.execute("UPDATE letters SET sent = true WHERE n = ANY(%s)", (numbers,))
