"""What is frozen: the JSON message, the tables, the texts, the figures."""

import json
import re
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from sqlalchemy import text

from examples.marketplace import texts
from examples.marketplace.events import TOPIC, CreatedFacts, OrderCreated
from examples.marketplace.orders import order_no
from examples.marketplace.schema import OUTBOX
from examples.marketplace.settings import Settings, from_environment
from examples.marketplace.shop import PREFETCH, Shop
from postroad.codec import json as codec
from postroad.errors import ConfigurationError
from postroad.events import event_type_of
from postroad.retry import TABLE
from postroad.stores.adopt import plan_adoption
from tests.marketplace.conftest import OpenShop
from tests.support.components import ROOT
from tests.support.marketplace import BUYER, PRICE, SELLER, TRACE, outbox, paid_order

README = ROOT / "examples/marketplace/README.md"
ENVELOPE = ["eventId", "eventType", "aggregateType", "aggregateId", "occurredAt", "traceId", "payload"]
PAYLOADS = {
    "ORDER_CREATED": [
        "orderId", "orderNo", "buyerId", "sellerId", "productId", "quantity", "price", "totalAmount",
    ],
    "ORDER_PAID": ["orderId", "orderNo", "payTime", "amount"],
    "ORDER_STATUS_CHANGED": ["orderId", "orderNo", "oldStatus", "newStatus", "changedAt"],
    "ORDER_TIMEOUT": ["orderId", "orderNo", "createTime"],
}  # fmt: skip


@pytest.mark.spec("R6")
async def test_every_message_has_exactly_the_agreed_fields(shop: Shop) -> None:
    order = await paid_order(shop)
    await shop.transact(lambda s: shop.orders.ship(s, SELLER, order["id"], TRACE))
    await shop.transact(lambda s: shop.orders.complete(s, BUYER, order["id"], TRACE))
    found = await outbox(shop)
    assert [row["event_type"] for row in found] == [
        "ORDER_CREATED",
        "ORDER_TIMEOUT",
        "ORDER_PAID",
        "ORDER_STATUS_CHANGED",
        "ORDER_STATUS_CHANGED",
    ]
    for row in found:
        message = json.loads(row["payload"])
        assert list(message) == ENVELOPE
        assert list(message["payload"]) == PAYLOADS[row["event_type"]]
        assert message["eventId"] == row["event_id"]
        assert message["eventType"] == row["event_type"]
        assert message["aggregateType"] == row["aggregate_type"] == "Order"
        assert message["aggregateId"] == message["payload"]["orderId"] == row["aggregate_id"] == order["id"]
        assert message["payload"]["orderNo"] == order["order_no"]
        assert message["traceId"] == TRACE
    assert len({row["event_id"] for row in found}) == 5
    assert json.loads(found[3]["payload"])["payload"]["oldStatus"] == "paid"
    assert json.loads(found[4]["payload"])["payload"]["newStatus"] == "completed"


@pytest.mark.spec("R6")
def test_the_message_is_the_agreed_one() -> None:
    moment = datetime(2026, 2, 4, 10, 30, tzinfo=UTC)
    facts = CreatedFacts(
        order_id=900_001,
        order_no="202602041030001234",
        buyer_id=10_001,
        seller_id=10_002,
        product_id=7,
        quantity=1,
        price=PRICE,
        total_amount=PRICE,
    )
    created = OrderCreated.of(facts, trace_id="trace-xxx", at=moment)
    encoded = codec.encode(created, event_type_of(OrderCreated)).decode()
    assert encoded == re.sub(r"\s", "", README.read_text(encoding="utf-8").split("```json\n")[1].split("```")[0])
    assert json.loads(encoded) == {
        "eventId": str(created.event_id),
        "eventType": "ORDER_CREATED",
        "aggregateType": "Order",
        "aggregateId": 900001,
        "occurredAt": "2026-02-04T10:30:00Z",
        "traceId": "trace-xxx",
        "payload": {
            "orderId": 900001,
            "orderNo": "202602041030001234",
            "buyerId": 10001,
            "sellerId": 10002,
            "productId": 7,
            "quantity": 1,
            "price": 88.50,
            "totalAmount": 88.50,
        },
    }


