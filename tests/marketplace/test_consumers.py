"""What a consumer does not believe: events of unknown type, of orders that do not exist, of orders in another state."""

import json
from typing import Any
from uuid import uuid4

import pika
import pytest

from examples.marketplace import texts
from examples.marketplace.events import TOPIC
from examples.marketplace.schema import event_consume_log, notifications, shipments, stock_reservations
from examples.marketplace.shop import Shop
from postroad.message import Message
from tests.support.marketplace import (
    BUYER,
    PLACES,
    REAL,
    SELLER,
    TRACE,
    eventually,
    paid_order,
    pending_order,
    rows,
    said,
    told,
)
from tests.support.rabbitmq import outsider

everywhere = pytest.mark.parametrize(("store_kind", "broker_kind"), PLACES)
on_rabbitmq = pytest.mark.parametrize(("store_kind", "broker_kind"), REAL)


def forged(shop: Shop, event_type: str, facts: dict[str, Any], **envelope: object) -> Message:
    """As another program might write it, with the agreed fields."""
    id, order_id = uuid4(), facts["orderId"]
    body = {
        "eventId": str(id),
        "eventType": event_type,
        "aggregateType": "Order",
        "aggregateId": order_id,
        "occurredAt": "2026-02-04T10:30:00Z",
        "traceId": TRACE,
        "payload": facts,
        **envelope,
    }
    return Message(
        id=id,
        type=event_type,
        topic=TOPIC,
        aggregate_type="Order",
        aggregate_id=str(order_id),
        version=1,
        occurred_at=shop.now(),
        payload=json.dumps(body).encode(),
    )


PAID = {"orderNo": "202602041030001234", "payTime": "2026-02-04T10:30:00Z", "amount": 88.50}


@everywhere
@pytest.mark.spec("R9", "R15")
async def test_an_event_of_an_order_that_does_not_exist_is_dead_at_once(
    shop: Shop, words: pytest.LogCaptureFixture
) -> None:
    async with shop.running(sweep=False):
        await shop.road.broker.send([forged(shop, "ORDER_PAID", {"orderId": 123, **PAID})])
        letter = (await eventually(lambda: shop.road.broker.dead_letters(TOPIC)))[0]
    assert f"{texts.NOT_CONSUMED}: There is no order 123." in letter.reason
    line = said(words, texts.NOT_CONSUMED)
    assert len(line) == 1  # one attempt, and it is in the log
    assert "queue=order.fulfillment.queue consumer=fulfillment-consumer" in line[0].getMessage()
    assert (await rows(shop, shipments), await rows(shop, event_consume_log)) == ([], [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"payload": {"orderId": 900_001}},
        {"aggregateId": 900_002},
        {"eventType": "ORDER_CREATED"},
        {"payload": {"orderId": 900_001, **PAID, "amount": "much"}},
        {"traceId": None},
    ],
    ids=["fields-missing", "other-aggregate", "other-type", "no-amount", "no-trace"],
)
@pytest.mark.spec("R9", "R6")
async def test_an_event_with_missing_or_contradictory_data_is_dead_at_once(shop: Shop, wrong: dict[str, Any]) -> None:
    for _ in range(2):
        await paid_order(shop)  # 900001 and 900002: only the data itself is wrong
    async with shop.running(sweep=False):
        message = forged(shop, "ORDER_PAID", {"orderId": 900_001, **PAID}, **wrong)
        await shop.road.broker.send([message])
        letter = (await eventually(lambda: shop.road.broker.dead_letters(TOPIC)))[0]
    assert letter.attributes["event_id"] == str(message.id)


@everywhere
@pytest.mark.spec("R11", "R9")
async def test_a_payment_that_never_was_ships_nothing(shop: Shop) -> None:
    unpaid = await pending_order(shop)
    paid = await paid_order(shop)
    lies = [
        forged(shop, "ORDER_PAID", {"orderId": unpaid["id"], **PAID}),
        forged(shop, "ORDER_PAID", {"orderId": paid["id"], **PAID, "amount": 0.01}),
    ]
    async with shop.running(sweep=False):
        await shop.road.broker.send(lies)
        await eventually(lambda: dead(shop, 2))
        await eventually(lambda: rows(shop, shipments))
    letters = await shop.road.broker.dead_letters(TOPIC)
    assert {letter.attributes["event_id"] for letter in letters} == {str(lie.id) for lie in lies}
    assert [row["order_id"] for row in await rows(shop, shipments)] == [paid["id"]]


