"""The acceptance list, line by line, on the fixed data. The numbers are those of the list."""

import json
from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from examples.marketplace import texts
from examples.marketplace.api import create_app
from examples.marketplace.events import TOPIC
from examples.marketplace.monitor import overview
from examples.marketplace.orders import ProductStatus
from examples.marketplace.schema import (
    event_consume_log,
    notifications,
    order_status_view,
    orders,
    products,
    shipments,
    stock_reservations,
)
from examples.marketplace.shop import Shop
from postroad.relay import Relay
from postroad.testing import FaultyBroker
from tests.marketplace.conftest import OpenShop
from tests.support.marketplace import (
    BUYER,
    PLACES,
    REAL,
    SELLER,
    TRACE,
    eventually,
    outbox,
    paid_order,
    pending_order,
    product,
    rows,
    said,
    statuses,
    told,
)
from tests.support.rabbitmq import api, outsider

everywhere = pytest.mark.parametrize(("store_kind", "broker_kind"), PLACES)
on_rabbitmq = pytest.mark.parametrize(("store_kind", "broker_kind"), REAL)
ONE_SECOND = 1 / 60


def client_of(shop: Shop) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(create_app(shop)), base_url="http://shop")


# -- 16.1 RabbitMQ ---------------------------------------------------------------------------------------------


@on_rabbitmq
@pytest.mark.spec("R16", "R4")
async def test_16_1_1_rabbitmq_answers_and_exchange_and_queues_can_be_created(shop: Shop, broker_address: str) -> None:
    assert api(broker_address, "/api/overview")["rabbitmq_version"]
    there = {queue["name"] for queue in api(broker_address, "/api/queues/{vhost}")}
    assert there == {
        "order.timeout.queue",
        "order.timeout.delay.queue",
        "inventory.update.queue",
        "order.fulfillment.queue",
        "order.status.sync.queue",
        "order.dlq.queue",
    }
    assert api(broker_address, "/api/exchanges/{vhost}/order.events.exchange")["type"] == "topic"
    assert await shop.road.broker.apply(shop.topology) == []


@everywhere
@pytest.mark.spec("R16", "R5", "R8")
async def test_16_1_2_an_order_is_written_to_the_outbox_and_order_created_is_sent(
    shop: Shop, broker_kind: str, broker_address: str
) -> None:
    order = await pending_order(shop)
    created = (await outbox(shop, event_type="ORDER_CREATED"))[0]
    assert (created["status"], created["aggregate_id"], created["retry_count"]) == ("NEW", order["id"], 0)
    async with shop.running(consumers=False, sweep=False):
        await eventually(lambda: all_sent(shop, 2))
    if broker_kind == "rabbitmq":
        with outsider(broker_address) as channel:
            method, properties, body = channel.basic_get("inventory.update.queue", auto_ack=True)
        assert (method.exchange, method.routing_key) == ("order.events.exchange", "order.created")
        assert properties.delivery_mode == 2
        assert body.decode() == created["payload"]
    else:
        depth = await shop.road.broker.depth(f"{TOPIC}.inventory")
        assert depth.messages - depth.delayed == 1


async def all_sent(shop: Shop, count: int) -> bool:
    return await statuses(shop) == {"SENT": count}


@everywhere
@pytest.mark.spec("R16", "R11")
async def test_16_1_3_the_inventory_consumer_handles_it(shop: Shop, words: pytest.LogCaptureFixture) -> None:
    order = await pending_order(shop)
    async with shop.running(sweep=False):
        reserved = (await eventually(lambda: rows(shop, stock_reservations)))[0]
        assert (reserved["order_id"], reserved["product_id"], reserved["quantity"]) == (
            order["id"],
            order["product_id"],
            1,
        )
        logged = (await rows(shop, event_consume_log))[0]
        assert (logged["event_type"], logged["consumer"]) == ("ORDER_CREATED", "inventory-consumer")
        await eventually(lambda: consumed_line(words, logged["event_id"]))


async def consumed_line(words: pytest.LogCaptureFixture, event_id: str) -> bool:
    """eventId, traceId, queue and consumer stand in every line about an event."""
    wanted = f"eventId={event_id} traceId={TRACE} queue=inventory.update.queue consumer=inventory-consumer"
    return bool(said(words, wanted))


# -- 16.2 flows ------------------------------------------------------------------------------------------------


