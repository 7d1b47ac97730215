"""The brokers that are put under fire: one entry each."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import grpc
import msgspec
import pika
from google.pubsub_v1 import SubscriberClient
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from postroad.brokers.kafka import address as kafka_address
from postroad.brokers.kafka.record import attributes_of, headers_of
from postroad.brokers.pubsub import address as pubsub_address
from postroad.brokers.rabbitmq.address import parse
from postroad.events import event_type_of
from proof.chaos.bank import LEASE, Credited
from proof.chaos.ledger import Appearance
from proof.chaos.proxy import ACKNOWLEDGE, ACKNOWLEDGED, COMMIT_OFFSETS, PRODUCE, PUBLISHED, CutAt, Side

_AUDIT: Final = "chaos.audit"
_TOPIC: Final = event_type_of(Credited).topic


@dataclass(frozen=True)
class Aims:
    """Where a connection to the broker is cut. Of each: whether it was told, the relay or the broker."""

    confirm: Callable[[bool], CutAt]
    acknowledgement: Callable[[bool], CutAt]


@dataclass(frozen=True)
class Wire:
    name: str
    url: Callable[[str | Path], str]
    """Of a new broker, from the place where it is: a folder, or a server's own address."""
    watch: Callable[[str], None]
    """From now on nothing that the broker takes is to be forgotten. Once the topics are there, before any event."""
    appearances: Callable[[str], Sequence[Appearance]]
    """Every message the broker has taken, in its order."""
    aims: Aims | None = None
    """None: it has no server of its own, but a file on the disk that will be full."""
    remembers: bool = True
    """What it has outlasts a restart."""
    ordered_for_good: bool = True
    """Also when a worker's connection breaks with messages on it."""
    counts: bool = True
    """It can be asked how much waits in it."""

    @property
    def served(self) -> bool:
        return self.aims is not None


def _appearance(attributes: Mapping[str, str]) -> Appearance:
    return Appearance(attributes["event_id"], attributes["aggregate_id"], int(attributes["version"]))


def _everything_is_kept(url: str) -> None:
    """There is nothing to do."""


# -- embedded --------------------------------------------------------------------------------------------------


def _embedded_appearances(url: str) -> list[Appearance]:
    with closing(sqlite3.connect(url.removeprefix("embedded:"))) as connection:
        rows = connection.execute("SELECT attributes FROM message ORDER BY id").fetchall()
    decode = msgspec.json.Decoder(dict[str, str]).decode
    return [_appearance(decode(attributes)) for (attributes,) in rows]


# -- RabbitMQ --------------------------------------------------------------------------------------------------


def _rabbitmq_url(server: str | Path) -> str:
    """A confirm that stays away past the lease is given up, and a batch finds room with the worker."""
    return f"{server}&publish_timeout={LEASE:g}&prefetch=100"


@contextmanager
def _channel(url: str) -> Iterator[Any]:
    connection = pika.BlockingConnection(parse(url).parameters("audit"))
    try:
        yield connection.channel()
    finally:
        connection.close()


def _bind_audit(url: str) -> None:
    with _channel(url) as channel:
        channel.queue_declare(_AUDIT, durable=True)
        channel.queue_bind(_AUDIT, _TOPIC, "#")


def _audited(url: str) -> list[Appearance]:
    with _channel(url) as channel:
        left = channel.queue_declare(_AUDIT, passive=True).method.message_count
        found = []
        for _, properties, _ in channel.consume(_AUDIT, auto_ack=True) if left else ():
            found.append(_appearance(properties.headers))
            if len(found) == left:
                break
    return found


# -- Kafka -----------------------------------------------------------------------------------------------------


def _kafka_url(server: str | Path) -> str:
    """A dead worker is missed as soon as Kafka allows: its lease is the session."""
    return f"{server}&publish_timeout={LEASE:g}&session_timeout={LEASE:g}"


def _kafka_log(url: str) -> list[Appearance]:
    settings = {
        "group.id": _AUDIT,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }
    consumer = confluent_kafka.Consumer(kafka_address.parse(url).client() | settings)
    try:
        open_ends = len(consumer.list_topics(_TOPIC, timeout=10).topics[_TOPIC].partitions)
        consumer.assign([confluent_kafka.TopicPartition(_TOPIC, number, 0) for number in range(open_ends)])
        found = []
        while open_ends:
            if (record := consumer.poll(10)) is None:
                raise TimeoutError("Kafka does not tell what it has")
            if (error := record.error()) is None:
                found.append(_appearance(attributes_of(headers_of(record))))
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                open_ends -= 1
    finally:
        consumer.close()
    return found


# -- Pub/Sub ---------------------------------------------------------------------------------------------------

_MOST: Final = 1_000
_LONG: Final = 600


@contextmanager
def _subscriber(url: str) -> Iterator[tuple[SubscriberClient, str]]:
    address = pubsub_address.parse(url)
    with grpc.insecure_channel(address.emulator) as channel:
        yield SubscriberClient(transport=SubscriberGrpcTransport(channel=channel)), address.subscription(_AUDIT)


def _subscribe_audit(url: str) -> None:
    with _subscriber(url) as (client, name):
        topic = pubsub_address.parse(url).topic(_TOPIC)
        client.create_subscription(request={"name": name, "topic": topic, "ack_deadline_seconds": _LONG})


def _pulled(url: str) -> list[Appearance]:
    """Not by an ordered subscription: of that the emulator tells no more than a hundred messages at once. It numbers
    them as they come."""
    found = []
    with _subscriber(url) as (client, name):
        asked = {"subscription": name, "max_messages": _MOST, "return_immediately": True}
        while answer := client.pull(request=asked).received_messages:
            found += [one.message for one in answer]
    return [_appearance(message.attributes) for message in sorted(found, key=lambda one: int(one.message_id))]


EMBEDDED: Final = Wire(
    "embedded",
    url=lambda folder: f"embedded:{folder}/broker.db",
    watch=_everything_is_kept,
    appearances=_embedded_appearances,
)
RABBITMQ: Final = Wire(
    "rabbitmq",
    url=_rabbitmq_url,
    watch=_bind_audit,
    appearances=_audited,
    aims=Aims(
        confirm=lambda told: CutAt(ACKNOWLEDGED, told, Side.SERVER),
        acknowledgement=lambda told: CutAt(ACKNOWLEDGED, told),
    ),
)
KAFKA: Final = Wire(
    "kafka",
    url=_kafka_url,
    watch=_everything_is_kept,
    appearances=_kafka_log,
    # An answer does not say to what: it is stopped by what was asked, and let through by what is asked next.
    aims=Aims(
        confirm=lambda told: CutAt(PRODUCE, not told),
        acknowledgement=lambda told: CutAt(COMMIT_OFFSETS, told),
    ),
)
PUBSUB: Final = Wire(
    "pubsub",
    url=lambda server: f"{server}&publish_timeout={LEASE:g}",
    watch=_subscribe_audit,
    appearances=_pulled,
    aims=Aims(
        confirm=lambda told: CutAt(PUBLISHED, told, Side.SERVER),
        acknowledgement=lambda told: CutAt(ACKNOWLEDGE, told),
    ),
    remembers=False,
    ordered_for_good=False,
    # The emulator is asked by a subscription made for it, and then keeps a thread for each of its keys for good.
    counts=False,
)
WIRES: Final = (EMBEDDED, RABBITMQ, KAFKA, PUBSUB)
