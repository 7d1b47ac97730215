"""What happens at the same instant, on real servers. A race that only one side ever wins is none: both must win."""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
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
SWEEPS = 12
AT_A_TIME = 10
AT_ONCE = 0.0001 / 60
"""Minutes to pay that are over before anybody can."""


class Aim:
    """At the instant at which it is open who wins, on any machine: after a victory a little later, else earlier."""

    def __init__(self) -> None:
        self.lateness = 0.02

    async def wait(self, shop: Shop, order: Any) -> None:
        due = order["create_time"] + shop.settings.payment_time - shop.now()
        await asyncio.sleep(max(0.0, due.total_seconds() + self.lateness))

    def shift(self, won: bool) -> None:
        self.lateness *= 1.05 if won else 0.95


everywhere = pytest.mark.parametrize(("store_kind", "broker_kind"), PLACES)
on_mariadb = pytest.mark.parametrize(("store_kind", "broker_kind"), [("mariadb", "embedded")])
on_rabbitmq = pytest.mark.parametrize(("store_kind", "broker_kind"), REAL)


@everywhere
@pytest.mark.spec("R5")
async def test_of_two_hundred_buyers_at_once_one_gets_the_product(open_shop: OpenShop) -> None:
    """In four shops with connections of their own: nothing but the database can keep the buyers apart."""
    shops = [await open_shop() for _ in range(4)]
    shop = shops[0]
    product_id = await product(shop)
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                httpx.AsyncClient(transport=httpx.ASGITransport(create_app(one)), base_url="http://shop", timeout=60)
            )
            for one in shops
        ]
        answers = await asyncio.gather(
            *(
                clients[n % len(clients)].post(
                    "/orders", json={"productId": product_id}, headers={"X-User-Id": str(20_000 + n)}
                )
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
    shop = await open_shop(pending_minutes=1 / 60)
    async with shop.running(sweep=False):
        placed, payments, aim = [], [], Aim()
        while len(placed) < DUELS:
            orders_now = await asyncio.gather(*(pending_order(shop) for _ in range(AT_A_TIME)))
            placed += orders_now
            payments += [asyncio.create_task(pay_at_the_last_moment(shop, order, aim)) for order in orders_now]
        paid = dict(await asyncio.gather(*payments))
        assert set(paid.values()) == {True, False}, "only one side ever won"
        await eventually(lambda: none_pending(shop))
        await eventually(lambda: consumed(shop, "ORDER_TIMEOUT", len(placed)))
        await eventually(lambda: consumed(shop, "ORDER_PAID", sum(paid.values())))
    for order in await rows(shop, orders):
        expected = OrderStatus.PAID if paid[order["id"]] else OrderStatus.CANCELLED
        assert order["status"] == expected
        assert (order["pay_time"] is None) != (order["cancel_time"] is None)
    assert {row["order_id"] for row in await rows(shop, shipments)} == {id for id, won in paid.items() if won}
    assert await shop.road.broker.dead_letters(TOPIC) == []


async def pay_at_the_last_moment(shop: Shop, order: Any, aim: Aim) -> tuple[int, bool]:
    await aim.wait(shop, order)
    try:
        await shop.transact(lambda s: shop.orders.pay(s, BUYER, order["id"], TRACE))
    except WrongStatus:
        won = False
    else:
        won = True
    aim.shift(won)
    return order["id"], won


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
    """Each message comes through the broker when its order's time is over, and the sweep looks at about that moment."""
    shop = await open_shop(pending_minutes=0.3 / 60)
    swept, aim = 0, Aim()
    async with shop.running(sweep=False):
        for turn in range(1, SWEEPS + 1):
            placed = await asyncio.gather(*(pending_order(shop) for _ in range(AT_A_TIME)))
            await aim.wait(shop, placed[AT_A_TIME // 2])
            closed = await shop.sweep.run_once()
            await eventually(partial(consumed, shop, "ORDER_TIMEOUT", turn * AT_A_TIME))
            closed += await shop.sweep.run_once()  # what was not due yet, neither for the message
            for n in range(AT_A_TIME):
                aim.shift(n < closed)
            swept += closed
    assert 0 < swept < SWEEPS * AT_A_TIME, "only one side ever won"
    ended = await rows(shop, orders)
    assert {(order["status"], order["cancel_reason"]) for order in ended} == {(OrderStatus.CANCELLED, "timeout")}
    assert {row["status"] for row in await rows(shop, products)} == {ProductStatus.ON_SALE}
    assert (await rows(shop, buyer_credit, buyer_id=BUYER))[0]["timed_out"] == len(ended) == SWEEPS * AT_A_TIME


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