@everywhere
@pytest.mark.spec("R16", "R11")
async def test_16_2_1_a_payment_starts_the_shipment(shop: Shop) -> None:
    order = await paid_order(shop)
    async with shop.running(sweep=False):
        shipment = (await eventually(lambda: rows(shop, shipments)))[0]
    assert (shipment["order_id"], shipment["status"]) == (order["id"], "preparing")


@everywhere
@pytest.mark.spec("R16", "R11")
async def test_16_2_2_a_changed_status_is_synchronised_and_told(shop: Shop) -> None:
    order = await paid_order(shop)
    await shop.transact(lambda s: shop.orders.ship(s, SELLER, order["id"], TRACE))
    await shop.transact(lambda s: shop.orders.complete(s, BUYER, order["id"], TRACE))
    async with shop.running(sweep=False):
        await eventually(lambda: rows(shop, order_status_view, status="completed"))
        await eventually(lambda: two(shop))
    to = [(note["user_id"], note["content"].split(": ")[1]) for note in await rows(shop, notifications)]
    assert sorted(to) == [(BUYER, "paid → shipped"), (SELLER, "shipped → completed")]


async def two(shop: Shop) -> bool:
    return len(await rows(shop, notifications)) == 2


@everywhere
@pytest.mark.spec("R16", "R10")
async def test_16_2_3_the_timeout_message_cancels_the_order(open_shop: OpenShop) -> None:
    """Without the sweep: only the message can have done it."""
    shop = await open_shop(pending_minutes=ONE_SECOND)
    order = await pending_order(shop)
    async with shop.running(sweep=False):
        closed = (await eventually(lambda: rows(shop, orders, status="cancelled")))[0]
    assert (closed["id"], closed["cancel_reason"]) == (order["id"], "timeout")
    assert closed["cancel_time"] - closed["create_time"] >= shop.settings.payment_time
    assert (await rows(shop, products))[0]["status"] == ProductStatus.ON_SALE


# -- 16.3 transactions -----------------------------------------------------------------------------------------


class Mishap(Exception):
    pass


@everywhere
@pytest.mark.spec("R16", "R2")
async def test_16_3_1_a_transaction_that_fails_sends_nothing(shop: Shop) -> None:
    product_id = await product(shop)

    async def fails_at_last(session: Any) -> None:
        await shop.orders.place(session, BUYER, product_id, TRACE)
        await session.flush()
        raise Mishap

    with pytest.raises(Mishap):
        await shop.transact(fails_at_last)
    assert (await outbox(shop), await rows(shop, orders)) == ([], [])
    assert (await rows(shop, products))[0]["status"] == ProductStatus.ON_SALE
    relay = Relay(shop.road.store, shop.road.broker, shop.road.outboxes[0])
    assert await relay.run_once() == 0


@everywhere
@pytest.mark.spec("R16", "R2", "R5")
async def test_16_3_2_a_transaction_that_succeeds_has_its_outbox_row(shop: Shop) -> None:
    order = await pending_order(shop)
    id = order["id"]
    assert await events_of(shop, id) == ["ORDER_CREATED", "ORDER_TIMEOUT"]
    await shop.transact(lambda s: shop.orders.pay(s, BUYER, id, TRACE))
    assert (await events_of(shop, id))[2:] == ["ORDER_PAID"]
    await shop.transact(lambda s: shop.orders.ship(s, SELLER, id, TRACE))
    await shop.transact(lambda s: shop.orders.complete(s, BUYER, id, TRACE))
    assert (await events_of(shop, id))[3:] == ["ORDER_STATUS_CHANGED"] * 2
    assert await statuses(shop) == {"NEW": 5}


async def events_of(shop: Shop, order_id: int) -> list[str]:
    return [row["event_type"] for row in await outbox(shop, aggregate_id=order_id)]


