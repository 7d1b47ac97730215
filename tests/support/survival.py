"""A small shop under `survives`: orders go in, and a handler that the test brings makes something of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import text

from postroad import Postroad, event
from postroad.testing.survival import DidNotSurvive, Survival


@event("order.placed", topic="shop.order.events", aggregate="order", key="order_id")
class OrderPlaced(msgspec.Struct, frozen=True):
    order_id: str
    cents: int = 100


@event("order.paid", topic="shop.order.events", aggregate="order", key="order_id")
class OrderPaid(msgspec.Struct, frozen=True):
    order_id: str


Handlers = Callable[[Postroad], None]

RECEIPT = text("INSERT INTO receipts VALUES (:order_id)")


async def write_receipt(event: OrderPlaced, session: Any) -> None:
    """A handler as it should be."""
    await session.execute(RECEIPT, {"order_id": event.order_id})


async def create_tables(road: Postroad) -> None:
    async with road.session() as session, session.begin():
        await session.execute(text("CREATE TABLE receipts (order_id VARCHAR(40))"))
        await session.execute(text("CREATE TABLE total (cents INTEGER)"))
        await session.execute(text("INSERT INTO total VALUES (0)"))


async def place(road: Postroad, *orders: str) -> None:
    async with road.session() as session, session.begin():
        for order in orders:
            road.add(session, OrderPlaced(order))


async def two_orders(road: Postroad) -> None:
    await place(road, "o-1")
    await place(road, "o-2")


def receipts(road: Postroad) -> Any:
    return survival_rows(road, "SELECT order_id FROM receipts")


def survival_rows(road: Postroad, sql: str) -> Any:
    from postroad.testing import rows

    return rows(road, sql)


class Trial:
    """`survives` without pytest around it."""

    def __init__(self, folder: Path, database_url: str | None = None) -> None:
        self.folder, self.database_url = folder, database_url

    def of(self, handlers: Handlers, scenario: Any = two_orders, **options: Any) -> Survival:
        def build(database_url: str) -> Postroad:
            road = Postroad("shop", database_url)
            handlers(road)
            return road

        options = {"outcome": receipts, "setup": create_tables, "database_url": self.database_url} | options
        return Survival(build, scenario, folder=self.folder, **options)

    def story(self, handlers: Handlers, scenario: Any = two_orders, **options: Any) -> str:
        """What is told when it did not survive, on one line; empty if it did."""
        try:
            self.of(handlers, scenario, **options).run()
        except DidNotSurvive as story:
            return " ".join(str(story).split())
        return ""


def only_receipts(road: Postroad) -> None:
    road.on(OrderPlaced, group="receipts")(write_receipt)
