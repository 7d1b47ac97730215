"""Kafka as an outsider sees it: to break what the adapter relies on, and to look at what it did."""

import atexit
import time
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from postroad.brokers import connect_broker
from postroad.brokers.base import Broker
from postroad.brokers.kafka.address import parse
from postroad.brokers.kafka.broker import KafkaBroker
from postroad.brokers.kafka.client import let_go
from postroad.brokers.kafka.reader import Reader
from postroad.clock import SystemClock
from postroad.errors import BrokerUnavailable


def connected(url: str, **options: object) -> KafkaBroker:
    """A broker; `options` stand instead of the URL's."""
    broker: Broker = connect_broker(with_options(url, **options), clock=SystemClock())
    assert isinstance(broker, KafkaBroker)
    return broker


def with_options(url: str, **options: object) -> str:
    """Of an option that is given twice, the last one counts."""
    return "&".join([url, *(f"{name}={value}" for name, value in options.items())])


_admins: dict[str, AdminClient] = {}


def admin(url: str) -> AdminClient:
    """Kept: what it was asked would end with it."""
    if url not in _admins:
        _admins[url] = AdminClient(parse(url).client())
    return _admins[url]


@atexit.register
def _end() -> None:
    while _admins:
        let_go([_admins.popitem()[1]])


def awake(url: str) -> str:
    """A server that has just been made keeps its first group waiting, until it has a place for groups at all."""
    for _ in range(20):
        with suppress(BrokerUnavailable):
            Reader(parse(url)).committed("awake", "awake", [0])
            break
    return url


def create_topic(url: str, topic: str, partitions: int = 3, **config: str) -> None:
    new = NewTopic(topic, partitions, 1, config={name.replace("_", "."): value for name, value in config.items()})
    admin(url).create_topics([new])[topic].result()
    _until_seen(url, topic, partitions)


def let_grow(url: str, topic: str, partitions: int) -> None:
    admin(url).create_partitions([NewPartitions(topic, partitions)])[topic].result()
    _until_seen(url, topic, partitions)


def _until_seen(url: str, topic: str, partitions: int) -> None:
    """The server that is asked hears of it a moment later."""
    while len(found.partitions if (found := admin(url).list_topics(timeout=5).topics.get(topic)) else ()) < partitions:
        time.sleep(0.01)


def remove_topics(url: str, *names: str) -> None:
    if there := sorted(topics(url) & set(names)):
        for future in admin(url).delete_topics(there).values():
            future.result()
    while topics(url) & set(names):
        time.sleep(0.01)


def topics(url: str) -> set[str]:
    return set(admin(url).list_topics(timeout=5).topics)


def committed(url: str, group: str) -> dict[int, int]:
    """Of a group of ours, or of a snapshot."""
    topic = group.partition("@")[0].rpartition(".")[0]
    return Reader(parse(url)).committed(
        group, topic, range(len(admin(url).list_topics(timeout=5).topics[topic].partitions))
    )


def commit(url: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    Reader(parse(url)).commit(group, topic, offsets)


def records(url: str, topic: str) -> list[Message]:
    """Everything that is in a topic, partition by partition."""
    settings: dict[str, Any] = {
        "group.id": "outsider",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(parse(url).client() | settings)
    try:
        count = len(consumer.list_topics(topic, timeout=5).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in range(count)])
        found: list[Message] = []
        while count:
            record = consumer.poll(10)
            assert record is not None
            if record.error() is None:
                found.append(record)
            else:
                assert record.error().code() == KafkaError._PARTITION_EOF
                count -= 1
        return sorted(found, key=lambda record: (record.partition(), record.offset()))
    finally:
        consumer.close()