@everywhere
@pytest.mark.spec("R16", "R2", "R7", "R8", "R15")
async def test_16_3_3_what_cannot_be_sent_is_tried_again_and_fails_at_last(
    shop: Shop, broker_kind: str, broker_address: str, words: pytest.LogCaptureFixture
) -> None:
    """On RabbitMQ because no queue takes it: the binding is gone, and only mandatory publishing can notice."""
    await pending_order(shop)
    if broker_kind == "rabbitmq":
        with outsider(broker_address) as channel:
            channel.queue_unbind("inventory.update.queue", "order.events.exchange", "order.created")
    else:
        refuse = lambda message: "no" if message.type == "ORDER_CREATED" else None  # noqa: E731
        shop.road.__dict__["broker"] = FaultyBroker(shop.road.broker, refuse=refuse)
    relay = shop.road._relay(shop.road.outboxes[0])
    for attempt, wait in enumerate((5, 30, 120, None), 1):
        before = shop.now()
        await relay.run_once()
        row = (await outbox(shop, event_type="ORDER_CREATED"))[0]
        assert row["retry_count"] == attempt
        if wait is not None:
            assert row["status"] == "RETRY"
            due = shop.road.store.time_out(row["next_retry_time"])
            # To the second: that is what the column holds.
            assert before + timedelta(seconds=wait - 1) <= due <= shop.now() + timedelta(seconds=wait + 1)
            assert await relay.run_once() == 0  # not before its time
            await make_due(shop)
    assert row["status"] == "FAILED"
    assert row["last_error"]
    assert len(said(words, texts.NOT_SENT)) == 4
    assert (await statuses(shop)) == {"FAILED": 1, "SENT": 1}
    assert any("FAILED" in alert for alert in (await overview(shop)).alerts)
    await relay.leases.release()


async def make_due(shop: Shop) -> None:
    async with shop.road.store.transaction() as connection:
        await connection.execute(text("UPDATE outbox_events SET next_retry_time = '2020-01-01 00:00:00'"))


# -- 16.4 reliability ------------------------------------------------------------------------------------------


@everywhere
@pytest.mark.spec("R16", "R9", "R15")
async def test_16_4_1_a_repeated_message_is_not_handled_again(shop: Shop, words: pytest.LogCaptureFixture) -> None:
    order = await paid_order(shop)
    async with shop.running(sweep=False):
        await eventually(lambda: rows(shop, shipments))
        again = await told(shop, "ORDER_PAID", order["id"])
        await shop.road.broker.send([again, again])
        await eventually(lambda: ignored(words, str(again.id), 2))
    assert len(await rows(shop, shipments)) == 1
    assert len(await rows(shop, event_consume_log, event_id=str(again.id))) == 1
    assert await shop.road.broker.dead_letters(TOPIC) == []


async def ignored(words: pytest.LogCaptureFixture, event_id: str, times: int) -> bool:
    return len([r for r in said(words, texts.ALREADY_HANDLED) if f"eventId={event_id}" in r.getMessage()]) == times


@everywhere
@pytest.mark.spec("R16", "R9", "R15")
async def test_16_4_2_a_message_that_keeps_failing_becomes_a_dead_letter(
    shop: Shop, words: pytest.LogCaptureFixture, broker_kind: str, broker_address: str
) -> None:
    shop.consumers.broken.add("fulfillment")
    order = await paid_order(shop)
    async with shop.running(sweep=False):
        letter = (await eventually(lambda: shop.road.broker.dead_letters(TOPIC)))[0]
        # The other consumers go on.
        await eventually(lambda: rows(shop, stock_reservations))
    assert "broken on purpose" in letter.reason
    message = json.loads(letter.data)
    assert (message["eventType"], message["aggregateId"]) == ("ORDER_PAID", order["id"])
    assert len(said(words, texts.NOT_CONSUMED)) == 3
    assert await rows(shop, shipments) == []
    assert await rows(shop, event_consume_log, event_type="ORDER_PAID") == []
    if broker_kind == "rabbitmq":
        with outsider(broker_address) as channel:
            assert channel.queue_declare("order.dlq.queue", passive=True).method.message_count == 1


@everywhere
@pytest.mark.spec("R16", "R12", "P14")
async def test_16_4_3_a_dead_letter_raises_an_alert_and_can_be_replayed_by_hand(shop: Shop) -> None:
    shop.consumers.broken.add("fulfillment")
    order = await paid_order(shop)
    async with shop.running(sweep=False), client_of(shop) as client:
        await eventually(lambda: shop.road.broker.dead_letters(TOPIC))
        assert (await client.get("/monitor")).json()["alerts"] == ["order.dlq.queue: 1 dead letters"]
        letter = (await client.get("/dead-letters")).json()[0]
        assert letter["consumer"] == "fulfillment-consumer"
        assert letter["message"]["aggregateId"] == order["id"]

        shop.consumers.broken.clear()
        replayed = await client.post(f"/dead-letters/{letter['id']}/replay")
        assert replayed.json() == {"replayed": 1}
        await eventually(lambda: rows(shop, shipments, order_id=order["id"]))
        assert (await client.get("/monitor")).json()["alerts"] == []
        assert (await client.post(f"/dead-letters/{letter['id']}/replay")).status_code == 404
