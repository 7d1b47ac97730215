"""A message as RabbitMQ carries it, and back again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import pika

from postroad.brokers.base import Refused
from postroad.message import Message

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""What RabbitMQ 4 takes by default; earlier ones take more."""
_MAX_ATTRIBUTES_BYTES: Final = 120_000
"""They travel in one frame, and a frame has at most 131,072 bytes."""
_SHORT: Final = 255
"""Bytes that a header's name, a routing key and a plain property may have."""
_ROOM_PER_ATTRIBUTE: Final = 6

OURS: Final = "x-postroad-"
"""Begins the headers that the adapter keeps for itself. A server's own begin with x- too."""
_PERSISTENT: Final = 2


@dataclass(frozen=True, slots=True, eq=False)
class Letter:
    """Ready to be published."""

    exchange: str
    routing_key: str
    properties: Any
    body: bytes = field(repr=False)


def write(message: Message, exchange: str, routing_key: str, now: datetime) -> Letter | Refused:
    attributes = message.attributes()
    if not _fits_plainly(attributes, message.payload, routing_key) and (
        refused := _misfit(attributes, message.payload, routing_key)
    ):
        return refused
    return Letter(exchange, routing_key, properties(attributes, now), message.payload)


def _fits_plainly(attributes: Mapping[str, str], payload: bytes, routing_key: str) -> bool:
    """Nearly every message does, and this is quickly seen: what is ASCII has as many bytes as characters."""
    names, values = "".join(attributes), "".join(attributes.values())
    return (
        names.isascii()
        and values.isascii()
        and routing_key.isascii()
        and max(len(names), len(routing_key)) <= _SHORT
        and len(values) <= _MAX_ATTRIBUTES_BYTES // 2
        and len(payload) <= MAX_MESSAGE_BYTES // 2
    )


def _misfit(attributes: Mapping[str, str], payload: bytes, routing_key: str) -> Refused | None:
    try:
        sizes = {name: len(name.encode()) for name in attributes}
        size = sum(sizes.values()) + sum(len(value.encode()) + _ROOM_PER_ATTRIBUTE for value in attributes.values())
        key_size = len(routing_key.encode())
    except UnicodeEncodeError as error:
        return Refused(f"an attribute is not valid Unicode: {error}")
    if size + len(payload) > MAX_MESSAGE_BYTES:
        return Refused(f"the message is {size + len(payload):,} bytes, RabbitMQ takes {MAX_MESSAGE_BYTES:,}")
    if size > _MAX_ATTRIBUTES_BYTES:
        return Refused(f"the attributes are {size:,} bytes, RabbitMQ takes {_MAX_ATTRIBUTES_BYTES:,}")
    if key_size > _SHORT:
        return Refused(f"the event type is {key_size} bytes long, RabbitMQ takes {_SHORT} in a routing key")
    if too_long := next((name for name, length in sizes.items() if length > _SHORT), None):
        return Refused(f"the attribute name {too_long[:40]!r}… is longer than the {_SHORT} bytes that RabbitMQ takes")
    return None


def properties(attributes: Mapping[str, str], now: datetime, **ours: str) -> Any:
    """`ours` are headers of the adapter, without their prefix."""
    return pika.BasicProperties(
        # For whoever looks at the queue with other eyes; what counts for us stands in the headers.
        content_type=_short(attributes.get("content_type", "application/json")),
        message_id=_short(attributes.get("event_id", "")),
        timestamp=int(now.timestamp()),
        delivery_mode=_PERSISTENT,
        headers={**attributes, **{OURS + name: value for name, value in ours.items()}},
    )


def attributes_of(properties: Any) -> dict[str, str]:
    """Without the server's headers and the adapter's. A foreign value is taken as its text."""
    return {
        name: value if isinstance(value, str) else _text(value)
        for name, value in _headers(properties)
        if not name.startswith("x-")
    }


def own_headers(properties: Any) -> dict[str, str]:
    """The adapter's, without their prefix."""
    return {name.removeprefix(OURS): str(value) for name, value in _headers(properties) if name.startswith(OURS)}


def published_at(properties: Any) -> datetime | None:
    """To the second; none if the message came from elsewhere and does not say."""
    try:
        return None if properties.timestamp is None else datetime.fromtimestamp(properties.timestamp, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def is_short(text: str) -> bool:
    """Whether it can be a name, or a plain property."""
    try:
        return len(text.encode()) <= _SHORT
    except UnicodeEncodeError:
        return False


def _short(text: str) -> str | None:
    return text if text and is_short(text) else None


def _headers(properties: Any) -> Iterable[tuple[str, Any]]:
    for name, value in (properties.headers or {}).items():
        # A name that is no UTF-8 is left as bytes by pika.
        yield (name if isinstance(name, str) else _text(name)), value


def _text(value: object) -> str:
    if isinstance(value, bytes):
        # Python's own sign for what is no text has three bytes, and so would not always fit where one had been.
        return value.decode(errors="replace").replace("\ufffd", "?")
    return "" if value is None else str(value)
