"""A business transaction with an event, against the same transaction without it: eight connections."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from uuid import uuid4

import asyncpg
import psycopg
from sqlalchemy import text

from bench.common import Figure, OrderPlaced, Scale, Target, fresh_road, rate, side_by_side
from postroad import Postroad

CONNECTIONS = 8
TABLE = "CREATE TABLE orders (id text PRIMARY KEY, customer text, cents int, at timestamptz DEFAULT now())"
INSERT = "INSERT INTO orders (id, customer, cents) VALUES ({}, {}, {})"


async def measure(scale: Scale, server: str) -> list[Figure]:
    seconds = scale.of(0.05, 2.0, 5.0)
    figures = []
    for name, run, target in (
        ("write, psycopg", _psycopg, None),
        ("write, psycopg pipeline", partial(_psycopg, pipeline=True), Target(0.80)),
        ("write, asyncpg", _asyncpg, None),
        ("write, SQLAlchemy session", _sqlalchemy, None),
    ):
        async with fresh_road(server, TABLE) as road:
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

    def work(deadline: float) -> int:
        done = 0
        with psycopg.connect(road.database_url) as connection:
            while time.monotonic() < deadline:
                order = _order()
                with connection.pipeline() if pipeline else nullcontext():
                    connection.execute(insert, (order.order_id, order.customer, order.cents))
                    if with_event:
                        road.add(connection, order)
                    connection.commit()
                done += 1
        return done

    return await rate(work, CONNECTIONS, seconds)


async def _asyncpg(road: Postroad, seconds: float, with_event: bool) -> float:
    insert = INSERT.format("$1", "$2", "$3")

    async def work(deadline: float) -> int:
        done = 0
        connection = await asyncpg.connect(road.database_url)
        while time.monotonic() < deadline:
            order = _order()
            async with connection.transaction():
                await connection.execute(insert, order.order_id, order.customer, order.cents)
                if with_event:
                    await road.add(connection, order)
            done += 1
        await connection.close()
        return done

    return await _tasks(work, seconds)


async def _sqlalchemy(road: Postroad, seconds: float, with_event: bool) -> float:
    insert = text(INSERT.format(":id", ":customer", ":cents"))

    async def work(deadline: float) -> int:
        done = 0
        while time.monotonic() < deadline:
            order = _order()
            async with road.session() as session, session.begin():
                values = {"id": order.order_id, "customer": order.customer, "cents": order.cents}
                await session.execute(insert, values)
                if with_event:
                    road.add(session, order)
            done += 1
        return done

    return await _tasks(work, seconds)


async def _tasks(work, seconds: float) -> float:
    begun = time.monotonic()
    done = await asyncio.gather(*(work(begun + seconds) for _ in range(CONNECTIONS)))
    return sum(done) / (time.monotonic() - begun)
