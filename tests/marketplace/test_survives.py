"""The shop under every fault: a process dies at each commit and each publish, messages come twice, late, or to a worker
that stalls. What is to be seen in the end is always the same."""

from typing import Any

import pytest

from examples.marketplace import schema
from examples.marketplace.settings import Settings
from examples.marketplace.shop import Shop
from postroad import Postroad
from postroad.testing import rows
from tests.support.marketplace import BUYER, SELLER, TRACE, product

# Without the reservations: an order that is cancelled before the inventory hears of it needs none.
LOOK = {
    "orders": "SELECT id, status, cancel_reason FROM orders",
    "products": "SELECT id, status FROM products",
    "shipments": "SELECT order_id, status FROM shipments",
    "told": "SELECT user_id, order_id FROM notifications",
    "consumed": "SELECT event_id, event_type, consumer FROM event_consume_log",
    "credit": "SELECT buyer_id, timed_out, score FROM buyer_credit",
}
shops: dict[str, Shop] = {}


def build(database_url: str) -> Postroad:
    """A millionth of a second to pay: over when the message comes, however soon."""
    shop = Shop(Settings(database_url=database_url, pending_minutes=0.000_001 / 60))
    shops["open"] = shop
    return shop.road


async def prepare(road: Postroad) -> None:
    # Migrated before the shop could bring its own outbox table along: that one makes room for it.
    there = "SELECT type, name FROM sqlite_master WHERE name IN ('outbox_events', 'outbox_events_add')"
    found = await rows(road, there)
    async with road.store.migrating() as connection:
        for kind, name in found:
            await connection.exec_driver_sql(f"DROP {kind} {name}")
        await connection.exec_driver_sql("DELETE FROM postroad_migration WHERE target = 'outbox_events'")
        await connection.exec_driver_sql("DELETE FROM postroad_shard WHERE outbox = 'outbox_events'")
    await schema.prepare(road)
    for _ in range(2):
        await product(shops["open"])


async def one_is_paid_and_one_forgotten(road: Postroad) -> None:
    orders = shops["open"].orders
    async with road.session() as session, session.begin():
        paid = (await orders.place(session, BUYER, 1, TRACE))["id"]
    async with road.session() as session, session.begin():
        await orders.pay(session, BUYER, paid, TRACE)
    await road.drain()
    async with road.session() as session, session.begin():
        await orders.ship(session, SELLER, paid, TRACE)
    async with road.session() as session, session.begin():
        await orders.place(session, BUYER, 2, TRACE)


async def seen(road: Postroad) -> list[Any]:
    return [(name, *row) for name, sql in LOOK.items() for row in await rows(road, sql)]


@pytest.mark.spec("R9", "R10", "R11", "R16")
def test_the_shop_survives_every_fault(survives: Any) -> None:
    survives(build, one_is_paid_and_one_forgotten, setup=prepare, outcome=seen)
