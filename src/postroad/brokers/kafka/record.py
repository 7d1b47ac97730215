"""A message as Kafka keeps it: key, value, and headers that are the attributes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Message as Record

from postroad.brokers.base import Refused
from postroad.message import Message

MAX_MESSAGE_BYTES: Final = 1_000_000
"""Payload and attributes. A server takes 1,048,588 bytes unless told otherwise, with key and framing."""
OWN: Final = "postroad."
"""Begins the names of headers that are ours and no attributes."""
FOR: Final = "postroad.for"
"""The only subscription that a revived message is meant for."""


@dataclass(frozen=True, slots=True)
class Letter:
    """What goes to Kafka."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


def write(message: Message) -> Letter | Refused:
    attributes = message.attributes()
    try:
        # As bytes: the client cuts a text off where it has a NUL.
        headers = [(name, value.encode()) for name, value in attributes.items()]
        size = len(message.payload) + len("".join(attributes).encode()) + sum([len(value) for _, value in headers])
        key = message.wire_key.encode() or None
    except UnicodeEncodeError:
        return Refused("the key or an attribute is no valid text")
    if size > MAX_MESSAGE_BYTES:
        return Refused(f"the message is {size:,} bytes, Kafka takes {MAX_MESSAGE_BYTES:,}")
    return Letter(message.topic, key, message.payload, headers)


def headers_of(record: Record) -> dict[str, str]:
    """Of several with one name the last one counts, as everywhere."""
    found = record.headers() or []
    pairs = found.items() if isinstance(found, dict) else found
    return {name: _text(value) for name, value in pairs}


def attributes_of(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if not name.startswith(OWN)}


def key_of(record: Record, attributes: Mapping[str, str]) -> str:
    """The ordering key; a delayed message has none. Somebody else's message may have no attributes."""
    if "deliver_at" in attributes:
        return ""
    return attributes.get("aggregate_id") or _text(record.key())


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
