"""Planted: missing, different and unbound subscriptions, missing dead letters, topics nobody reads, short memories."""

from dataclasses import replace
from uuid import uuid4

import pytest

from postroad import Backoff, SubscriberOptions
from postroad.brokers.base import Schema, Topology
from postroad.operations.doctor import Level
from postroad.operations.doctor.wire import retry_window
from postroad.retry import CONSUMER, EXPONENTIAL, TABLE
from tests.contract.doctor.conftest import Open
from tests.support import pubsub
from tests.support.clinic import GROUP, SUBSCRIPTION, TOPIC, Clinic
from tests.support.consuming import placed
from tests.support.outbox import emptied
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
    assert await rabbit_clinic.problems() == {"topology": Level.FAULT, "readers": Level.WARNING}
    (finding,) = await rabbit_clinic.found("topology")
    assert "binding # missing" in finding.cause
    await rabbit_clinic.road.broker.apply(rabbit_clinic.road.topology)
    assert await rabbit_clinic.problems() == {}


@pytest.mark.parametrize("queue", [SUBSCRIPTION, f"{TOPIC}.dlq"])
async def test_a_binding_that_nobody_asks_for_is_a_warning(rabbit_clinic: Clinic, queue: str) -> None:
    with outsider(rabbit_clinic.road.broker_url) as channel:
        channel.queue_bind(queue, TOPIC, "parcel.*")
    finding = await rabbit_clinic.only("bindings")
    assert finding.level is Level.WARNING
    assert queue in finding.cause
    assert "parcel.*" in finding.cause


async def test_bindings_that_nobody_can_look_at_are_told_as_not_looked_at(rabbit_clinic: Clinic) -> None:
    url = rabbit_clinic.road.broker_url.partition("?")[0] + "?management=http://127.0.0.1:9"
    rabbit_clinic.road.broker_url = url
    await rabbit_clinic.road.aclose()
    findings = {one.check: one for one in await rabbit_clinic.all_findings()}
    assert findings["topology"].level is Level.OK
    assert findings["bindings"].level is Level.UNMADE
    assert "Enable the plugin rabbitmq_management" in findings["bindings"].cause


async def test_a_program_that_publishes_to_rabbitmq_without_confirms_is_a_warning(rabbit_clinic: Clinic) -> None:
    road = rabbit_clinic.road
    await road.broker.send([placed(topic=TOPIC, type="parcel.sent")])
    with outsider(road.broker_url) as channel:
        channel.confirm_delivery()
        channel.basic_publish(TOPIC, "parcel.sent", b"{}")
        careless = channel.connection.channel()
        careless.basic_publish(TOPIC, "parcel.sent", b"{}")
        while not (found := await rabbit_clinic.found("confirms")):  # its counts are a few seconds old
            await road.clock.sleep(0.1)
        assert [one.level for one in found] == [Level.WARNING]
        assert f"({careless.channel_number}) without asking for confirms" in found[0].cause


async def test_a_topic_that_nobody_reads_is_a_warning(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.app.known_topics", lambda: {TOPIC, "post.letter.events"})
    await clinic.road.broker.apply(clinic.road.topology)
    finding = await clinic.only("readers")
    assert finding.level is Level.WARNING
    assert "post.letter.events" in finding.cause
    assert finding.command == ""  # nothing that this service can start reads it


async def test_a_topic_that_only_this_service_will_read_is_told_with_its_start(clinic: Clinic) -> None:
    await clinic.road.broker.drop(SUBSCRIPTION)
    (finding,) = await clinic.found("readers")
    assert (TOPIC in finding.cause, finding.command) == (True, "postroad run")


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


async def test_topics_of_kafka_on_one_server_are_a_warning_with_the_cure(
    store_url: str, kafka_url: str, open_road: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"post.{uuid4().hex[:12]}.events"
    monkeypatch.setattr("postroad.app.known_topics", lambda: {topic})
    clinic = Clinic(open_road(store_url, kafka_url))
    await clinic.road.broker.apply(Topology((topic,)))
    (finding,) = await clinic.found("confirms")
    assert finding.level is Level.WARNING
    assert topic in finding.cause
    assert "each partition is on one server alone" in finding.cause
    assert "three servers" in finding.cure


SCHEMA = Schema(
    TOPIC, "parcels.v1", "avro", '{"type": "record", "name": "P", "fields": [{"name": "parcel_id", "type": "string"}]}'
)


async def test_a_schema_of_pubsub_that_is_missing_or_not_attached_is_a_fault(
    store_url: str, pubsub_url: str, open_road: Open
) -> None:
    road = open_road(store_url, pubsub.fresh_project(pubsub_url), schemas=[SCHEMA])
    await emptied(road.store)
    clinic = await (await Clinic(road).prepare()).staff()
    assert await clinic.problems() == {}
    async with pubsub.outsider(road.broker_url) as visitor:
        await visitor.delete_schema(SCHEMA.name)
        assert await clinic.problems() == {"topology": Level.FAULT}
        missing, attached = await clinic.found("topology")
        assert missing.cause == "The schema parcels.v1 is missing."
        assert "schema: _deleted-schema_ → parcels.v1" in attached.cause
        await road.broker.apply(road.topology)
        assert await clinic.problems() == {}
        await visitor.detach_schema(TOPIC)
    finding = await clinic.only("topology")
    assert finding.level is Level.FAULT
    assert "schema: none → parcels.v1" in finding.cause


async def test_a_schema_with_another_definition_hides_nothing_else(
    store_url: str, pubsub_url: str, open_road: Open
) -> None:
    other = replace(SCHEMA, definition=SCHEMA.definition.replace("parcel_id", "id"))
    road = open_road(store_url, pubsub.fresh_project(pubsub_url), schemas=[SCHEMA])
    await road.broker.apply(Topology((TOPIC,), (), (other,)))
    causes = [one.cause for one in await Clinic(road).found("topology")]
    assert causes[0] == f"The subscription {SUBSCRIPTION} is missing."
    assert "'parcels.v1' exists with another definition" in causes[1]
    assert len(causes) == 2


async def test_a_schema_that_the_broker_cannot_have_is_a_fault_that_says_so(store_url: str, open_road: Open) -> None:
    clinic = Clinic(open_road(store_url, schemas=[SCHEMA]))
    await clinic.road.broker.apply(replace(clinic.road.topology, schemas=()))
    assert await clinic.found("broker") == []
    (finding,) = await clinic.found("topology")
    assert finding.level is Level.FAULT
    assert "The embedded broker has no schemas" in finding.cause


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
