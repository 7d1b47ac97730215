"""Protobuf schemas: registered as Pub/Sub asks for them, and what breaks one is refused. Not on the emulator, which has
none: against a registry of our own that keeps to Google's word."""

import pytest

from examples.catalog.protos.video.v1 import events_pb2 as v1
from postroad.brokers.base import Change, Confirmed, Refused, Schema, Subscription, Topology, Unavailable
from postroad.brokers.pubsub.broker import PubSubBroker
from postroad.brokers.pubsub.line import raw
from postroad.codec.flat import flattened
from postroad.errors import ConfigurationError
from postroad.testing.post import Post
from tests.support.pubsub import connected
from tests.support.schema_registry import serving

pytestmark = pytest.mark.spec("F8", "P7")

TOPIC = "catalog.video.events"
SCHEMA = Schema(TOPIC, "video-v1", "protobuf", flattened(v1.Event))
TOPOLOGY = Topology((TOPIC,), (Subscription(f"{TOPIC}.reader", TOPIC),), (SCHEMA,))
PATH = "projects/my-project/schemas/video-v1"


async def test_a_protobuf_schema_is_registered_and_attached_to_its_topic() -> None:
    async with serving() as (registry, url):
        broker = connected(url)
        made, *_ = await broker.apply(TOPOLOGY)
        assert made == Change("create", "schema", "video-v1", f"protobuf, of topic {TOPIC}")
        (request,) = registry.created
        assert (request.parent, request.schema_id) == ("projects/my-project", "video-v1")
        assert request.schema == raw("Schema")(type_="PROTOCOL_BUFFER", definition=flattened(v1.Event))
        settings = registry.things[f"projects/my-project/topics/{TOPIC}"].schema_settings
        assert settings == raw("SchemaSettings")(schema=PATH, encoding="BINARY")
        assert not registry.things[f"projects/my-project/topics/{TOPIC}.dlq"].schema_settings.schema
        assert list(await broker.plan(TOPOLOGY)) == []
        await broker.aclose()


async def test_what_breaks_a_protobuf_schema_is_refused_and_nothing_of_its_key_overtakes_it() -> None:
    async with serving() as (registry, url):
        broker = connected(url)
        await broker.apply(TOPOLOGY)
        post, right = Post(broker), v1.Event(event_id="e", created=v1.VideoCreated(video_id="k")).SerializeToString()
        batch = [post.message("k", payload=data, topic=TOPIC) for data in (right, b"{}", right)]
        before, refused, after = await broker.send(batch)
        assert before == Confirmed()
        assert isinstance(refused, Refused)
        assert "schema" in refused.reason
        assert isinstance(after, Unavailable)
        assert registry.taken == [right]
        await broker.aclose()


async def test_a_definition_with_imports_is_told_as_what_is_wrong() -> None:
    imports = (
        'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp t = 1; }'
    )
    async with serving() as (_, url):
        broker = connected(url)
        with pytest.raises(ConfigurationError, match=r"'video-v1'.*no imports"):
            await broker.apply(Topology((), (), (Schema(TOPIC, "video-v1", "protobuf", imports),)))
        await broker.aclose()


async def test_the_emulator_has_no_protobuf_schemas_and_says_so(broker: PubSubBroker) -> None:
    with pytest.raises(ConfigurationError, match=r"schema 'video-v1': .*not implemented in emulator"):
        await broker.apply(TOPOLOGY)
