"""A business transaction with an event, against the same transaction without it: eight connections."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from uuid import uuid4

import asyncpg
import psycopg
from sqlalchemy import text

from bench.common import Figure, OrderPlaced, Scale, Target, fresh_road, side_by_side
from postroad import Postroad

CONNECTIONS = 8
TABLE = "CREATE TABLE orders (id text PRIMARY KEY, customer text, cents int, at timestamptz DEFAULT now())"
INSERT = "INSERT INTO orders (id, customer, cents) VALUES ({}, {}, {})"


async def measure(scale: Scale, server: str) -> list[Figure]:
    seconds = scale.of(0.05, 2.0, 5.0)
    variants: tuple[tuple[str, Callable[[Postroad, float, bool], Awaitable[float]], Target | None], ...] = (
        ("write, psycopg", _psycopg, Target(0.80)),
        ("write, psycopg pipeline", partial(_psycopg, pipeline=True), Target(0.80)),
        ("write, asyncpg", _asyncpg, None),
        ("write, SQLAlchemy session", _sqlalchemy, None),
    )
    figures = []
    for name, run, target in variants:
        async with fresh_road(server, TABLE) as road:
            await run(road, 0.0, True)  # once through everything, so that no round pays for a first time
            ours, bare = await side_by_side(
                scale.rounds, partial(run, road, seconds, True), partial(run, road, seconds, False)
            )
        figures.append(Figure(name, ours, bare, "tx/s", target))
    return figures


def _order() -> OrderPlaced:
    return OrderPlaced(order_id=str(uuid4()), customer="customer-1", cents=4200)


async def _psycopg(road: Postroad, seconds: float, with_event: bool, *, pipeline: bool = False) -> float:
    """Plain connections in threads; in a pipeline the statements of a transaction share a round trip."""
    insert = INSERT.format("%s", "%s", "%s")

    def transact(connection: psycopg.Connection) -> None:
        order = _order()
        with connection.pipeline() if pipeline else nullcontext():
            connection.execute(insert, (order.order_id, order.customer, order.cents))
            if with_event:
                road.add(connection, order)
            connection.commit()

    def work(connection: psycopg.Connection, deadline: float) -> int:
        done = 0
        while not done or time.monotonic() < deadline:
            transact(connection)
            done += 1
        return done

    with ExitStack() as stack:
        connections = [stack.enter_context(psycopg.connect(road.database_url)) for _ in range(CONNECTIONS)]
        writers = [partial(_in_thread, partial(work, connection)) for connection in connections]
        return await _rate(writers, seconds)


async def _in_thread(work: Callable[[float], int], deadline: float) -> int:
    return await asyncio.to_thread(work, deadline)


async def _asyncpg(road: Postroad, seconds: float, with_event: bool) -> float:
    insert = INSERT.format("$1", "$2", "$3")

    async def work(connection: asyncpg.Connection, deadline: float) -> int:
        done = 0
        while not done or time.monotonic() < deadline:
            order = _order()
            async with connection.transaction():
                await connection.execute(insert, order.order_id, order.customer, order.cents)
                if with_event:
                    await road.add(connection, order)
            done += 1
        await connection.close()
        return done

    connections = [await asyncpg.connect(road.database_url) for _ in range(CONNECTIONS)]
    return await _rate([partial(work, connection) for connection in connections], seconds)


async def _sqlalchemy(road: Postroad, seconds: float, with_event: bool) -> float:
    insert = text(INSERT.format(":id", ":customer", ":cents"))

    async def work(deadline: float) -> int:
        done = 0
        while not done or time.monotonic() < deadline:
            order = _order()
            async with road.session() as session, session.begin():
                values = {"id": order.order_id, "customer": order.customer, "cents": order.cents}
                await session.execute(insert, values)
                if with_event:
                    road.add(session, order)
            done += 1
        return done

    return await _rate([work] * CONNECTIONS, seconds)


async def _rate(writers: Sequence[Callable[[float], Awaitable[int]]], seconds: float) -> float:
    """All of them at once until the time is up; how many transactions that was in a second."""
    begun = time.monotonic()
    done = await asyncio.gather(*(write(begun + seconds) for write in writers))
    return sum(done) / (time.monotonic() - begun)
