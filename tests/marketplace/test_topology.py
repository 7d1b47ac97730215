"""Exchange, queues, arguments and bindings on a real RabbitMQ, exactly as frozen; and what is watched there."""

import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from examples.marketplace.broker import LAYOUT, layout_for, with_layout
from examples.marketplace.monitor import Overview, QueueState, overview
from examples.marketplace.schema import shipments
from examples.marketplace.settings import Settings
from examples.marketplace.shop import Shop
from postroad.brokers.base import Refused
from postroad.brokers.rabbitmq.address import parse
from postroad.errors import ConfigurationError
from tests.marketplace.conftest import OpenShop
from tests.support.marketplace import REAL, eventually, outbox, paid_order, pending_order, rows, told
from tests.support.rabbitmq import api, outsider

pytestmark = pytest.mark.parametrize(("store_kind", "broker_kind"), REAL)

EXCHANGE = "order.events.exchange"
TO_DEAD_LETTERS = {"x-dead-letter-exchange": EXCHANGE, "x-dead-letter-routing-key": "order.dlq"}
QUEUES = {
    "inventory.update.queue": TO_DEAD_LETTERS,
    "order.fulfillment.queue": TO_DEAD_LETTERS,
    "order.status.sync.queue": TO_DEAD_LETTERS,
    "order.timeout.queue": TO_DEAD_LETTERS,
    "order.timeout.delay.queue": {
        "x-message-ttl": 15 * 60 * 1000,
        "x-dead-letter-exchange": EXCHANGE,
        "x-dead-letter-routing-key": "order.timeout",
    },
    "order.dlq.queue": {},
}
BINDINGS = {
    ("inventory.update.queue", "order.created"),
    ("order.fulfillment.queue", "order.paid"),
    ("order.status.sync.queue", "order.status.changed"),
    ("order.timeout.queue", "order.timeout"),
    ("order.timeout.delay.queue", "order.timeout.delay"),
    ("order.dlq.queue", "order.dlq"),
}


@pytest.mark.spec("R4")
async def test_the_topology_is_exactly_the_frozen_one(shop: Shop, broker_address: str) -> None:
    exchange = api(broker_address, f"/api/exchanges/{{vhost}}/{EXCHANGE}")
    assert (exchange["type"], exchange["durable"]) == ("topic", True)
    queues = api(broker_address, "/api/queues/{vhost}")
    assert {queue["name"]: queue["arguments"] for queue in queues} == QUEUES
    assert all(queue["durable"] for queue in queues)
    bound = api(broker_address, f"/api/exchanges/{{vhost}}/{EXCHANGE}/bindings/source")
    assert {(binding["destination"], binding["routing_key"]) for binding in bound} == BINDINGS
    assert await shop.road.broker.apply(shop.topology) == []


@pytest.mark.spec("R4")
async def test_another_time_to_pay_is_the_delay_queues_time_to_live(open_shop: OpenShop, broker_address: str) -> None:
    await open_shop(pending_minutes=0.5)
    delay = api(broker_address, "/api/queues/{vhost}/order.timeout.delay.queue")
    assert delay["arguments"]["x-message-ttl"] == 30_000


@pytest.mark.spec("R4")
async def test_a_queue_that_differs_is_an_error_that_names_it_and_the_argument(shop: Shop, open_shop: OpenShop) -> None:
    with pytest.raises(ConfigurationError, match=r"order\.timeout\.delay\.queue.*x-message-ttl"):
        await open_shop(pending_minutes=1)


@pytest.mark.spec("R4")
async def test_the_timeout_waits_in_the_delay_queue_under_its_own_key(shop: Shop, broker_address: str) -> None:
    order = await paid_order(shop)
    async with shop.running(consumers=False, sweep=False):
        await eventually(lambda: sent(shop))
    with outsider(broker_address) as channel:
        method, _, body = channel.basic_get("order.timeout.delay.queue", auto_ack=True)
    assert method.routing_key == "order.timeout.delay"
    message = await told(shop, "ORDER_TIMEOUT", order["id"])
    assert body == message.payload


async def sent(shop: Shop) -> bool:
    return (await overview(shop)).outbox == {"SENT": 3}


@pytest.mark.spec("R8")
async def test_what_no_queue_takes_is_refused(shop: Shop, broker_address: str) -> None:
    order = await paid_order(shop)
    with outsider(broker_address) as channel:
        channel.queue_unbind("order.fulfillment.queue", EXCHANGE, "order.paid")
    (outcome,) = await shop.road.broker.send([await told(shop, "ORDER_PAID", order["id"])])
    assert isinstance(outcome, Refused)


@pytest.mark.spec("R2", "R8")
async def test_what_was_refused_is_sent_when_its_queue_is_back(shop: Shop, broker_address: str) -> None:
    await paid_order(shop)
    with outsider(broker_address) as channel:
        channel.queue_delete("order.fulfillment.queue")
    relay = shop.road._relay(shop.road.outboxes[0])
    await relay.run_once()
    refused = (await outbox(shop, event_type="ORDER_PAID"))[0]
    assert (refused["status"], refused["retry_count"]) == ("RETRY", 1)
    assert "order.paid" in refused["last_error"] or "route" in refused["last_error"].lower()

    await shop.prepare()
    async with shop.road.store.transaction() as connection:
        await connection.execute(text("UPDATE outbox_events SET next_retry_time = '2020-01-01 00:00:00'"))
    await relay.run_once()
    await relay.leases.release()
    assert (await overview(shop)).outbox == {"SENT": 3}


