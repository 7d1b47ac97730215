"""Topics, subscriptions and dead letters, created once and changed by name."""

import asyncio

import msgspec
import pytest

from postroad import Postroad, SubscriberOptions, event
from postroad.brokers.base import Schema, Subscription, Topology
from postroad.brokers.pubsub.address import Address
from postroad.brokers.pubsub.broker import PubSubBroker
from postroad.brokers.pubsub.line import Line, raw
from postroad.brokers.pubsub.structure import Structure
from postroad.errors import ConfigurationError
from postroad.testing.post import Post
from tests.support.pubsub import Outsider, connected

DAY = 86_400


@event("tide.turned", topic="sea.tide.events", aggregate="tide", key="port")
class TideTurned(msgspec.Struct, frozen=True):
    port: str


@pytest.mark.spec("P3", "P14")
async def test_a_subscription_is_as_the_conventions_say(post: Post, visitor: Outsider) -> None:
    live = await visitor.subscription(post.subscription.name)
    assert live.ack_deadline_seconds == 60
    assert live.message_retention_duration.seconds == 7 * DAY
    assert live.retry_policy.minimum_backoff.seconds == 10
    assert live.retry_policy.maximum_backoff.seconds == 600
    assert live.enable_exactly_once_delivery
    assert live.enable_message_ordering
    assert not live.expiration_policy.ttl.seconds, "it is never deleted for being idle"
    monitor = await visitor.subscription(f"{post.topic}.dlq-monitor")
    assert monitor.topic.endswith(f"/{post.topic}.dlq")


@pytest.mark.spec("P3")
async def test_a_group_that_asks_for_nothing_gets_the_conventions_and_one_that_asks_gets_its_own(
    pubsub_url: str, visitor: Outsider
) -> None:
    async with Postroad("tides", "sqlite://", pubsub_url) as road:
        road.on(TideTurned, group="ports")(print)
        await road.broker.apply(road.topology)
        assert (await visitor.subscription("sea.tide.events.ports")).ack_deadline_seconds == 60
        assert list(await road.broker.plan(road.topology)) == []
        road.subscriber_options = SubscriberOptions(ack_deadline=20)
        (change,) = await road.broker.plan(road.topology)
        assert change.detail == "ack deadline: 60 s → 20 s"


@pytest.mark.spec("P3")
def test_in_the_cloud_it_also_dead_letters_after_five_deliveries() -> None:
    """Not asked for on the emulator, whose ordered subscriptions stand still when it happens."""
    address = Address("my-project")
    described = Structure(Line(address), address).described(Subscription("a.b.events.c", "a.b.events"))
    assert described.dead_letter_policy.dead_letter_topic == "projects/my-project/topics/a.b.events.dlq"
    assert described.dead_letter_policy.max_delivery_attempts == 5
    assert described.ack_deadline_seconds == 60


@pytest.mark.spec("P19")
async def test_what_differs_is_named_and_then_changed(post: Post, broker: PubSubBroker, visitor: Outsider) -> None:
    name = post.subscription.name
    longer = Topology((post.topic,), (Subscription(name, post.topic, ack_deadline=120, retention=DAY),))
    (change,) = await broker.plan(longer)
    assert (change.action, change.kind, change.name) == ("update", "subscription", name)
    assert change.detail == "ack deadline: 60 s → 120 s; retention: 604,800 s → 86,400 s"
    assert (await visitor.subscription(name)).ack_deadline_seconds == 60, "a plan changes nothing"
    assert list(await broker.apply(longer)) == [change]
    assert (await visitor.subscription(name)).ack_deadline_seconds == 120
    assert list(await broker.plan(longer)) == []


@pytest.mark.spec("P19")
async def test_what_cannot_be_changed_is_an_error_that_names_it(
    post: Post, broker: PubSubBroker, visitor: Outsider
) -> None:
    name = f"{post.topic}.unordered"
    path = visitor.address.subscription(name)
    await visitor.create(raw("Subscription")(name=path, topic=visitor.address.topic(post.topic)))
    wanted = Topology((post.topic,), (Subscription(name, post.topic),))
    for ask in (broker.plan, broker.apply):
        with pytest.raises(ConfigurationError, match=rf"'{name}' .*message ordering: off → on"):
            await ask(wanted)


@pytest.mark.spec("P19")
async def test_many_who_apply_at_once_do_not_disturb_each_other(pubsub_url: str) -> None:
    brokers = [connected(pubsub_url) for _ in range(4)]
    post = Post(brokers[0])
    await asyncio.gather(*(broker.apply(post.topology) for broker in brokers))
    assert list(await brokers[0].plan(post.topology)) == []
    for broker in brokers:
        await broker.aclose()


async def test_a_topic_whose_dead_letters_have_no_place_gets_one(
    post: Post, broker: PubSubBroker, visitor: Outsider
) -> None:
    await visitor.delete(f"{post.topic}.dlq-monitor")
    (change,) = await broker.apply(post.topology)
    assert (change.action, change.name) == ("create", f"{post.topic}.dlq-monitor")


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (Topology((), (Subscription("a.b.events.c", "a.b.events", ack_deadline=5),)), "ack_deadline is 5 s"),
        (Topology(("goog.events",)), "not with goog"),
        (Topology(("a" * 252,)), "3 to 255 letters"),
        (Topology((), (), (Schema("a.events", "a", "xml", ""),)), "Use avro or protobuf"),
    ],
)
async def test_what_pubsub_would_not_take_is_refused_by_name(broker: PubSubBroker, wanted: Topology, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        await broker.plan(wanted)


@pytest.mark.spec("F8")
async def test_a_schema_is_attached_to_a_topic_that_is_there_and_never_replaced(
    post: Post, broker: PubSubBroker, visitor: Outsider
) -> None:
    avro = '{"type": "record", "name": "A", "fields": [{"name": "%s", "type": "string"}]}'
    schema = Schema(post.topic, "a.v1", "avro", avro % "x")
    wanted = Topology((post.topic,), (post.subscription,), (schema,))
    created, attached = await broker.apply(wanted)
    assert (created.action, created.kind, created.name) == ("create", "schema", "a.v1")
    assert (attached.action, attached.detail) == ("update", "schema: none → a.v1")
    assert (await visitor.topic(post.topic)).schema_settings.schema.endswith("/a.v1")
    other = Topology((post.topic,), (), (Schema(post.topic, "a.v1", "avro", avro % "y"),))
    with pytest.raises(ConfigurationError, match=r"'a\.v1' exists with another definition"):
        await broker.plan(other)


async def test_only_subscriptions_that_are_named_for_their_topic_are_ours(post: Post, broker: PubSubBroker) -> None:
    (found,) = await broker.subscriptions()
    assert (found.name, found.topic) == (post.subscription.name, post.topic)
    assert (found.ack_deadline, found.retention) == (60.0, 7.0 * DAY)
