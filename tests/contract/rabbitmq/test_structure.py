"""What the adapter creates on a real RabbitMQ, and what it says when something else is there."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from postroad.brokers.base import Change, Flow, Subscription, Topology
from postroad.brokers.rabbitmq.broker import RabbitBroker
from postroad.errors import BrokerUnavailable, ConfigurationError, UnsupportedByBroker
from postroad.testing.post import Post
from tests.support.rabbitmq import api, connected, fresh_vhost, outsider

ORDERS = "shop.order.events"
MARKETPLACE = f"""
[topics."{ORDERS}"]
exchange = "order.events.exchange"
dead_letter_queue = "order.dlq.queue"
dead_letter_key = "order.dlq"

[subscriptions."{ORDERS}.inventory"]
queue = "inventory.update.queue"
keys = ["order.created"]
single_active_consumer = false

[subscriptions."{ORDERS}.fulfilment"]
queue = "order.fulfillment.queue"
keys = ["order.paid"]
single_active_consumer = false

[subscriptions."{ORDERS}.status-sync"]
queue = "order.status.sync.queue"
keys = ["order.status.changed"]
single_active_consumer = false

[subscriptions."{ORDERS}.timeout"]
queue = "order.timeout.queue"
keys = ["order.timeout"]
single_active_consumer = false

