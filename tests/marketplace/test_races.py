"""What happens at the same instant, on real servers.

MARKETPLACE_ROUNDS=1000 runs the race between payment and time-out a thousand times; without it, as often as fits into
a test run.
"""

import asyncio
import os
import random
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any

import httpx
import pytest

from examples.marketplace.api import create_app
from examples.marketplace.events import TOPIC
from examples.marketplace.orders import OrderStatus, ProductStatus
from examples.marketplace.refusals import WrongStatus
from examples.marketplace.schema import buyer_credit, event_consume_log, orders, products, shipments
from examples.marketplace.shop import Shop
from tests.marketplace.conftest import OpenShop
from tests.support.marketplace import (
    BUYER,
    PLACES,
    REAL,
    TRACE,
    eventually,
    outbox,
    paid_order,
    pending_order,
    product,
    rows,
    told,
)

DUELS = 1_000
ROUNDS = int(os.environ.get("MARKETPLACE_ROUNDS", "100"))
LATENESS = 0.04
"""Seconds after their time that payments come at most: the message needs some too."""
AT_ONCE = 0.0001 / 60
"""Minutes to pay that are over before anybody can."""

everywhere = pytest.mark.parametrize(("store_kind", "broker_kind"), PLACES)
on_mariadb = pytest.mark.parametrize(("store_kind", "broker_kind"), [("mariadb", "embedded")])
on_rabbitmq = pytest.mark.parametrize(("store_kind", "broker_kind"), REAL)


@everywhere
@pytest.mark.spec("R5")
async def test_of_two_hundred_buyers_at_once_one_gets_the_product(shop: Shop) -> None:
    product_id = await product(shop)
    app = create_app(shop)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop", timeout=60) as client:
        answers = await asyncio.gather(
            *(
                client.post("/orders", json={"productId": product_id}, headers={"X-User-Id": str(20_000 + n)})
                for n in range(200)
            )
        )
    assert Counter(answer.status_code for answer in answers) == {201: 1, 409: 199}
    winner = next(answer.json() for answer in answers if answer.status_code == 201)
    assert [row["id"] for row in await rows(shop, orders)] == [winner["id"]]
    assert [row["event_type"] for row in await outbox(shop)] == ["ORDER_CREATED", "ORDER_TIMEOUT"]
    assert (await rows(shop, products))[0]["status"] == ProductStatus.SOLD


@on_mariadb
@pytest.mark.spec("R10")
@pytest.mark.timeout(900)
async def test_a_paid_order_is_never_cancelled_and_a_cancelled_one_never_paid(open_shop: OpenShop) -> None:
    """Payment, time-out message and sweep at the same instant, again and again; each round has one winner."""
    shop = await open_shop(pending_minutes=AT_ONCE)
    chance = random.Random(16)
    won: Counter[str] = Counter()
    for _ in range(DUELS):
        order = await pending_order(shop)
        won[await duel(shop, order["id"], chance)] += 1
    assert set(won) == {"paid", "cancelled"}, f"only one side ever won: {won}"
    assert sum(won.values()) == DUELS
    credit = (await rows(shop, buyer_credit, buyer_id=BUYER))[0]
    assert credit["timed_out"] == won["cancelled"]
    assert len(await outbox(shop, event_type="ORDER_PAID")) == won["paid"]