@pytest.mark.spec("R6")
@pytest.mark.parametrize("amount", ["0.01", "0.10", "88.50", "1234567.89", "99999999.99"])
def test_amounts_are_numbers_on_the_wire_and_exact_on_both_sides(amount: str) -> None:
    kind = event_type_of(OrderCreated)
    price = Decimal(amount)
    facts = {"order_id": 1, "order_no": "1", "buyer_id": 2, "seller_id": 3, "product_id": 4, "quantity": 1}
    payload = CreatedFacts(**facts, price=price, total_amount=price)
    created = OrderCreated.of(payload, trace_id="t", at=datetime(2026, 2, 4, tzinfo=UTC))
    read = codec.decode(codec.encode(created, kind), kind)
    assert isinstance(read, OrderCreated)
    assert read.payload.price == price


@pytest.mark.spec("R6")
def test_an_event_of_two_orders_cannot_be_made() -> None:
    facts = {"orderId": 1, "orderNo": "1", "buyerId": 2, "sellerId": 3, "productId": 4, "quantity": 1}
    payload = CreatedFacts(**facts, price=PRICE, total_amount=PRICE)
    created = OrderCreated.of(payload, trace_id="t", at=datetime(2026, 2, 4, tzinfo=UTC))
    with pytest.raises(ValueError, match="is not the payload's orderId 1"):
        OrderCreated(**{**dict(created), "aggregate_id": 2})


def test_an_order_number_is_the_time_and_four_digits() -> None:
    assert order_no(datetime(2026, 2, 4, 10, 30, 0, 999, tzinfo=UTC), 901_234) == "202602041030001234"


# -- tables ----------------------------------------------------------------------------------------------------

OUTBOX_COLUMNS = {
    "id": ("bigint", "NO"),
    "event_id": ("varchar(64)", "NO"),
    "event_type": ("varchar(64)", "NO"),
    "aggregate_type": ("varchar(64)", "NO"),
    "aggregate_id": ("bigint", "NO"),
    "payload": ("text", "NO"),
    "status": ("varchar(16)", "NO"),
    "retry_count": ("int", "NO"),
    "next_retry_time": ("datetime", "YES"),
    "create_time": ("datetime", "NO"),
    "update_time": ("datetime", "NO"),
}
LOG_COLUMNS = {
    "id": ("bigint", "NO"),
    "event_id": ("varchar(64)", "NO"),
    "event_type": ("varchar(64)", "NO"),
    "consumer": ("varchar(64)", "NO"),
    "consume_time": ("datetime", "NO"),
}
ON_MARIADB = pytest.mark.parametrize(("store_kind", "broker_kind"), [("mariadb", "embedded")])


async def columns(shop: Shop, table: str) -> dict[str, tuple[str, str]]:
    """Without the display width that MariaDB puts behind whole numbers."""
    async with shop.road.store.reading() as connection:
        found = await connection.execute(
            text(
                "SELECT column_name, column_type, is_nullable FROM information_schema.columns"
                " WHERE table_schema = DATABASE() AND table_name = :name ORDER BY ordinal_position"
            ),
            {"name": table},
        )
        return {
            name: (kind.partition("(")[0] if kind.startswith(("bigint", "int")) else kind, nullable)
            for name, kind, nullable in found
        }


async def indexes(shop: Shop, table: str) -> dict[str, tuple[bool, list[str]]]:
    async with shop.road.store.reading() as connection:
        found: dict[str, tuple[bool, list[str]]] = {}
        for row in (await connection.execute(text(f"SHOW INDEX FROM {table}"))).mappings():
            found.setdefault(row["Key_name"], (not row["Non_unique"], []))[1].append(row["Column_name"])
        return found