@pytest.mark.spec("R12")
async def test_depth_rates_and_dead_letters_come_from_the_management_api(shop: Shop) -> None:
    await paid_order(shop)
    async with shop.running(sweep=False):
        await eventually(lambda: rows(shop, shipments))
        await eventually(lambda: measured(shop))
    states = {queue.name: queue for queue in (await overview(shop)).queues}
    assert set(states) == set(QUEUES)
    paid = states["order.fulfillment.queue"]
    assert (paid.messages, paid.acked, paid.nacked, paid.ack_ratio) == (0, 1, 0, 1.0)
    assert states["order.timeout.delay.queue"].messages == states["order.timeout.delay.queue"].delayed == 1


async def measured(shop: Shop) -> bool:
    """The management API is a second behind, and tells of acknowledgements and of what is left at different times."""
    states = {queue.name: queue for queue in (await overview(shop)).queues}
    paid, delayed = states["order.fulfillment.queue"], states["order.timeout.delay.queue"]
    return (paid.acked, paid.messages, delayed.messages) == (1, 0, 1)


@pytest.mark.spec("R9", "R12")
async def test_what_is_tried_again_waits_in_a_queue_beside_the_six_and_is_watched_there(
    open_shop: OpenShop, broker_address: str
) -> None:
    shop = await open_shop(consumer_backoff=Settings().consumer_backoff)
    shop.consumers.broken.add("fulfillment")
    await paid_order(shop)
    async with shop.running(sweep=False):
        beside = await eventually(lambda: watched_beside_the_six(shop))
        shop.consumers.broken.clear()
        await eventually(lambda: rows(shop, shipments))
        assert beside == {"order.fulfillment.queue.delay.1s": 1}
        # It stays, for the next one.
        await eventually(lambda: emptied(shop))
    there = {queue["name"]: queue["arguments"] for queue in api(broker_address, "/api/queues/{vhost}")}
    # Every topic that is declared in this process has dead letters, also those of other tests.
    beside_the_six = {name for name in there.keys() - QUEUES.keys() if not name.endswith(".events.dlq")}
    assert beside_the_six == {"order.fulfillment.queue.delay.1s"}
    assert {name: there[name] for name in QUEUES} == QUEUES
    assert await shop.road.broker.apply(shop.topology) == []


@pytest.mark.spec("R12")
async def test_a_timeout_that_was_relayed_late_waits_beside_the_six_too_and_is_watched_there(shop: Shop) -> None:
    """In the queue with the fixed time it would wait the whole of it once more."""
    await pending_order(shop)
    async with shop.road.store.transaction() as connection:
        late = "UPDATE outbox_events SET deliver_at = deliver_at - INTERVAL 1 MINUTE WHERE event_type = 'ORDER_TIMEOUT'"
        await connection.execute(text(late))
    async with shop.running(consumers=False, sweep=False):
        assert await eventually(lambda: watched_beside_the_six(shop)) == {f"{EXCHANGE}.delay.600s": 1}


async def watched_beside_the_six(shop: Shop) -> dict[str, int | None]:
    """How many wait there; nothing until one is seen to."""
    found = {queue.name: queue for queue in (await overview(shop)).queues if queue.name not in QUEUES}
    return {name: queue.messages for name, queue in found.items() if queue.delayed}


async def emptied(shop: Shop) -> bool:
    return not await watched_beside_the_six(shop)


@pytest.mark.spec("R12")
def test_alerts_begin_above_a_thousand_waiting_and_with_the_first_dead_letter(
    store_kind: str, broker_kind: str
) -> None:
    def alerts(waiting: int, dead: int) -> list[str]:
        return Overview((QueueState("inventory.update.queue", waiting),), dead, 0, {}).alerts

    assert alerts(1_000, 0) == []
    assert alerts(1_001, 0) == ["inventory.update.queue: 1001 messages wait, more than 1000"]
    assert alerts(0, 1) == ["order.dlq.queue: 1 dead letters"]


def test_the_usual_time_needs_no_layout_of_its_own(store_kind: str, broker_kind: str) -> None:
    assert layout_for(timedelta(minutes=15)) == LAYOUT
    assert layout_for(timedelta(seconds=30)) != LAYOUT


def test_a_layout_that_is_written_again_is_never_seen_half_written(
    store_kind: str, broker_kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a folder & more"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    path = layout_for(timedelta(seconds=30))
    with path.open(encoding="utf-8") as reading:
        assert layout_for(timedelta(seconds=30)) == path
        assert "seconds = 30" in reading.read()
    assert [found.name for found in path.parent.iterdir()] == [path.name]
    url = with_layout("amqp://localhost/?prefetch=5", timedelta(seconds=30))
    assert url is not None
    assert parse(url).layout == str(path)


def test_a_folder_of_somebody_else_is_not_used(
    store_kind: str, broker_kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = layout_for(timedelta(seconds=30))
    path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(PermissionError, match="somebody else's"):
        layout_for(timedelta(seconds=30))
