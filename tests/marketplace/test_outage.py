"""A minute without RabbitMQ while people go on buying: every order is kept, and what follows from it comes soon after.

The minute is a real one, so that all pauses between tries have become the longest there are.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from sqlalchemy import func, select, text

from examples.marketplace.events import TOPIC
from examples.marketplace.schema import event_consume_log, orders, shipments, stock_reservations
from examples.marketplace.shop import Shop
from proof.chaos.proxy import Proxy
from tests.marketplace.conftest import OpenShop
from tests.support.marketplace import REAL, eventually, outbox, paid_order, rows, statuses
from tests.support.rabbitmq import through

OUTAGE = 60.0
BETWEEN_ORDERS = 1.0
DRAINED_WITHIN = 2.0
"""Seconds from the moment RabbitMQ can be reached to the last effect of what was ordered without it."""
NOTICED_WITHIN = 1.0
"""The part of them that is no work."""


@pytest.fixture
async def proxy(broker_address: str) -> AsyncIterator[Proxy]:
    proxy = Proxy("127.0.0.1", urlsplit(broker_address).port or 0)
    await proxy.start()
    yield proxy
    await proxy.aclose()


@pytest.mark.parametrize(("store_kind", "broker_kind"), REAL)
@pytest.mark.spec("R2", "R7", "R8", "R9")
async def test_a_minute_without_the_broker_loses_no_order_costs_no_attempt_and_is_soon_made_up_for(
    open_shop: OpenShop, broker_address: str, proxy: Proxy
) -> None:
    shop = await open_shop(broker_url=through(broker_address, proxy.port))
    async with shop.running():
        # Some of what follows from these is on its way when it begins.
        placed = [await paid_order(shop) for _ in range(3)]
        proxy.leave()
        placed += await ordered_for(shop, OUTAGE)
        waiting = 2 * len(placed) - await effects(shop)
        proxy.come_back()
        drained, took = await seconds_until_all_is_sent_and_has_followed(shop, len(placed))
    assert waiting > 10
    assert proxy.turned_away > 2 * OUTAGE / NOTICED_WITHIN  # there are two connections to be made

    # What the machine is busy with is no fault of the shop's: so much work takes so long when nothing was away.
    placed += [await paid_order(shop) for _ in range(waiting // 2)]
    async with shop.running():
        calmly_drained, calm = await seconds_until_all_is_sent_and_has_followed(shop, len(placed))
    print(
        f"{waiting} effects waited for {OUTAGE:g} s: all was sent after {drained:.2f} s, "
        f"the last came after {took:.2f} s; without outage: {calmly_drained:.2f} s and {calm:.2f} s"
    )

    ids = {order["id"] for order in placed}
    assert {row["id"] for row in await rows(shop, orders, status="paid")} == ids
    assert {row["order_id"] for row in await rows(shop, stock_reservations)} == ids
    assert {row["order_id"] for row in await rows(shop, shipments)} == ids
    sent = await outbox(shop)
    assert len(sent) == 3 * len(placed)
    assert {(row["status"], row["retry_count"]) for row in sent} == {("SENT", 0)}
    assert await attempts_of_consumers(shop) == {0}
    assert await shop.road.broker.dead_letters(TOPIC) == []
    assert took < max(DRAINED_WITHIN, NOTICED_WITHIN + calm)


async def ordered_for(shop: Shop, seconds: float) -> list[Any]:
    placed, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        placed.append(await paid_order(shop))
        await asyncio.sleep(BETWEEN_ORDERS)
    return placed


async def seconds_until_all_is_sent_and_has_followed(shop: Shop, placed: int) -> tuple[float, float]:
    """Until the relay has nothing left, and until there are a reservation and a shipment of each."""
    begun = time.monotonic()

    async def all_is_sent() -> bool:
        return (await statuses(shop)).keys() == {"SENT"}

    async def all_has_followed() -> bool:
        return await effects(shop) == 2 * placed

    async def seconds_until(ask: Callable[[], Awaitable[bool]]) -> float:
        await eventually(ask)
        return time.monotonic() - begun

    return await asyncio.gather(seconds_until(all_is_sent), seconds_until(all_has_followed))


async def effects(shop: Shop) -> int:
    async with shop.road.store.reading() as connection:
        return int(await connection.scalar(select(func.count()).select_from(event_consume_log)) or 0)


async def attempts_of_consumers(shop: Shop) -> set[int]:
    async with shop.road.store.reading() as connection:
        return set((await connection.execute(text("SELECT retry_count FROM postroad_inbox"))).scalars())
