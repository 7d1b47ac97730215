"""PostgreSQL → RabbitMQ, persistent and confirmed."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench.common import Figure, Scale, Target, fresh_road, side_by_side
from bench.rabbitmq import peer
from bench.rabbitmq.wire import (
    IN_FLIGHT,
    KILOBYTE,
    TOPIC,
    letters,
    publish_with_aio_pika,
    publish_with_pika,
    purge,
)
from bench.rows import refill
from postroad.brokers.base import Subscription, Topology
from postroad.brokers.rabbitmq.address import parse
from postroad.relay import Relay

SINK = Subscription(f"{TOPIC}.sink", TOPIC)


async def measure(scale: Scale, server: str, url: str) -> list[Figure]:
    events, keys, few = scale.of(200, 20_000), scale.of(50, 10_000), scale.of(100, 4_000)
    prepared, queue = letters(events), parse(url).queue_type
    figures = []
    async with fresh_road(server, broker_url=url) as road:
        await road.broker.apply(Topology((TOPIC,), (SINK,)))
        relay = Relay(road.store, road.broker)

        async def ours() -> float:
            await refill(road, events, keys=keys, customer=KILOBYTE)
            return await run_until_sent(relay, events)

        async def of_peer() -> float:
            return await peer.relay(road.database_url, url, few, prepared[0].body.decode())

        against: tuple[tuple[str, Callable[[], Awaitable[float]], float], ...] = (
            (f"pika, {IN_FLIGHT:,} in flight", lambda: publish_with_pika(url, prepared), 0.8),
            ("aio-pika", lambda: publish_with_aio_pika(url, prepared[:few]), 2),
            ("faststream-outbox", of_peer, 3),
        )
        for name, bare, limit in against:
            rates = await side_by_side(scale.rounds, _then_purge(url, ours), _then_purge(url, bare))
            note = f"1 KB, {keys:,} keys, against {name}"
            figures.append(Figure(f"RabbitMQ, {queue}, relay / {name}", *rates, "events/s", Target(limit), note))
    return figures


async def run_until_sent(relay: Relay, events: int) -> float:
    """Events per second until all of them are carried, round over round as in a service."""
    before, stop, begun = relay.statistics.sent, asyncio.Event(), time.perf_counter()
    running = asyncio.create_task(relay.run(stop))
    while relay.statistics.sent - before < events:
        await asyncio.sleep(0.002)
        assert not running.done(), "the relay has stopped"
    seconds = time.perf_counter() - begun
    stop.set()
    await running
    return events / seconds


def _then_purge(url: str, work: Callable[[], Awaitable[float]]) -> Callable[[], Awaitable[float]]:
    async def clean() -> float:
        rate = await work()
        purge(url, SINK.name)
        return rate

    return clean
