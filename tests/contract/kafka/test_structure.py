"""Topics and groups: made, checked, counted, and set back."""

from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from postroad.brokers.base import Change, Flow, Subscription, Topology
from postroad.brokers.kafka.broker import KafkaBroker
from postroad.errors import ConfigurationError, OperationRefused, UnsupportedByBroker
from postroad.testing.post import Post
from tests.support.kafka import admin, committed, connected, create_topic, records

DAY = 86_400.0


def settings(url: str, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (found,) = admin(url).describe_configs([resource]).values()
    return {name: entry.value or "" for name, entry in found.result().items()}


# --- topics


@pytest.mark.spec("P3", "P19")
async def test_the_plan_tells_what_will_be_made_and_the_topic_is_made_so(broker: KafkaBroker, kafka_url: str) -> None:
    post = Post(broker)
    assert await broker.apply(post.topology) == [
        Change("create", "topic", post.topic, "kept for 7 days"),
        Change("create", "topic", f"{post.topic}.dlq", "compacted"),
        Change("create", "subscription", post.subscription.name, "from the first message that is left"),
    ]
    found = settings(kafka_url, post.topic)
    assert found["retention.ms"] == str(7 * 86_400_000)
    assert found["message.timestamp.type"] == "LogAppendTime"
    assert settings(kafka_url, f"{post.topic}.dlq")["cleanup.policy"] == "compact"
    description = admin(kafka_url).list_topics(timeout=5).topics
    assert [len(description[name].partitions) for name in (post.topic, f"{post.topic}.dlq")] == [3, 1]


@pytest.mark.spec("P19")
async def test_a_topic_that_forgets_too_soon_is_updated_and_one_that_keeps_longer_is_left(
    broker: KafkaBroker, kafka_url: str
) -> None:
    for kept, expected in ((1, [("update", "kept for 7 days, was 1 days")]), (30, [])):
        post = Post(broker)
        create_topic(kafka_url, post.topic, retention_ms=str(kept * 86_400_000))
        changes = await broker.apply(Topology((post.topic,)))
        assert [(change.action, change.detail) for change in changes] == expected
        assert settings(kafka_url, post.topic)["retention.ms"] == str(max(kept, 7) * 86_400_000)
        assert await broker.plan(Topology((post.topic,))) == []


async def test_a_topic_with_another_number_of_partitions_is_refused(broker: KafkaBroker, kafka_url: str) -> None:
    post = Post(broker)
    create_topic(kafka_url, post.topic, partitions=5)
    with pytest.raises(ConfigurationError, match=r"has 5 partitions, and 3 are agreed on.*partitions=5"):
        await broker.plan(post.topology)
    relaxed = connected(kafka_url, partitions="any")
    await relaxed.apply(post.topology)
    await relaxed.aclose()


async def test_a_compacted_topic_is_refused(broker: KafkaBroker, kafka_url: str) -> None:
    """Kafka would remove all but the last event of each key."""
    post = Post(broker)
    create_topic(kafka_url, post.topic, cleanup_policy="compact")
    with pytest.raises(ConfigurationError, match="is compacted"):
        await broker.apply(post.topology)


async def test_a_limit_of_deliveries_on_the_broker_is_refused(broker: KafkaBroker) -> None:
    with pytest.raises(UnsupportedByBroker, match="the inbox counts"):
        await broker.plan(Post(broker, max_attempts=5).topology)


# --- what a confirm is worth


async def test_topics_on_one_server_alone_are_a_concern(post: Post) -> None:
    assert isinstance(post.broker, KafkaBroker)
    (concern,) = await post.broker.concerns(post.topology)
    assert concern.about == "confirms"
    assert concern.cause.startswith(f"{post.topic}, {post.topic}.dlq: each partition is on one server alone")
    assert "three replicas" in concern.cure
    assert list(await post.broker.concerns(Topology(("no.such.events",)))) == []


async def test_a_topic_whose_leaders_word_is_enough_is_a_concern(
    broker: KafkaBroker, kafka_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of replicas is made up: here is one server. Their settings are Kafka's."""

    async def three(topic: str) -> int:
        return 3

    monkeypatch.setattr(broker._client, "copies", three)
    hasty, careful = Post(broker).topic, Post(broker).topic
    create_topic(kafka_url, hasty)
    create_topic(kafka_url, careful, min_insync_replicas="2")
    (concern,) = await broker.concerns(Topology((careful, hasty)))
    assert concern.cause.startswith(f"{hasty}: min.insync.replicas is 1")
    assert concern.command.endswith(f"--entity-name {hasty} --add-config min.insync.replicas=2")
    assert list(await broker.concerns(Topology((careful,)))) == []


async def test_a_new_group_begins_with_what_was_there_before_it(post: Post) -> None:
    await post.send_texts("k", "ab")
    late = Subscription(f"{post.topic}.late", post.topic)
    await post.broker.apply(Topology((post.topic,), (late,)))
    assert await post.take_texts(await post.broker.subscribe(late.name, Flow()), 2) == "ab"


# --- counting


async def test_depth_is_the_lag_and_the_age_of_the_first_that_waits(post: Post) -> None:
    begun = datetime.now(UTC) - timedelta(seconds=1)
    await post.send(*(post.message(f"k{n}") for n in range(5)))
    receiver = await post.subscribe()
    (held, *others) = await post.take(receiver, 5)
    for delivery in others:
        await delivery.ack()
    depth = await post.broker.depth(post.subscription.name)
    assert 1 <= depth.messages <= 5
    assert depth.oldest is not None
    assert begun <= depth.oldest <= datetime.now(UTC) + timedelta(seconds=1)
    await held.ack()
    depth = await post.broker.depth(post.subscription.name)
    assert (depth.messages, depth.oldest) == (0, None)


async def test_the_depth_of_what_is_not_there_is_an_error(broker: KafkaBroker) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        await broker.depth(Post(broker).subscription.name)


# --- setting back


async def test_a_group_that_does_not_run_is_set_back(post: Post) -> None:
    await post.send_texts("k", "abc")
    receiver = await post.subscribe()
    assert await post.take_texts(receiver, 3) == "abc"
    await receiver.aclose()
    assert await post.broker.seek(post.subscription.name, datetime.now(UTC) - timedelta(minutes=1)) == 3
    assert await post.take_texts(await post.subscribe(), 3) == "abc"


async def test_a_group_with_workers_elsewhere_is_not_set_back(post: Post, kafka_url: str) -> None:
    elsewhere = connected(kafka_url)
    await post.send_texts("k", "a")
    receiver = await elsewhere.subscribe(post.subscription.name, Flow())
    assert await post.take_texts(receiver, 1) == "a"
    with pytest.raises(OperationRefused, match="1 active workers elsewhere"):
        await post.broker.seek(post.subscription.name, datetime.now(UTC) - timedelta(minutes=1))
    await elsewhere.aclose()
    assert await post.broker.seek(post.subscription.name, datetime.now(UTC) - timedelta(minutes=1)) == 1


async def test_seeking_never_passes_over_what_is_not_settled(post: Post, kafka_url: str) -> None:
    for text in "abc":
        await post.send_texts("k", text)
    last = datetime.fromtimestamp(records(kafka_url, post.topic)[-1].timestamp()[1] / 1_000, UTC)
    for moment in (last, last + timedelta(days=1)):
        assert await post.broker.seek(post.subscription.name, moment) == 0
    assert await post.take_texts(await post.subscribe(), 3) == "abc"


async def test_what_was_in_hand_when_its_group_was_set_back_comes_once(post: Post) -> None:
    """The verdict on the earlier delivery does not settle the later one."""
    receiver = await post.subscribe()
    await post.send_texts("k", "ab")
    first, second = await post.take(receiver, 2)
    await first.ack()
    assert await post.broker.seek(post.subscription.name, datetime.now(UTC) - timedelta(minutes=1)) == 1
    await second.ack()
    assert await post.take_texts(receiver, 2) == "ab"
    assert await post.nothing_comes(receiver)
    assert await post.has_depth(0)


async def test_a_snapshot_nobody_took_is_told_with_the_nearest_name(post: Post, kafka_url: str) -> None:
    name = post.subscription.name
    with pytest.raises(ConfigurationError, match=r"has no snapshot 'before'\. Take one first"):
        await post.broker.seek(name, "before")
    await post.broker.snapshot(name, "before-noon")
    with pytest.raises(ConfigurationError, match="Did you mean 'before-noon'"):
        await post.broker.seek(name, "before-moon")
    assert committed(kafka_url, f"{name}@before-noon") == {0: 0, 1: 0, 2: 0}
    assert f"{name}@before-noon" not in [subscription.name for subscription in await post.broker.subscriptions()]
