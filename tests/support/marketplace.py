"""The marketplace's fixed data: one seller, one buyer, one price, a pending order, a paid one, an event told twice."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping, Table, func, select, text

from examples.marketplace import catalog
from examples.marketplace.schema import OUTBOX, outbox_events
from examples.marketplace.shop import Shop
from postroad.message import Message

SELLER, BUYER, OTHER_BUYER = 10_002, 10_001, 10_003
PRICE = Decimal("88.50")
TRACE = "trace-fixed"

PLACES = (("sqlite", "embedded"), ("mariadb", "embedded"), ("mariadb", "rabbitmq"))
"""A first try, a first try on a server, and what the shop is meant for."""
REAL = (("mariadb", "rabbitmq"),)


async def product(shop: Shop, price: Decimal = PRICE) -> int:
    row = await shop.transact(lambda s: catalog.offer(s, SELLER, "Bicycle, hardly used", price, shop.now()))
    return int(row["id"])


async def pending_order(shop: Shop) -> RowMapping:
    product_id = await product(shop)
    return await shop.transact(lambda s: shop.orders.place(s, BUYER, product_id, TRACE))


async def paid_order(shop: Shop) -> RowMapping:
    order = await pending_order(shop)
    return await shop.transact(lambda s: shop.orders.pay(s, BUYER, order["id"], TRACE))


async def told(shop: Shop, event_type: str, order_id: int) -> Message:
    """The event as it went out, to be sent once more."""
    row = (await outbox(shop, event_type=event_type, aggregate_id=order_id))[0]
    return Message(
        id=UUID(row["event_id"]),
        type=event_type,
        topic=row["topic"],
        aggregate_type=row["aggregate_type"],
        aggregate_id=str(order_id),
        version=row["version"],
        occurred_at=shop.now(),
        payload=row["payload"].encode(),
        correlation_id=row["correlation_id"],
    )


async def rows(shop: Shop, table: Table, **where: object) -> list[RowMapping]:
    async with shop.road.store.reading() as connection:
        wanted = select(table).where(*(table.c[name] == value for name, value in where.items()))
        return list((await connection.execute(wanted)).mappings())


async def outbox(shop: Shop, **where: object) -> list[dict[str, Any]]:
    """With the columns that adopting the table has added; times as text."""
    conditions = " AND ".join(f"{name} = :{name}" for name in where) or "1 = 1"
    async with shop.road.store.reading() as connection:
        found = await connection.execute(text(f"SELECT * FROM {OUTBOX.name} WHERE {conditions} ORDER BY id"), where)
        return [dict(row) for row in found.mappings()]


async def statuses(shop: Shop) -> dict[str, int]:
    async with shop.road.store.reading() as connection:
        counted = await connection.execute(
            select(outbox_events.c.status, func.count()).group_by(outbox_events.c.status)
        )
        return {str(status): int(count) for status, count in counted}


async def eventually(ask: Callable[[], Awaitable[Any]], patience: float = 60.0) -> Any:
    """The first answer that is not empty."""
    async with asyncio.timeout(patience):
        while not (answer := await ask()):  # noqa: ASYNC110  (a database cannot tell of a commit)
            await asyncio.sleep(0.02)
        return answer


def said(caplog: Any, words: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if words in record.getMessage()]
