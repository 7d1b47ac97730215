"""A read model that the benchmarks keep: the latest state of each order."""

import asyncio
import time

from sqlalchemy import BigInteger, Column, MetaData, String, Table

from bench.common import OrderPlaced
from postroad import Postroad
from postroad.projections import Projection

GROUP = "order-search"
TABLE = (
    "CREATE TABLE order_search (order_id varchar(64) PRIMARY KEY, customer text, cents bigint, version bigint NOT NULL)"
)


def declare(road: Postroad) -> Projection:
    table = Table(
        "order_search",
        MetaData(),
        Column("order_id", String(64), primary_key=True),
        Column("customer", String),
        Column("cents", BigInteger),
        Column("version", BigInteger, nullable=False),
    )
    orders = road.projection("order_search", table, group=GROUP)

    @orders.on(OrderPlaced)
    def placed(event: OrderPlaced) -> dict[str, object]:
        return {"customer": event.customer, "cents": event.cents}

    return orders


async def consumed(road: Postroad, events: int) -> float:
    """Events per second until the broker's messages are all in the table."""
    runner = road.runner(relay=False, groups=[GROUP])
    (subscriber,) = runner.subscribers
    begun = time.perf_counter()
    async with runner.started():
        while subscriber.statistics.handled < events:  # noqa: ASYNC110 - it is counted at the commit, and tells nobody
            await asyncio.sleep(0.002)
        return events / (time.perf_counter() - begun)
