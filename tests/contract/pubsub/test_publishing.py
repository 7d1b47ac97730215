"""What Pub/Sub is given, and what becomes of a message that it does not take."""

import asyncio
import socket
from collections import Counter
from typing import Any

import pytest

from postroad.brokers.base import Confirmed, Refused, Schema, Topology, Unavailable
from postroad.brokers.pubsub.broker import PubSubBroker
from postroad.brokers.pubsub.letter import MAX_REQUEST_BYTES
from postroad.message import Message
from postroad.testing.post import Post
from proof.chaos.proxy import Proxy
from tests.support.pubsub import Outsider, connected, overheard

AVRO = """{"type": "record", "name": "Placed", "fields": [{"name": "order", "type": "string"}]}"""


@pytest.mark.spec("P4", "P5", "P6")
async def test_a_stranger_finds_the_agreed_attributes_and_the_aggregate_as_ordering_key(
    post: Post, visitor: Outsider
) -> None:
    sent = post.message("video-1", "{}", version=3, correlation_id="c", causation_id="d", user_id="u", trace_id="t")
    await post.send(sent)
    ((received),) = await visitor.pull(post.subscription.name)
    message = received.message
    assert (message.ordering_key, message.data) == ("video-1", b"{}")
    assert dict(message.attributes) == {
        "event_id": str(sent.id),
        "event_type": "thing.happened",
        "aggregate_id": "video-1",
        "aggregate_type": "thing",
        "version": "3",
        "occurred_at": sent.attributes()["occurred_at"],
        "schema_version": "v1",
        "correlation_id": "c",
        "causation_id": "d",
        "user_id": "u",
        "trace_id": "t",
    }
    assert message.attributes["occurred_at"].endswith("Z")


@pytest.mark.spec("P6")
async def test_a_request_has_one_key_and_a_key_one_request_at_a_time(post: Post, broker: PubSubBroker) -> None:
    keys: list[set[str]] = []
    under_way: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def hear(request: Any) -> None:
        found = {message.ordering_key for message in request.messages}
        keys.append(found)
        for key in found:
            under_way[key] += 1
            most[key] = max(most[key], under_way[key])
        await asyncio.sleep(0.01)
        under_way.subtract(found)

    overheard(broker, "Publisher/Publish", hear)
    large = bytes(4_000_000)
    await post.send(*(post.message(f"k{n % 3}", payload=large if n < 9 else b"") for n in range(30)))
    assert all(len(found) == 1 for found in keys)
    assert len(keys) > 3
    assert set(most.values()) == {1}


async def test_a_request_is_no_larger_than_pubsub_takes(post: Post, broker: PubSubBroker) -> None:
    requests: list[tuple[int, int]] = []

    async def hear(request: Any) -> None:
        requests.append((len(request.messages), request.ByteSize()))

    overheard(broker, "Publisher/Publish", hear)
    await post.send(*(post.message("k") for _ in range(1_001)))
    assert sorted(count for count, _ in requests) == [1, 1_000]
    requests.clear()
    await post.send(*(post.message("k", payload=bytes(3_500_000)) for _ in range(3)))
    assert [count for count, _ in requests] == [2, 1]
    assert max(size for _, size in requests) <= MAX_REQUEST_BYTES


@pytest.mark.spec("F8")
async def test_what_breaks_the_schema_is_refused_and_nothing_of_its_key_overtakes_it(broker: PubSubBroker) -> None:
    post = Post(broker)
    topology = Topology((post.topic,), (post.subscription,), (Schema(post.topic, f"{post.topic}.v1", "avro", AVRO),))
    await broker.apply(topology)
    assert list(await broker.plan(topology)) == []
    right, wrong = b'{"order": "1"}', b'{"order": 1}'
    batch = [post.message("k", payload=payload) for payload in (right, wrong, right)]
    batch += [post.message("other", payload=right)]
    before, refused, after, other = await broker.send(batch)
    assert (before, other) == (Confirmed(), Confirmed())
    assert isinstance(refused, Refused)
    assert isinstance(after, Unavailable)
    receiver = await post.subscribe()
    assert sorted(delivery.key for delivery in await post.take(receiver, 2)) == ["k", "other"]


async def test_without_keys_each_has_its_own_outcome(broker: PubSubBroker) -> None:
    post = Post(broker)
    schema = Schema(post.topic, f"{post.topic}.v1", "avro", AVRO)
    await broker.apply(Topology((post.topic,), (post.subscription,), (schema,)))
    payloads = (b'{"order": "1"}', b"no", b'{"order": "2"}')
    batch = [keyless(post, payload) for payload in payloads]
    first, refused, last = await broker.send(batch)
    assert (first, last) == (Confirmed(), Confirmed())
    assert isinstance(refused, Refused)


def keyless(post: Post, payload: bytes) -> Message:
    message = post.message(payload=payload)
    return post.message(payload=payload, deliver_at=message.occurred_at)


async def test_of_a_missing_topic_only_the_first_of_a_key_pays(post: Post, broker: PubSubBroker) -> None:
    unknown = [post.message("k", topic="contract.nowhere.events") for _ in range(3)]
    refused, *held_back = await broker.send(unknown)
    assert isinstance(refused, Refused)
    assert "Run: postroad topology apply" in refused.reason
    assert [type(outcome) for outcome in held_back] == [Unavailable] * 2


async def test_who_may_not_publish_burns_no_attempts(post: Post, broker: PubSubBroker) -> None:
    """The emulator asks nobody for rights: the answer is put in its mouth."""
    import grpc

    async def hear(_: Any) -> None:
        error = grpc.aio.AioRpcError(grpc.StatusCode.PERMISSION_DENIED, None, None, "no publisher")
        raise broker._line.explained(error)

    overheard(broker, "Publisher/Publish", hear)
    (outcome,) = await broker.send([post.message()])
    assert isinstance(outcome, Unavailable)
    assert "Check the roles" in outcome.reason


async def test_nobody_there_is_told_with_host_and_port_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    broker = connected(f"pubsub://my-project?emulator=127.0.0.1:{port}")
    post = Post(broker)
    async with asyncio.timeout(5):
        (outcome,) = await broker.send([post.message()])
        with pytest.raises(Exception, match=f"127.0.0.1:{port} cannot be reached"):
            await broker.plan(post.topology)
    await broker.aclose()
    assert isinstance(outcome, Unavailable)
    assert f"127.0.0.1:{port}" in outcome.reason


async def test_a_server_that_falls_silent_costs_no_more_than_the_time_limit(
    post: Post, distant: PubSubBroker, proxy: Proxy
) -> None:
    assert list(await distant.send([post.message("k", "a")])) == [Confirmed()]
    proxy.stall()
    outcomes = await distant.send([post.message("k", "b"), post.message("other", "c")])
    assert [type(outcome) for outcome in outcomes] == [Unavailable] * 2
    proxy.resume()

    async def answered() -> bool:
        return list(await distant.send([post.message("k", "d")])) == [Confirmed()]

    assert await post.eventually(answered)


async def test_after_a_cut_connection_it_goes_on(post: Post, distant: PubSubBroker, proxy: Proxy) -> None:
    await distant.send([post.message("k", "a")])
    proxy.cut_all()

    async def answered() -> bool:
        return list(await distant.send([post.message("k", "b")])) == [Confirmed()]

    assert await post.eventually(answered)