@ON_MARIADB
@pytest.mark.spec("R14")
async def test_the_two_agreed_tables_have_their_columns_and_indexes(shop: Shop) -> None:
    there = await columns(shop, "outbox_events")
    # In this order, these types; what Postroad needs beyond them comes behind.
    assert dict(list(there.items())[: len(OUTBOX_COLUMNS)]) == OUTBOX_COLUMNS
    found = await indexes(shop, "outbox_events")
    assert found["PRIMARY"] == (True, ["id"])
    assert found["event_id"] == (True, ["event_id"])
    assert found["idx_status_time"] == (False, ["status", "next_retry_time"])
    assert found["idx_aggregate"] == (False, ["aggregate_type", "aggregate_id"])
    assert await columns(shop, "event_consume_log") == LOG_COLUMNS
    log = await indexes(shop, "event_consume_log")
    assert (log["PRIMARY"], log["event_id"]) == ((True, ["id"]), (True, ["event_id"]))


@ON_MARIADB
@pytest.mark.spec("R14", "F3")
async def test_the_outbox_is_adopted_as_the_command_would_do_it(shop: Shop) -> None:
    plan = await plan_adoption(shop.road.store, "outbox_events")
    assert plan.statements == []
    for name in ("name", "columns", "payload", "ids", "arrival"):
        assert getattr(plan.outbox, name) == getattr(OUTBOX, name)
    await shop.prepare()  # again, and nothing happens


@ON_MARIADB
@pytest.mark.spec("R14", "R2")
async def test_a_row_keeps_the_time_of_its_last_change(shop: Shop) -> None:
    await paid_order(shop)
    async with shop.road.store.transaction() as connection:
        await connection.execute(text("UPDATE outbox_events SET update_time = '2020-01-01 00:00:00'"))
    relay = shop.road._relay(OUTBOX)
    await relay.run_once()
    await relay.leases.release()
    for row in await outbox(shop):
        assert row["status"] == "SENT"
        assert row["update_time"].year > 2020


# -- texts and figures -----------------------------------------------------------------------------------------


@pytest.mark.spec("R15")
def test_the_four_texts_are_the_agreed_ones() -> None:
    assert texts.ALREADY_HANDLED == "事件已处理，忽略重复消息"
    assert texts.UNSUPPORTED_TYPE == "事件类型不支持"
    assert texts.NOT_SENT == "消息发送失败"
    assert texts.NOT_CONSUMED == "消息消费失败"


@pytest.mark.spec("R3", "R7", "R10")
async def test_the_figures_are_the_agreed_ones(shop: Shop) -> None:
    settings = Settings()
    assert (settings.pending_minutes, settings.relay_batch, settings.relay_poll) == (15, 200, 5)
    assert [TABLE.after(failed) for failed in range(1, 5)] == [5, 30, 120, None]
    options = shop.road.relay_options
    assert (options.batch, options.poll, options.backoff) == (200, 5, TABLE)
    assert shop.road.subscriber_options.flow.messages == PREFETCH == 20
    assert shop.orders.payment_time.total_seconds() == 900


def test_the_time_to_pay_can_be_set_and_nonsense_is_refused() -> None:
    assert from_environment({"ORDER_TIMEOUT_PENDING_MINUTES": "0.5"}).payment_time.total_seconds() == 30
    with pytest.raises(ConfigurationError, match="ORDER_TIMEOUT_PENDING_MINUTES is 'soon'"):
        from_environment({"ORDER_TIMEOUT_PENDING_MINUTES": "soon"})
    with pytest.raises(ConfigurationError, match="pending_minutes is 0"):
        from_environment({"ORDER_TIMEOUT_PENDING_MINUTES": "0"})


async def test_the_topic_has_one_group_per_queue(open_shop: OpenShop) -> None:
    shop = await open_shop()
    assert shop.road.groups == ("fulfillment", "inventory", "status-sync", "timeout")
    assert {one.topic for one in shop.road.topology.subscriptions} == {TOPIC}