[delayed.ORDER_TIMEOUT]
topic = "{ORDERS}"
queue = "order.timeout.delay.queue"
key = "order.timeout.delay"
seconds = DELAY
"""
GROUPS = ("inventory", "fulfilment", "status-sync", "timeout")
MARKET_TOPOLOGY = Topology((ORDERS,), tuple(Subscription(f"{ORDERS}.{group}", ORDERS) for group in GROUPS))


def marketplace(url: str, folder: Path, delay: float = 900) -> RabbitBroker:
    layout = folder / "marketplace.toml"
    layout.write_text(MARKETPLACE.replace("DELAY", str(delay)))
    return connected(url, layout=layout)


# --- mismatches ------------------------------------------------------------------------------------


@pytest.mark.spec("R4")
async def test_a_queue_that_differs_is_named_with_its_argument(broker: RabbitBroker, channel: Any) -> None:
    post = Post(broker)
    channel.queue_declare(post.subscription.name, durable=True, arguments={"x-message-ttl": 5})
    for step in (broker.plan, broker.apply):
        with pytest.raises(ConfigurationError) as caught:
            await step(post.topology)
        assert f"Queue {post.subscription.name!r} is there already, but differs in argument" in str(caught.value)
        assert "'x-message-ttl'" in str(caught.value) or "'x-dead-letter-exchange'" in str(caught.value)


async def test_another_queue_type_is_named(post: Post, rabbitmq_url: str) -> None:
    quorum = connected(rabbitmq_url, queue_type="quorum")
    with pytest.raises(ConfigurationError, match=r"differs in argument 'x-(queue-type|delivery-limit)'"):
        await quorum.apply(post.topology)
    await quorum.aclose()


async def test_an_exchange_of_another_type_is_named(broker: RabbitBroker, channel: Any) -> None:
    post = Post(broker)
    channel.exchange_declare(post.topic, "direct", durable=True)
    with pytest.raises(ConfigurationError, match=rf"Exchange '{post.topic}' .* argument 'type'"):
        await broker.apply(post.topology)


async def test_a_limit_of_attempts_is_refused(broker: RabbitBroker) -> None:
    post = Post(broker, max_attempts=5)
    with pytest.raises(UnsupportedByBroker, match="RabbitMQ broker has no limit of attempts"):
        await broker.plan(post.topology)


async def test_a_name_that_leaves_no_room_for_delays_is_refused(broker: RabbitBroker) -> None:
    topic = f"a.{'b' * 170}.events"
    name = f"{topic}.{'g' * 64}"
    with pytest.raises(ConfigurationError, match="too long for RabbitMQ"):
        await broker.plan(Topology((topic,), (Subscription(name, topic),)))


async def test_a_name_is_as_long_as_its_bytes(rabbitmq_url: str, tmp_path: Path) -> None:
    layout = tmp_path / "long.toml"
    layout.write_text(f"""[topics."{ORDERS}"]\nexchange = "{"ü" * 121}"\n""")
    broker = connected(rabbitmq_url, layout=layout)
    with pytest.raises(ConfigurationError, match="at most 240, not 242"):
        await broker.plan(Topology((ORDERS,)))
    await broker.aclose()


async def test_a_missing_queue_of_dead_letters_is_planned_and_put_back(post: Post, channel: Any) -> None:
    channel.queue_delete(f"{post.topic}.dlq")
    (change,) = await post.broker.plan(post.topology)
    assert (change.action, change.kind, change.name) == ("update", "topic", post.topic)
    assert f"{post.topic}.dlq" in change.detail
    assert list(await post.broker.apply(post.topology)) == [change]
    assert list(await post.broker.plan(post.topology)) == []


@pytest.mark.spec("R4")
async def test_a_missing_binding_is_planned_and_put_back(post: Post, channel: Any) -> None:
    channel.queue_unbind(post.subscription.name, post.topic, "#")
    lost = Change("update", "subscription", post.subscription.name, "binding # missing")
    assert list(await post.broker.plan(post.topology)) == [lost]
    assert list(await post.broker.apply(post.topology)) == [lost]
    assert list(await post.broker.plan(post.topology)) == []
    await post.send_texts("k", "a")
    assert await post.has_depth(1)


async def test_a_missing_binding_is_put_back_also_where_nobody_can_tell_that_it_is_missing(
    post: Post, channel: Any, rabbitmq_url: str
) -> None:
    without = connected(rabbitmq_url.partition("?")[0] + "?management=http://127.0.0.1:9")
    channel.queue_unbind(post.subscription.name, post.topic, "#")
    assert list(await without.plan(post.topology)) == []
    await without.apply(post.topology)
    await without.aclose()
    await post.send_texts("k", "a")
    assert await post.has_depth(1)


# --- counting --------------------------------------------------------------------------------------


async def test_what_another_process_holds_is_counted(post: Post, rabbitmq_url: str) -> None:
    other = connected(rabbitmq_url)
    receiver = await other.subscribe(post.subscription.name, Flow())
    await post.send(*(post.message(f"k{n}") for n in range(3)))
    held = await post.take(receiver, 3)
    assert await post.has_depth(3)
    for delivery in held:
        await delivery.ack()
    assert await post.has_depth(0)
    await other.aclose()


async def test_what_another_process_has_put_off_is_counted(post: Post, rabbitmq_url: str) -> None:
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    await (await post.take(receiver, 1))[0].retry(30.0)
    due = datetime.now(UTC) + timedelta(seconds=30)
    await post.send(post.message("k", "b", deliver_at=due))
    other = connected(rabbitmq_url)
    depth = await other.depth(post.subscription.name)
    assert (depth.messages, depth.delayed) == (2, 2)
    await other.aclose()


async def test_the_oldest_is_known_to_the_second(post: Post) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    await post.send_texts("k", "ab")

    async def known() -> bool:
        return (await post.broker.depth(post.subscription.name)).oldest is not None

    assert await post.eventually(known)
    oldest = (await post.broker.depth(post.subscription.name)).oldest
    assert oldest is not None
    assert before <= oldest <= datetime.now(UTC)


async def test_without_the_management_api_only_what_needs_it_fails(post: Post, rabbitmq_url: str) -> None:
    without = connected(rabbitmq_url.partition("?")[0] + "?management=http://127.0.0.1:9")
    await post.send_texts("k", "ab")
    depth = await without.depth(post.subscription.name)
    assert (depth.messages, depth.oldest) == (2, None)
    with pytest.raises(BrokerUnavailable, match="Enable the plugin rabbitmq_management"):
        await without.subscriptions()
    await without.aclose()


# --- names from outside ----------------------------------------------------------------------------


@pytest.mark.spec("R4")
async def test_the_marketplaces_frozen_topology_is_declared_as_it_stands(
    rabbitmq_url: str, tmp_path: Path, channel: Any
) -> None:
    broker = marketplace(rabbitmq_url, tmp_path)
    await broker.apply(MARKET_TOPOLOGY)
    assert list(await broker.apply(MARKET_TOPOLOGY)) == []
    assert api(rabbitmq_url, "/api/exchanges/{vhost}/order.events.exchange")["type"] == "topic"
    names = ("inventory.update", "order.fulfillment", "order.status.sync", "order.timeout", "order.timeout.delay")
    found = {name: api(rabbitmq_url, f"/api/queues/{{vhost}}/{name}.queue") for name in (*names, "order.dlq")}
    assert all(queue["durable"] and not queue["auto_delete"] for queue in found.values())
    dead = {"x-dead-letter-exchange": "order.events.exchange", "x-dead-letter-routing-key": "order.dlq"}
    delay = {
        "x-message-ttl": 900_000,
        "x-dead-letter-exchange": "order.events.exchange",
        "x-dead-letter-routing-key": "order.timeout",
    }
    assert {name: queue["arguments"] for name, queue in found.items()} == {
        "inventory.update": dead,
        "order.fulfillment": dead,
        "order.status.sync": dead,
        "order.timeout": dead,
        "order.timeout.delay": delay,
        "order.dlq": {},
    }
    bindings = {
        (one["destination"], one["routing_key"])
        for one in api(rabbitmq_url, "/api/exchanges/{vhost}/order.events.exchange/bindings/source")
    }
    assert bindings == {
        ("inventory.update.queue", "order.created"),
        ("order.fulfillment.queue", "order.paid"),
        ("order.status.sync.queue", "order.status.changed"),
        ("order.timeout.queue", "order.timeout"),
        ("order.timeout.delay.queue", "order.timeout.delay"),
        ("order.dlq.queue", "order.dlq"),
    }
    post = Post(broker)
    due = datetime.now(UTC) + timedelta(minutes=15)
    await post.send(post.message("1", topic=ORDERS, type="ORDER_TIMEOUT", deliver_at=due))
    assert channel.queue_declare("order.timeout.delay.queue", passive=True).method.message_count == 1
    assert (await broker.depth(f"{ORDERS}.timeout")).delayed == 1
    # One that has waited for its relay already must not wait the whole time once more.
    await post.send(post.message("2", topic=ORDERS, type="ORDER_TIMEOUT", deliver_at=due - timedelta(minutes=4)))
    assert channel.queue_declare("order.timeout.delay.queue", passive=True).method.message_count == 1
    assert (await broker.depth(f"{ORDERS}.timeout")).delayed == 2
    names_found = {subscription.name for subscription in await broker.subscriptions()}
    assert names_found >= {f"{ORDERS}.{group}" for group in GROUPS}
    await broker.aclose()
    with_another_delay = marketplace(rabbitmq_url, tmp_path, delay=60)
    with pytest.raises(ConfigurationError, match=r"Queue 'order\.timeout\.delay\.queue' .* argument 'x-message-ttl'"):
        await with_another_delay.apply(MARKET_TOPOLOGY)
    await with_another_delay.aclose()
    for queue in found.values():
        api(rabbitmq_url, f"/api/queues/{{vhost}}/{queue['name']}", "DELETE")


@pytest.mark.spec("R4")
@pytest.mark.parametrize(
    ("queue", "key", "lost"),
    [
        (
            "inventory.update.queue",
            "order.created",
            Change("update", "subscription", f"{ORDERS}.inventory", "binding order.created missing"),
        ),
        (
            "order.dlq.queue",
            "order.dlq",
            Change("update", "topic", ORDERS, "binding order.dlq missing at its queue order.dlq.queue"),
        ),
        (
            "order.timeout.delay.queue",
            "order.timeout.delay",
            Change(
                "update", "topic", ORDERS, "binding order.timeout.delay missing at its queue order.timeout.delay.queue"
            ),
        ),
    ],
    ids=["subscription", "dead letters", "delay"],
)
async def test_a_queue_under_another_key_is_planned_by_the_key_that_is_missing_and_the_other_is_a_concern(
    rabbitmq_url: str, tmp_path: Path, queue: str, key: str, lost: Change
) -> None:
    with fresh_vhost(rabbitmq_url) as url, outsider(url) as visitor:
        broker = marketplace(url, tmp_path)
        await broker.apply(MARKET_TOPOLOGY)
        assert list(await broker.plan(MARKET_TOPOLOGY)) == []
        assert list(await broker.concerns(MARKET_TOPOLOGY)) == []
        visitor.queue_unbind(queue, "order.events.exchange", key)
        visitor.queue_bind(queue, "order.events.exchange", "#")
        assert list(await broker.apply(MARKET_TOPOLOGY)) == [lost]
        assert list(await broker.plan(MARKET_TOPOLOGY)) == []
        (stray,) = await broker.concerns(MARKET_TOPOLOGY)
        assert stray.about == "bindings"
        assert f"The queue {queue} takes from the exchange order.events.exchange what has the key #" in stray.cause
        await broker.aclose()


@pytest.mark.spec("R4")
async def test_an_order_times_out_by_way_of_its_frozen_queues(rabbitmq_url: str, tmp_path: Path, channel: Any) -> None:
    broker = marketplace(rabbitmq_url, tmp_path, delay=0.3)
    await broker.apply(MARKET_TOPOLOGY)
    post = Post(broker)
    receivers = {group: await broker.subscribe(f"{ORDERS}.{group}", Flow()) for group in GROUPS}
    due = datetime.now(UTC) + timedelta(seconds=0.3)
    await post.send(
        post.message("1", "c", topic=ORDERS, type="ORDER_CREATED"),
        post.message("1", "t", topic=ORDERS, type="ORDER_TIMEOUT", deliver_at=due),
        post.message("2", "p", topic=ORDERS, type="ORDER_PAID"),
    )
    for group, text in (("inventory", "c"), ("fulfilment", "p"), ("timeout", "t")):
        assert await post.take_texts(receivers[group], 1) == text
    assert datetime.now(UTC) >= due
    await post.send(post.message("1", "a", topic=ORDERS, type="ORDER_CREATED"))
    (delivery,) = await post.take(receivers["inventory"], 1)
    await delivery.dead("no such order")
    (letter,) = await broker.dead_letters(ORDERS)
    assert (letter.subscription, letter.reason) == (f"{ORDERS}.inventory", "no such order")
    assert await broker.revive(ORDERS, [letter.id]) == 1
    assert await post.take_texts(receivers["inventory"], 1) == "a"
    await broker.aclose()
    for queue in ("order.timeout.delay", "order.timeout", "inventory.update", "order.fulfillment", "order.status.sync"):
        channel.queue_delete(f"{queue}.queue")
