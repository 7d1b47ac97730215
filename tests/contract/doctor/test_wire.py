"""Planted: missing, different and unbound subscriptions, missing dead letters, topics nobody reads, short memories."""

from dataclasses import replace

import pytest

from postroad import Backoff, SubscriberOptions
from postroad.brokers.base import Topology
from postroad.operations.doctor import Level
from postroad.operations.doctor.wire import retry_window
from postroad.retry import CONSUMER, EXPONENTIAL, TABLE
from tests.contract.doctor.conftest import Open
from tests.support import pubsub
from tests.support.clinic import GROUP, SUBSCRIPTION, TOPIC, Clinic
from tests.support.rabbitmq import outsider

DAY = 86_400.0

pytestmark = pytest.mark.spec("F14")


@pytest.fixture(params=["sqlite"])
def store_kind(request: pytest.FixtureRequest) -> str:
    """The broker is what matters here."""
    return str(request.param)


async def test_a_topic_and_a_subscription_that_are_missing_are_faults(store_url: str, open_road: Open) -> None:
    clinic = Clinic(open_road(store_url))
    await clinic.road.broker.apply(Topology())
    found = await clinic.found("topology")
    assert [one.cause for one in found] == [
        f"The topic {TOPIC} is missing.",
        f"The subscription {SUBSCRIPTION} is missing.",
    ]
    assert {(one.level, one.command) for one in found} == {(Level.FAULT, "postroad run")}
    assert await clinic.found("bindings") == []  # what is not there needs no binding
    await clinic.road.broker.apply(clinic.road.topology)
    assert await clinic.found("topology") == []


async def test_a_subscription_with_another_deadline_is_a_fault_that_says_what_differs(clinic: Clinic) -> None:
    (wanted,) = clinic.road.topology.subscriptions
    await clinic.road.broker.apply(Topology((TOPIC,), (replace(wanted, ack_deadline=600.0),)))
    finding = await clinic.only("topology")
    assert finding.level is Level.FAULT
    assert "ack_deadline 600 → 10" in finding.cause


async def test_dead_letters_that_rabbitmq_could_not_keep_are_a_fault(rabbit_clinic: Clinic) -> None:
    with outsider(rabbit_clinic.road.broker_url) as channel:
        channel.queue_delete(f"{TOPIC}.dlq")
    finding = await rabbit_clinic.only("topology")
    assert finding.level is Level.FAULT
    assert f"{TOPIC}.dlq is missing" in finding.cause


async def test_a_missing_exchange_of_rabbitmq_is_a_fault(rabbit_clinic: Clinic) -> None:
    with outsider(rabbit_clinic.road.broker_url) as channel:
        channel.exchange_delete(TOPIC)
    assert f"The topic {TOPIC} is missing." in [one.cause for one in await rabbit_clinic.found("topology")]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{TOPIC}.dlq"}, "x-single-active-consumer"),
        ({"x-single-active-consumer": True}, "x-dead-letter-exchange"),
    ],
    ids=["order", "dead letters"],
)
async def test_a_queue_with_other_arguments_is_a_fault_that_names_them(
    rabbit_clinic: Clinic, arguments: dict[str, object], told: str
) -> None:
    with outsider(rabbit_clinic.road.broker_url) as channel:
        channel.queue_delete(SUBSCRIPTION)
        channel.queue_declare(SUBSCRIPTION, durable=True, arguments=arguments)
        channel.queue_bind(SUBSCRIPTION, TOPIC, "#")
    finding = await rabbit_clinic.only("topology")
    assert finding.level is Level.FAULT
    assert told in finding.cause


async def test_a_queue_that_was_taken_off_its_exchange_is_a_fault(rabbit_clinic: Clinic) -> None:
    with outsider(rabbit_clinic.road.broker_url) as channel:
        channel.queue_unbind(SUBSCRIPTION, TOPIC, "#")
    problems = await rabbit_clinic.problems()
    assert problems == {"bindings": Level.FAULT, "readers": Level.WARNING}
    await rabbit_clinic.road.broker.apply(rabbit_clinic.road.topology)
    assert await rabbit_clinic.problems() == {}


async def test_a_topic_that_nobody_reads_is_a_warning(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.app.known_topics", lambda: {TOPIC, "post.letter.events"})
    await clinic.road.broker.apply(clinic.road.topology)
    finding = await clinic.only("readers")
    assert finding.level is Level.WARNING
    assert "post.letter.events" in finding.cause


async def test_a_broker_that_keeps_messages_for_longer_than_the_inbox_remembers_is_a_fault(clinic: Clinic) -> None:
    (wanted,) = clinic.road.topology.subscriptions
    await clinic.road.broker.apply(Topology((TOPIC,), (replace(wanted, retention=30 * DAY),)))
    (finding,) = await clinic.found("retention")
    assert finding.level is Level.FAULT
    assert "37 days" in finding.cause
    assert "inbox_retention=37 * 86_400" in finding.cure


async def test_retries_that_go_on_for_longer_than_the_inbox_remembers_are_a_fault(
    store_url: str, open_road: Open
) -> None:
    patient = SubscriberOptions(backoff=Backoff(attempts=21, base=DAY, factor=1.0))
    clinic = await (await Clinic(open_road(store_url, subscriber=patient)).prepare()).staff()
    assert "27 days" in (await clinic.only("retention")).cause


async def test_retries_of_one_group_count_as_well(store_url: str, open_road: Open) -> None:
    patient = SubscriberOptions(backoff=Backoff(attempts=21, base=DAY, factor=1.0))
    clinic = await (await Clinic(open_road(store_url, group_options={GROUP: patient})).prepare()).staff()
    assert "27 days" in (await clinic.only("retention")).cause


async def test_a_subscription_of_pubsub_without_order_is_a_fault_that_says_so(pubsub_clinic: Clinic) -> None:
    async with pubsub.outsider(pubsub_clinic.road.broker_url) as visitor:
        live = await visitor.subscription(SUBSCRIPTION)
        await visitor.delete(SUBSCRIPTION)
        live.enable_message_ordering = False
        await visitor.create(live)
    finding = await pubsub_clinic.only("topology")
    assert finding.level is Level.FAULT
    assert "message ordering: off → on" in finding.cause


async def test_dead_letters_that_pubsub_could_not_keep_are_a_fault(pubsub_clinic: Clinic) -> None:
    async with pubsub.outsider(pubsub_clinic.road.broker_url) as visitor:
        await visitor.delete(f"{TOPIC}.dlq-monitor")
    finding = await pubsub_clinic.only("topology")
    assert (finding.level, finding.command) == (Level.FAULT, "postroad run")
    assert f"{TOPIC}.dlq-monitor is missing" in finding.cause


def test_the_retry_window_is_the_sum_of_the_waits() -> None:
    assert retry_window(TABLE) == 5.0 + 30.0 + 120.0
    assert retry_window(EXPONENTIAL) == 20.0 + 40.0 + 80.0 + 160.0
    assert retry_window(CONSUMER) == 1.0 + 2.0 + 4.0 + 8.0
    assert retry_window(Backoff(attempts=1)) == 0.0
    assert retry_window(Backoff(attempts=1_000_001, base=2.0, factor=1.0)) == 2_000_000.0