async def dead(shop: Shop, count: int) -> bool:
    return len(await shop.road.broker.dead_letters(TOPIC)) == count


@everywhere
@pytest.mark.spec("R11")
async def test_a_status_the_order_never_had_is_told_to_nobody(shop: Shop) -> None:
    order = await paid_order(shop)
    claimed = {"oldStatus": "shipped", "newStatus": "completed", "changedAt": "2026-02-04T10:30:00Z"}
    lie = forged(shop, "ORDER_STATUS_CHANGED", {"orderId": order["id"], "orderNo": order["order_no"], **claimed})
    async with shop.running(sweep=False):
        await shop.road.broker.send([lie])
        await eventually(lambda: dead(shop, 1))
    assert await rows(shop, notifications) == []


@pytest.mark.spec("R11")
async def test_events_that_come_late_find_the_order_further_on(shop: Shop) -> None:
    """Cancelled before its creation was heard of; shipped before its payment was."""
    cancelled, shipped = await pending_order(shop), await paid_order(shop)
    await shop.transact(lambda s: shop.orders.cancel(s, BUYER, cancelled["id"]))
    await shop.transact(lambda s: shop.orders.ship(s, SELLER, shipped["id"], TRACE))
    await shop.road.bus.publish(await told(shop, "ORDER_CREATED", cancelled["id"]))
    await shop.road.bus.publish(await told(shop, "ORDER_PAID", shipped["id"]))
    assert (await rows(shop, stock_reservations), await rows(shop, shipments)) == ([], [])
    assert len(await rows(shop, event_consume_log)) == 2


@pytest.mark.spec("R9", "R15")
async def test_an_event_of_a_type_nobody_knows_is_dead_in_the_agreed_words(
    shop: Shop, words: pytest.LogCaptureFixture
) -> None:
    async with shop.running(sweep=False):
        await shop.road.broker.send([forged(shop, "ORDER_EXPLODED", {"orderId": 900_001})])
        await eventually(lambda: dead(shop, 4))  # every group gets it from the embedded broker
    assert said(words, texts.UNSUPPORTED_TYPE)


@on_rabbitmq
@pytest.mark.spec("R9", "R15")
async def test_an_unknown_type_in_a_queue_is_dead_and_the_queue_goes_on(
    shop: Shop, broker_address: str, words: pytest.LogCaptureFixture
) -> None:
    message = forged(shop, "ORDER_EXPLODED", {"orderId": 900_001})
    order = await pending_order(shop)
    with outsider(broker_address) as channel:
        properties = pika.BasicProperties(headers=message.attributes())
        channel.basic_publish("order.events.exchange", "order.created", message.payload, properties)
    async with shop.running(sweep=False):
        letter = (await eventually(lambda: shop.road.broker.dead_letters(TOPIC)))[0]
        await eventually(lambda: rows(shop, stock_reservations, order_id=order["id"]))
    assert letter.attributes["event_type"] == "ORDER_EXPLODED"
    line = said(words, texts.UNSUPPORTED_TYPE)[0].getMessage()
    assert f"eventId={message.id}" in line
    assert "queue=inventory.update.queue consumer=inventory-consumer" in line


@pytest.mark.spec("R9", "R15")
async def test_the_consume_log_still_knows_an_event_that_the_inbox_has_forgotten(
    shop: Shop, words: pytest.LogCaptureFixture
) -> None:
    order = await paid_order(shop)
    message = await told(shop, "ORDER_PAID", order["id"])
    await shop.road.bus.publish(message)
    async with shop.road.store.transaction() as connection:
        await connection.exec_driver_sql("DELETE FROM postroad_inbox")
    await shop.road.bus.publish(message)
    assert len(await rows(shop, shipments)) == 1
    assert len(said(words, texts.ALREADY_HANDLED)) == 1
