"""A business transaction with an event, against the same transaction without it: eight connections.

The transaction places an order of three lines: for each it locks the product, takes one from stock and inserts the
line; before them it reads the customer and inserts the order. The less a transaction does, the more one row with its
indexes weighs, whoever writes it: smaller ones are shown too, the smallest beside a hand-written outbox insert.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
import psycopg
from sqlalchemy import text

from bench.common import Figure, OrderPlaced, Scale, Target, fresh_road, side_by_side
from postroad import Postroad
from postroad.stores.queries import parameters, restyle

CONNECTIONS = 8
PRODUCTS = 1_000
TABLES = (
    "CREATE TABLE product (id int PRIMARY KEY, stock int)",
    f"INSERT INTO product SELECT n, 1000000 FROM generate_series(0, {PRODUCTS - 1}) AS n",
    "CREATE TABLE customer (id text PRIMARY KEY, city text)",
    "INSERT INTO customer VALUES ('customer-1', 'Aachen')",
    "CREATE TABLE orders (id text PRIMARY KEY, customer text, cents int, at timestamptz DEFAULT now())",
    "CREATE TABLE order_line (order_id text, product_id int, quantity int, PRIMARY KEY (order_id, product_id))",
    "CREATE TABLE plain_outbox (id uuid PRIMARY KEY, topic text, type text, aggregate text, payload bytea,"
    " at timestamptz DEFAULT now(), sent boolean DEFAULT false)",
    "CREATE INDEX ON plain_outbox (at) WHERE NOT sent",
)
CUSTOMER = "SELECT city FROM customer WHERE id = :customer"
INSERT = "INSERT INTO orders (id, customer, cents) VALUES (:id, :customer, :cents)"
LINE = (
    "SELECT stock FROM product WHERE id = :product{n} FOR UPDATE",
    "UPDATE product SET stock = stock - 1 WHERE id = :product{n}",
    "INSERT INTO order_line VALUES (:id, :product{n}, 1)",
)
LINES = 3


def _place(lines: int) -> Sequence[str]:
    return (CUSTOMER, INSERT, *(part.format(n=n) for n in range(lines) for part in LINE))


BY_HAND = "INSERT INTO plain_outbox (id, topic, type, aggregate, payload) VALUES (:event, :topic, :type, :id, :payload)"


Kind = dict[str, bool]
Writer = Callable[[Kind, float], Awaitable[int]]
"""Transactions of this kind, one after the other on one connection until this moment; how many that was."""
Connecting = Callable[[Postroad], AbstractAsyncContextManager[Writer]]


async def measure(scale: Scale, server: str) -> list[Figure]:
    # Many short rounds: the machine's speed changes from second to second.
    seconds, rounds = scale.of(0.05, 0.5), scale.of(1, 15, 40)
    order, alone = partial(_psycopg, _place(LINES)), partial(_psycopg, (INSERT,))
    without, by_hand = {"with_event": False}, {"with_event": False, "by_hand": True}
    variants: tuple[tuple[str, Connecting, Kind, Target | None], ...] = (
        ("write, an order of three lines", order, without, Target(0.80)),
        ("write, an order of one line", partial(_psycopg, _place(1)), without, None),
        ("write, an order, in a pipeline", partial(order, pipeline=True), without, Target(0.80)),
        ("write, an order, asyncpg", _asyncpg, without, Target(0.80)),
        ("write, an order, SQLAlchemy session", _sqlalchemy, without, Target(0.80)),
        ("write, a single INSERT", alone, without, None),
        ("write, a single INSERT, against an outbox by hand", alone, by_hand, None),
    )
    figures = []
    for name, connecting, other, target in variants:
        async with fresh_road(server, *TABLES) as road, AsyncExitStack() as stack:
            writers = [await stack.enter_async_context(connecting(road)) for _ in range(CONNECTIONS)]
            ours, bare = partial(_rate, writers, {"with_event": True}, seconds), partial(_rate, writers, other, seconds)
            await side_by_side(1, ours, bare)  # so that no round pays for a first time
            figures.append(Figure(name, *await side_by_side(rounds, ours, bare), "tx/s", target))
    return figures


def _order() -> tuple[OrderPlaced, dict[str, Any]]:
    order = OrderPlaced(order_id=str(uuid4()), customer="customer-1", cents=4200)
    values = {"id": order.order_id, "customer": order.customer, "cents": order.cents}
    # In ascending order, or two orders could wait for each other.
    products = sorted(random.sample(range(PRODUCTS), LINES))
    return order, values | {f"product{n}": product for n, product in enumerate(products)}


@asynccontextmanager
async def _psycopg(statements: Sequence[str], road: Postroad, *, pipeline: bool = False) -> AsyncIterator[Writer]:
    """A plain connection in a thread; in a pipeline the statements of a transaction share a round trip."""
    texts = [restyle(statement, "pyformat") for statement in statements]
    hand_written = restyle(BY_HAND, "pyformat")

    def transact(with_event: bool, by_hand: bool = False) -> None:
        order, values = _order()
        with connection.pipeline() if pipeline else nullcontext():
            for statement in texts:
                connection.execute(statement, values)
            if with_event:
                road.add(connection, order)
            if by_hand:
                event = {"event": uuid4(), "topic": "bench.order.events", "type": "order.placed"}
                connection.execute(hand_written, values | event | {"payload": msgspec.json.encode(order)})
            connection.commit()

    def work(kind: Kind, until: float) -> int:
        done = 0
        while not done or time.monotonic() < until:
            transact(**kind)
            done += 1
        return done

    with psycopg.connect(road.database_url) as connection:
        yield partial(asyncio.to_thread, work)


@asynccontextmanager
async def _asyncpg(road: Postroad) -> AsyncIterator[Writer]:
    texts = [(restyle(statement, "numbered"), parameters(statement)) for statement in _place(LINES)]
    connection = await asyncpg.connect(road.database_url)

    async def transact(with_event: bool) -> None:
        order, values = _order()
        async with connection.transaction():
            for statement, names in texts:
                await connection.execute(statement, *(values[name] for name in names))
            if with_event:
                await road.add(connection, order)

    yield partial(_work, transact)
    await connection.close()


@asynccontextmanager
async def _sqlalchemy(road: Postroad) -> AsyncIterator[Writer]:
    texts = [text(statement) for statement in _place(LINES)]

    async def transact(with_event: bool) -> None:
        order, values = _order()
        async with road.session() as session, session.begin():
            for statement in texts:
                await session.execute(statement, values)
            if with_event:
                road.add(session, order)

    yield partial(_work, transact)


async def _work(transact: Callable[..., Awaitable[None]], kind: Kind, until: float) -> int:
    done = 0
    while not done or time.monotonic() < until:
        await transact(**kind)
        done += 1
    return done


async def _rate(writers: Sequence[Writer], kind: Kind, seconds: float) -> float:
    """All of them at once until the time is up; how many transactions that was in a second."""
    begun = time.monotonic()
    done = await asyncio.gather(*(write(kind, begun + seconds) for write in writers))
    return sum(done) / (time.monotonic() - begun)
