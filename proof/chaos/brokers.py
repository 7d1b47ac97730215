"""The brokers that are put under fire: one entry each."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pika

from postroad.brokers.rabbitmq.address import parse
from postroad.events import event_type_of
from proof.chaos.bank import LEASE, Credited
from proof.chaos.ledger import Appearance

_AUDIT: Final = "chaos.audit"


@dataclass(frozen=True)
class Wire:
    name: str
    url: Callable[[str | Path], str]
    """Of a new broker, from the place where it is: a folder, or a server's own address."""
    watch: Callable[[str], None]
    """From now on nothing that the broker takes is to be forgotten. Once the topics are there, before any event."""
    appearances: Callable[[str], Sequence[Appearance]]
    """Every message the broker has taken, in its order."""
    served: bool
    """It has a server of its own, instead of a file on the disk that will be full."""


def _appearance(attributes: Mapping[str, str]) -> Appearance:
    return Appearance(attributes["event_id"], attributes["aggregate_id"], int(attributes["version"]))


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
        channel.queue_bind(_AUDIT, event_type_of(Credited).topic, "#")


def _audited(url: str) -> list[Appearance]:
    with _channel(url) as channel:
        left = channel.queue_declare(_AUDIT, passive=True).method.message_count
        found = []
        for _, properties, _ in channel.consume(_AUDIT, auto_ack=True) if left else ():
            found.append(_appearance(properties.headers))
            if len(found) == left:
                break
    return found


EMBEDDED: Final = Wire(
    "embedded",
    url=lambda folder: f"embedded:{folder}/broker.db",
    watch=lambda url: None,
    appearances=_embedded_appearances,
    served=False,
)
RABBITMQ: Final = Wire("rabbitmq", url=_rabbitmq_url, watch=_bind_audit, appearances=_audited, served=True)
WIRES: Final = (EMBEDDED, RABBITMQ)
