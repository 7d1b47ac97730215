"""From the commit to the start of the handler, against the least that a hand-written listener could do.

Both run at the same time and get an event in turn: whatever slows the machine for a moment slows both. Measured twice:
with everything in the writer's process, and with those who receive in one of their own.
"""

import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import psycopg
from sqlalchemy import text

from bench.common import ROOT, Figure, OrderPlaced, Scale, Target, fresh_road
from postroad import Message, Postroad
from postroad.brokers import connect_broker
from postroad.brokers.base import Broker, Flow, Subscription, Topology
from postroad.clock import SystemClock

PER_SECOND = 50
TABLES = (
    "CREATE TABLE orders (id text PRIMARY KEY)",
    "CREATE TABLE letters (n bigserial PRIMARY KEY, id text, sent boolean DEFAULT false)",
    "CREATE INDEX ON letters (n) WHERE NOT sent",
)
ORDER = text("INSERT INTO orders VALUES (:id)")
Moments = dict[str, float]
"""Order id → the machine's monotonic clock, which is the same in every process."""


async def measure(scale: Scale, server: str) -> list[Figure]:
    events = scale.of(5, 250, 1_000)
    found = []
    for where, serve in (("one process", _serving), ("two processes", _serving_elsewhere)):
        rounds = []
        with TemporaryDirectory() as directory:
            for number in range(scale.rounds):
                broker = f"embedded:{Path(directory) / str(number)}.db"
                async with fresh_road(server, *TABLES, broker_url=broker) as road:
                    rounds.append(await delays(road, serve, events))
        found += figures(f"latency, {where}", rounds, "embedded broker in a file")
    return found


def figures(name: str, rounds: list[list[list[float]]], broker: str) -> list[Figure]:
    medians, bare_medians = ([statistics.median(delays) for delays in side] for side in zip(*rounds, strict=True))
    highest = [statistics.quantiles(ours, n=100, method="inclusive")[98] for ours, _ in rounds]
    note = f"{PER_SECOND} events/s each, in turn, {broker}"
    return [
        Figure(name, medians, bare_medians, "ms", Target(2, at_most=True), note),
        Figure(f"{name}, p99", highest, medians, "ms", Target(5, at_most=True), "against its median"),
    ]


async def delays(
    road: Postroad, serve: Callable[[Postroad], AbstractAsyncContextManager[Moments]], events: int
) -> list[list[float]]:
    """Milliseconds for each event, ours and the bare loop's, after a few that only warm things up."""
    committed: tuple[Moments, Moments] = ({}, {})
    async with serve(road) as begun:
        for _ in range(events + 10):
            for write, moments in zip((_write, _post), committed, strict=True):
                id = str(uuid4())
                moments[id] = await write(road, id)
                await asyncio.sleep(random.uniform(0.5, 1.5) / PER_SECOND)
        await asyncio.sleep(0.2)
    return [[(begun[id] - moments[id]) * 1000 for id in list(moments)[10:]] for moments in committed]


async def _write(road: Postroad, id: str) -> float:
    async with road.session() as session:
        await session.execute(ORDER, {"id": id})
        road.add(session, OrderPlaced(order_id=id, customer="customer-1", cents=4200))
        await session.commit()
        return time.monotonic()


async def _post(road: Postroad, id: str) -> float:
    async with road.session() as session:
        await session.execute(ORDER, {"id": id})
        await session.execute(text("INSERT INTO letters (id) VALUES (:id)"), {"id": id})
        await session.execute(text("NOTIFY letters"))
        await session.commit()
        return time.monotonic()


# -- the receiving side --------------------------------------------------------------------------------


@asynccontextmanager
async def _serving(road: Postroad) -> AsyncIterator[Moments]:
    begun: Moments = {}

    @road.on(OrderPlaced, group="clock")
    async def look_at_the_clock(event: OrderPlaced) -> None:
        begun[event.order_id] = time.monotonic()

    # A file of its own, so that neither is woken by the other's messages.
    broker = connect_broker(f"{road.broker_url}.bare", clock=SystemClock())
    listening = asyncio.create_task(_listen(road.database_url, broker, begun))
    try:
        async with road.running():
            yield begun
    finally:
        listening.cancel()
        await asyncio.wait({listening})
        await broker.aclose()


async def _listen(database_url: str, broker: Broker, begun: Moments) -> None:
    """NOTIFY → fetch → hand over through such a broker → receive → call → mark; no order, no lease, no inbox."""
    topology = Topology(("bench.letter.events",), (Subscription("bench.letter.events.bare", "bench.letter.events"),))
    await broker.apply(topology)
    receiver = await broker.subscribe("bench.letter.events.bare", Flow())

    async def call() -> None:
        while True:
            for delivery in await receiver.receive():
                begun[delivery.attributes["aggregate_id"]] = time.monotonic()
                await delivery.ack()

    calling = asyncio.create_task(call())
    try:
        async with (
            await psycopg.AsyncConnection.connect(database_url, autocommit=True) as listener,
            await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection,
        ):
            await listener.execute("LISTEN letters")
            async for _ in listener.notifies():
                found = await connection.execute("SELECT n, id FROM letters WHERE NOT sent ORDER BY n LIMIT 1000")
                rows = await found.fetchall()
                await broker.send([_letter(id) for _, id in rows])
                numbers = [number for number, _ in rows]
                await connection.execute("UPDATE letters SET sent = true WHERE n = ANY(%s)", (numbers,))
    finally:
        calling.cancel()
        await asyncio.wait({calling})
        await receiver.aclose()


def _letter(id: str) -> Message:
    return Message(
        id=uuid4(),
        type="letter.written",
        topic="bench.letter.events",
        aggregate_type="letter",
        aggregate_id=id,
        version=1,
        occurred_at=datetime.now(UTC),
        payload=b"{}",
    )


@asynccontextmanager
async def _serving_elsewhere(road: Postroad) -> AsyncIterator[Moments]:
    """The same in a child, which says when it is ready and, at the end of its input, what it has seen."""
    begun: Moments = {}
    command = [sys.executable, "-m", "bench.latency", road.database_url, road.broker_url]
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe, limit=2**24)
    assert child.stdin is not None
    assert child.stdout is not None
    await child.stdout.readline()
    yield begun
    child.stdin.close()
    begun |= json.loads(await child.stdout.readline())
    await child.wait()


async def _serve_for_parent(database_url: str, broker_url: str) -> None:
    async with Postroad("bench", database_url, broker_url) as road, _serving(road) as begun:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        print(json.dumps(begun), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve_for_parent(*sys.argv[1:]))