async def duel(shop: Shop, order_id: int, chance: random.Random) -> str:
    start = asyncio.Event()

    async def pay() -> bool:
        await start.wait()
        await asyncio.sleep(chance.choice((0, 0, 0.001, 0.002)))
        try:
            await shop.transact(lambda s: shop.orders.pay(s, BUYER, order_id, TRACE))
        except WrongStatus:
            return False
        return True

    async def close() -> bool:
        await start.wait()
        await asyncio.sleep(chance.choice((0, 0, 0.001, 0.002)))
        return await shop.transact(lambda s: shop.orders.close_overdue(s, order_id))

    duellists = [asyncio.create_task(one) for one in (pay(), close(), close())]
    start.set()
    paid, closed, swept = await asyncio.gather(*duellists)
    order = (await rows(shop, orders, id=order_id))[0]
    stock = (await rows(shop, products, id=order["product_id"]))[0]["status"]
    assert paid + closed + swept == 1
    if paid:
        assert (order["status"], order["cancel_reason"], order["cancel_time"]) == (OrderStatus.PAID, None, None)
        assert stock == ProductStatus.SOLD
        return "paid"
    assert (order["status"], order["cancel_reason"], order["pay_time"]) == (OrderStatus.CANCELLED, "timeout", None)
    assert stock == ProductStatus.ON_SALE
    return "cancelled"


@on_rabbitmq
@pytest.mark.spec("R10")
@pytest.mark.timeout(900)
async def test_payments_that_meet_their_timeout_message_leave_each_order_with_one_end(open_shop: OpenShop) -> None:
    """The delayed messages come by way of RabbitMQ, and each order is paid in the moment its message is due."""
    shop = await open_shop(pending_minutes=1 / 60, sweep_interval=0.05)
    async with shop.running():
        placed, payments, chance = [], [], random.Random(17)
        for _ in range(ROUNDS):
            placed.append(await pending_order(shop))
            payments.append(asyncio.create_task(pay_at_the_last_moment(shop, placed[-1], chance.uniform(0, LATENESS))))
        paid = dict(await asyncio.gather(*payments))
        await eventually(lambda: none_pending(shop))
        await eventually(lambda: consumed(shop, "ORDER_TIMEOUT", len(placed)))
        await eventually(lambda: consumed(shop, "ORDER_PAID", sum(paid.values())))
    for order in await rows(shop, orders):
        expected = OrderStatus.PAID if paid[order["id"]] else OrderStatus.CANCELLED
        assert order["status"] == expected
        assert (order["pay_time"] is None) != (order["cancel_time"] is None)
    assert {row["order_id"] for row in await rows(shop, shipments)} == {id for id, won in paid.items() if won}
    assert await shop.road.broker.dead_letters(TOPIC) == []


async def pay_at_the_last_moment(shop: Shop, order: Any, lateness: float) -> tuple[int, bool]:
    due = order["create_time"] + shop.settings.payment_time - shop.now()
    await asyncio.sleep(max(0.0, due.total_seconds() + lateness))
    try:
        await shop.transact(lambda s: shop.orders.pay(s, BUYER, order["id"], TRACE))
    except WrongStatus:
        return order["id"], False
    return order["id"], True


async def none_pending(shop: Shop) -> bool:
    return not await rows(shop, orders, status="pending")


async def consumed(shop: Shop, event_type: str, count: int) -> bool:
    return len(await rows(shop, event_consume_log, event_type=event_type)) == count


@on_mariadb
@pytest.mark.spec("R10")
async def test_the_credit_of_a_buyer_whose_orders_end_at_the_same_time_counts_all_of_them(open_shop: OpenShop) -> None:
    shop = await open_shop(pending_minutes=AT_ONCE)
    placed = [await pending_order(shop) for _ in range(12)]
    closed = await asyncio.gather(
        *(shop.transact(partial(shop.orders.close_overdue, order_id=order["id"])) for order in placed)
    )
    assert closed == [True] * 12
    credit = (await rows(shop, buyer_credit))[0]
    assert (credit["timed_out"], credit["score"]) == (12, 0)


@everywhere
@pytest.mark.spec("R10")
async def test_sweep_and_message_both_fire_and_the_order_is_cancelled_once(open_shop: OpenShop) -> None:
    shop = await open_shop(pending_minutes=AT_ONCE)
    for n in range(1, 21):
        order = await pending_order(shop)
        message = await told(shop, "ORDER_TIMEOUT", order["id"])
        swept, _ = await asyncio.gather(shop.sweep.run_once(), shop.road.bus.publish(message))
        assert swept in (0, 1)
        assert (await rows(shop, buyer_credit))[0]["timed_out"] == n
        assert (await rows(shop, products, id=order["product_id"]))[0]["status"] == ProductStatus.ON_SALE
        assert len(await rows(shop, event_consume_log, event_id=str(message.id))) == 1
    assert await shop.sweep.run_once() == 0


