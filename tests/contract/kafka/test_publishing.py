"""What becomes of a message on its way to Kafka, each told from its own report."""

import logging
import socket
import time
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException

from postroad.brokers.base import Confirmed, Refused, Unavailable
from postroad.brokers.kafka.broker import KafkaBroker
from postroad.errors import BrokerUnavailable
from postroad.testing.post import Post
from tests.support.kafka import admin, connected, create_topic, let_grow, records, topics


async def test_others_read_the_key_the_payload_and_the_attributes_as_headers(post: Post, kafka_url: str) -> None:
    sent = post.message("schlüssel", payload=b"\x00\xff", headers={"note": "æ\0æ"})
    await post.send(sent)
    (record,) = records(kafka_url, post.topic)
    assert (record.key(), record.value()) == ("schlüssel".encode(), b"\x00\xff")
    assert {name: value.decode() for name, value in record.headers() or []} == sent.attributes()


@pytest.mark.spec("P6")
async def test_a_key_is_always_in_the_partition_where_other_clients_put_it(post: Post, kafka_url: str) -> None:
    """Kafka's own clients, and most others, hash a key with murmur2."""
    expected = {"21": 0, "foobar": 1, "order-1": 1, "a-little-bit-long-string": 2}
    for _ in range(2):
        await post.send(*(post.message(key) for key in expected))
    found = [(record.key(), record.partition()) for record in records(kafka_url, post.topic)]
    assert len(found) == 8
    assert {key.decode(): number for key, number in found if key} == {k: murmur2(k.encode()) % 3 for k in expected}


def murmur2(data: bytes) -> int:
    """As Kafka's documentation has it: seed 0x9747b28c, and the sign dropped."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    for at in range(0, len(data) & ~3, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    if rest := data[len(data) & ~3 :]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return (h ^ (h >> 15)) & 0x7FFFFFFF


async def test_a_topic_is_never_created_by_sending_to_it(post: Post, kafka_url: str) -> None:
    """This server would create it for whoever asks with less care."""
    unknown = f"contract.t{uuid4().hex[:12]}.events"
    outcomes = await post.broker.send([post.message("k", topic=unknown), post.message("k", "a")])
    assert outcomes == [Refused(f"topic {unknown!r} does not exist. Run: postroad topology apply"), Confirmed()]
    assert unknown not in topics(kafka_url)


async def test_a_topic_that_is_removed_is_missed(kafka_url: str) -> None:
    broker = connected(kafka_url, publish_timeout=3)
    post = Post(broker)
    await broker.apply(post.topology)
    await post.send_texts("k", "a")
    admin(kafka_url).delete_topics([post.topic])[post.topic].result()
    # The first may still have been on its way to where the topic was.
    await broker.send([post.message("k", "b")])
    (outcome,) = await broker.send([post.message("k", "b")])
    assert isinstance(outcome, Refused)
    assert post.topic not in topics(kafka_url)
    await broker.aclose()


async def test_what_is_too_large_together_is_taken_one_by_one(broker: KafkaBroker, kafka_url: str) -> None:
    """Kafka refuses the whole of what its client has put together. That is nobody's fault, and costs no attempt."""
    post = Post(broker)
    create_topic(kafka_url, post.topic, max_message_bytes="5000")
    await broker.apply(post.topology)
    small = [post.message(f"k{n}", payload=bytes(1_000)) for n in range(30)]
    assert list(await broker.send(small)) == [Confirmed()] * 30


async def test_what_this_topic_does_not_take_is_refused_and_nothing_of_its_key_overtakes_it(
    broker: KafkaBroker, kafka_url: str
) -> None:
    post = Post(broker)
    create_topic(kafka_url, post.topic, max_message_bytes="5000")
    await broker.apply(post.topology)
    batch = [
        post.message("large", "a"),
        post.message("large", payload=bytes(6_000)),
        post.message("large", "b"),
        *(post.message(f"k{n}", "c") for n in range(10)),
    ]
    first, refused, held_back, *others = await broker.send(batch)
    assert isinstance(refused, Refused)
    assert isinstance(held_back, Unavailable)
    assert [first, *others] == [Confirmed()] * 11
    assert sorted(record.value() or b"" for record in records(kafka_url, post.topic)) == [b"a"] + [b"c"] * 10


async def test_a_topic_that_has_grown_takes_nothing_before_somebody_has_seen_to_it(
    broker: KafkaBroker, kafka_url: str
) -> None:
    """Else the next event of a key might come to another partition than those before it, and be handled first."""
    post = Post(broker)
    await broker.apply(post.topology)
    let_grow(kafka_url, post.topic, 4)
    (outcome,) = await broker.send([post.message("k", "a")])
    assert isinstance(outcome, Unavailable)
    assert "has 4 partitions, and 3 are agreed on" in outcome.reason
    assert records(kafka_url, post.topic) == []
    producer = broker._publisher._senders[False]
    for _ in range(3):
        await broker.send([post.message("k", "a")])
    assert broker._publisher._senders[False] is producer
    assert producer.usable
    relaxed = connected(kafka_url, partitions="any")
    assert list(await relaxed.send([post.message("k", "a")])) == [Confirmed()]
    await relaxed.aclose()


@pytest.mark.parametrize(("ending", "sends"), [("says so", 1), ("takes nothing more", 1), ("is silent", 3)])
async def test_a_producer_that_cannot_go_on_is_replaced(
    post: Post, monkeypatch: pytest.MonkeyPatch, ending: str, sends: int
) -> None:
    """The real one cannot be brought to this at will: one of the two has lost track of the other."""
    await post.send_texts("k", "a")
    broker = post.broker
    assert isinstance(broker, KafkaBroker)
    spent = broker._publisher._senders[False]
    given: list[object] = []

    class Producer:
        def produce(self, *_: object, on_delivery: object, **__: object) -> None:
            given.append(on_delivery)
            if ending == "takes nothing more":
                raise KafkaException(KafkaError(KafkaError._FATAL, "out of order"))
            fatal = KafkaError(KafkaError._FATAL, "out of order", fatal=True)
            on_delivery(fatal if ending == "says so" else KafkaError(KafkaError._MSG_TIMED_OUT), None)  # type: ignore[operator]

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

    real = spent._producer
    monkeypatch.setattr(spent, "_producer", Producer())
    for _ in range(sends):
        outcomes = await broker.send([post.message("k", "b"), post.message("k", "c")])
        assert [type(outcome) for outcome in outcomes] == [Unavailable, Unavailable]
    assert len(given) == sends
    await post.send_texts("k", "bc")
    assert broker._publisher._senders[False] is not spent


async def test_a_server_that_is_not_there_is_told_with_its_address_within_five_seconds(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
    broker = connected(f"kafka://127.0.0.1:{port}/?partitions=3")
    post, begun = Post(broker), time.monotonic()
    with caplog.at_level(logging.INFO):
        (outcome,) = await broker.send([post.message()])
        with pytest.raises(BrokerUnavailable, match=f"127.0.0.1:{port}"):
            await post.subscribe()
        with pytest.raises(BrokerUnavailable, match=f"127.0.0.1:{port}"):
            await broker.subscriptions()
    assert isinstance(outcome, Unavailable)
    assert f"127.0.0.1:{port}" in outcome.reason
    assert time.monotonic() - begun < 20  # three times five seconds, and then some
    await broker.aclose()
    assert len(caplog.records) < 10
    assert capfd.readouterr().err == ""
