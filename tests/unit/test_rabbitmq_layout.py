from pathlib import Path

import pytest

from postroad.brokers.base import Subscription
from postroad.brokers.rabbitmq.layout import Layout, delay_queue, routing_key
from postroad.brokers.rabbitmq.layout_file import read_layout
from postroad.errors import ConfigurationError

TOPIC = "shop.order.events"
SUBSCRIPTION = Subscription(f"{TOPIC}.receipts", TOPIC)


def read(folder: Path, text: str) -> Layout:
    path = folder / "layout.toml"
    path.write_text(text)
    return read_layout(str(path), queue_type="classic", single_active_consumer=True)


def test_without_a_layout_names_are_those_of_topic_and_subscription() -> None:
    layout = Layout()
    assert layout.exchange(TOPIC) == TOPIC
    assert layout.queue(SUBSCRIPTION.name) == SUBSCRIPTION.name
    assert layout.keys(SUBSCRIPTION.name) == ("#",)
    assert layout.dead_letter_route(TOPIC) == ("", f"{TOPIC}.dlq")
    assert layout.queue_arguments(SUBSCRIPTION) == {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": f"{TOPIC}.dlq",
        "x-single-active-consumer": True,
    }


def test_quorum_queues_have_no_limit_that_honest_work_can_reach_and_hand_over_safely() -> None:
    layout = Layout("quorum", single_active_consumer=False)
    quorum = {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000_000}
    assert layout.queue_arguments(SUBSCRIPTION).items() >= quorum.items()
    assert "x-single-active-consumer" not in layout.queue_arguments(SUBSCRIPTION)
    assert layout.delay_arguments(5, "", "q") == quorum | {
        "x-message-ttl": 5_000,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "q",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


@pytest.mark.parametrize(
    ("event_type", "key"),
    [
        ("ORDER_STATUS_CHANGED", "order.status.changed"),
        ("ORDER", "order"),
        ("order.placed", "order.placed"),
        ("OrderPlaced", "OrderPlaced"),
        ("Shop.Order.Placed", "Shop.Order.Placed"),
    ],
)
def test_shouted_types_become_dotted_routing_keys(event_type: str, key: str) -> None:
    assert routing_key(event_type) == key


@pytest.mark.parametrize(
    ("seconds", "step"), [(0.0, None), (0.99, None), (1.0, 1), (4.9, 1), (5.0, 5), (299.0, 120), (1e9, 86_400)]
)
def test_the_longest_step_that_does_not_overshoot(seconds: float, step: float | None) -> None:
    assert Layout().step_for(seconds) == step


def test_delay_queues_are_named_for_their_seconds() -> None:
    assert [delay_queue("q", step) for step in (1, 0.5, 86_400)] == ["q.delay.1s", "q.delay.0.5s", "q.delay.86400s"]


def test_a_layout_names_everything(tmp_path: Path) -> None:
    layout = read(
        tmp_path,
        f"""
        delays = [1, 60]
        [topics."{TOPIC}"]
        exchange = "order.events.exchange"
        dead_letter_queue = "order.dlq.queue"
        dead_letter_key = "order.dlq"
        [subscriptions."{SUBSCRIPTION.name}"]
        queue = "receipts.queue"
        keys = ["order.paid", "order.created"]
        single_active_consumer = false
        [delayed.ORDER_TIMEOUT]
        topic = "{TOPIC}"
        queue = "delay.queue"
        key = "order.timeout.delay"
        seconds = 60
        """,
    )
    assert layout.steps == (1, 60)
    assert (layout.exchange(TOPIC), layout.topic_of("order.events.exchange")) == ("order.events.exchange", TOPIC)
    assert (layout.queue(SUBSCRIPTION.name), layout.subscription_of("receipts.queue")) == (
        "receipts.queue",
        SUBSCRIPTION.name,
    )
    assert layout.keys(SUBSCRIPTION.name) == ("order.paid", "order.created")
    assert layout.dead_letter_route(TOPIC) == ("order.events.exchange", "order.dlq")
    fixed = layout.fixed_delay(TOPIC, "ORDER_TIMEOUT", 59.9)
    assert fixed is not None
    assert fixed.key == "order.timeout.delay"
    assert layout.fixed_delay(TOPIC, "ORDER_TIMEOUT", 61) is None
    assert layout.fixed_delay(TOPIC, "ORDER_TIMEOUT", 0) is None
    assert layout.fixed_delay(TOPIC, "ORDER_TIMEOUT", 55.1) is not None
    assert layout.fixed_delay(TOPIC, "ORDER_TIMEOUT", 20) is None  # it would come 40 s late
    assert layout.fixed_delay("other.events", "ORDER_TIMEOUT", 59.9) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("= nonsense", "cannot be read"),
        ("topic = 1", "unknown key topic. Did you mean topics?"),
        ("topics = 1", "topics must be a table"),
        ("topics.a = 1", "topics.a must be a table"),
        ("topics.a.exchnge = ''", "unknown key topics.a.exchnge. Did you mean exchange?"),
        ("topics.a.exchange = 1", "topics.a.exchange is 1. It must be a str"),
        ("subscriptions.a.keys = 'x'", "subscriptions.a.keys is 'x'. It must be a list of texts"),
        ("subscriptions.a.keys = []", "It must be a list of texts"),
        ("subscriptions.a.single_active_consumer = 1", "It must be a bool"),
        ("delayed.A.seconds = 0", "It must be a number above 0"),
        ("delayed.A.seconds = true", "It must be a number above 0"),
        ("delays = []", "delays must be numbers above 0 that grow"),
        ("delays = [5, 1]", "delays must be numbers above 0 that grow"),
        ("delays = [0, 1]", "delays must be numbers above 0 that grow"),
        ("delays = 5", "delays must be numbers above 0 that grow"),
    ],
)
def test_a_layout_that_cannot_be_meant_is_told_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, text)
    assert told in str(caught.value)