@everywhere
@pytest.mark.spec("R10")
async def test_a_cancelled_products_new_buyer_is_not_disturbed_by_the_old_orders_timeout(open_shop: OpenShop) -> None:
    """The first order's message comes when the product already belongs to the second."""
    shop = await open_shop(pending_minutes=AT_ONCE)
    first = await pending_order(shop)
    await shop.transact(lambda s: shop.orders.cancel(s, BUYER, first["id"]))
    second = await shop.transact(lambda s: shop.orders.place(s, BUYER, first["product_id"], TRACE))
    await shop.transact(lambda s: shop.orders.pay(s, BUYER, second["id"], TRACE))
    await shop.road.bus.publish(await told(shop, "ORDER_TIMEOUT", first["id"]))
    assert await shop.sweep.run_once() == 0
    assert (await rows(shop, products))[0]["status"] == ProductStatus.SOLD
    assert [row["status"] for row in await rows(shop, orders)] == [OrderStatus.CANCELLED, OrderStatus.PAID]


@everywhere
@pytest.mark.spec("R10")
async def test_a_timeout_message_that_comes_early_or_to_a_paid_order_closes_nothing(shop: Shop) -> None:
    early, paid = await pending_order(shop), await paid_order(shop)
    for order in (early, paid):
        await shop.road.bus.publish(await told(shop, "ORDER_TIMEOUT", order["id"]))
    assert await shop.sweep.run_once() == 0
    assert [row["status"] for row in await rows(shop, orders)] == [OrderStatus.PENDING, OrderStatus.PAID]


@everywhere
@pytest.mark.spec("R10")
async def test_the_sweep_closes_what_no_message_closed_batch_by_batch(open_shop: OpenShop) -> None:
    shop = await open_shop(pending_minutes=15, sweep_batch=2)
    late = [await pending_order(shop) for _ in range(5)]
    in_time, settled = await pending_order(shop), await paid_order(shop)
    async with shop.road.store.transaction() as connection:
        ids = [order["id"] for order in (*late, settled)]
        long_ago = shop.now() - timedelta(minutes=15, seconds=1)
        await connection.execute(orders.update().where(orders.c.id.in_(ids)).values(create_time=long_ago))
    assert await shop.sweep.run_once() == 5
    assert await shop.sweep.run_once() == 0
    ends = {row["id"]: (row["status"], row["cancel_reason"]) for row in await rows(shop, orders)}
    assert [ends[order["id"]] for order in late] == [("cancelled", "timeout")] * 5
    assert (ends[in_time["id"]], ends[settled["id"]]) == (("pending", None), ("paid", None))
    assert (await rows(shop, buyer_credit))[0]["timed_out"] == 5


@everywhere
@pytest.mark.spec("R9")
async def test_the_same_event_delivered_at_the_same_time_has_one_effect(shop: Shop) -> None:
    order = await paid_order(shop)
    again = await told(shop, "ORDER_PAID", order["id"])
    async with shop.running(sweep=False):
        await shop.road.broker.send([again] * 20)
        await eventually(lambda: rows(shop, shipments))
        await eventually(lambda: nothing_waits(shop))
    assert len(await rows(shop, shipments)) == 1
    assert len(await rows(shop, event_consume_log, event_type="ORDER_PAID")) == 1
    assert await shop.road.broker.dead_letters(TOPIC) == []


async def nothing_waits(shop: Shop) -> bool:
    depth = await shop.road.broker.depth(f"{TOPIC}.fulfillment")
    return depth.messages == depth.delayed
