"""A message as Pub/Sub carries it, and back again."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from postroad.brokers.base import Refused
from postroad.brokers.pubsub.line import raw
from postroad.message import Message

MAX_REQUEST_BYTES: Final = 10_000_000
MAX_MESSAGE_BYTES: Final = MAX_REQUEST_BYTES - 20_000
"""A request takes no more than ten megabytes, and a dead letter is a little larger than its message."""
MAX_ATTRIBUTES: Final = 100
_MAX_NAME: Final = 256
_MAX_VALUE: Final = 1_024

_OURS: Final = "postroad-"
"""Begins the attributes that the adapter keeps for itself."""
_PACKED: Final = _OURS + "packed"

_PubsubMessage: Final = raw("PubsubMessage")
_decode_packed = msgspec.msgpack.Decoder(tuple[dict[str, str], bytes]).decode


def write(message: Message) -> Any | Refused:
    """A PubsubMessage."""
    attributes = message.attributes()
    if not _fits_plainly(attributes, message.payload) and (refused := _misfit(attributes, message.payload)):
        return refused
    return _PubsubMessage(data=message.payload, attributes=attributes, ordering_key=message.wire_key)


def with_notes(attributes: Mapping[str, str], data: bytes, key: str, **notes: str) -> Any:
    """A PubsubMessage with attributes of the adapter's own; if there is no room for them, the others travel inside."""
    ours = {_OURS + name: value for name, value in notes.items()}
    if len(attributes) + len(ours) > MAX_ATTRIBUTES:
        data = msgspec.msgpack.encode((attributes, data))
        attributes, ours[_PACKED] = {}, "1"
    return _PubsubMessage(data=data, attributes={**attributes, **ours}, ordering_key=key)


def read(letter: Any) -> tuple[dict[str, str], bytes, dict[str, str]]:
    """Attributes, data, and the adapter's own notes."""
    attributes, data = dict(letter.attributes), bytes(letter.data)
    if not any(name.startswith(_OURS) for name in attributes):
        return attributes, data, {}
    notes = {name.removeprefix(_OURS): attributes.pop(name) for name in list(attributes) if name.startswith(_OURS)}
    if "packed" in notes:
        try:
            attributes, data = _decode_packed(data)
        except msgspec.MsgspecError:
            pass  # not ours: it stays as it came
    return attributes, data, notes


def published_at(letter: Any) -> datetime:
    return letter.publish_time.ToDatetime(tzinfo=UTC)  # type: ignore[no-any-return]


def fitting_value(text: str) -> str:
    """As much of it as an attribute holds."""
    return text.encode(errors="replace")[:_MAX_VALUE].decode(errors="ignore")


def _fits_plainly(attributes: Mapping[str, str], payload: bytes) -> bool:
    """Nearly every message does, and this is quickly seen: what is ASCII has as many bytes as characters."""
    names, values = "".join(attributes), "".join(attributes.values())
    return (
        names.isascii()
        and values.isascii()
        and len(names) <= _MAX_NAME
        and len(values) <= _MAX_VALUE
        and len(payload) <= MAX_MESSAGE_BYTES // 2
    )


def _misfit(attributes: Mapping[str, str], payload: bytes) -> Refused | None:
    try:
        sizes = {name: (len(name.encode()), len(value.encode())) for name, value in attributes.items()}
    except UnicodeEncodeError as error:
        return Refused(f"an attribute is not valid Unicode: {error}")
    size = len(payload) + sum(name + value for name, value in sizes.values())
    if size > MAX_MESSAGE_BYTES:
        return Refused(f"the message is {size:,} bytes, Pub/Sub takes {MAX_MESSAGE_BYTES:,}")
    if len(attributes) > MAX_ATTRIBUTES:
        return Refused(f"the message has {len(attributes)} attributes, Pub/Sub takes {MAX_ATTRIBUTES}")
    for name, (name_bytes, value_bytes) in sizes.items():
        if name_bytes > _MAX_NAME:
            return Refused(f"the attribute name {name[:40]!r}… is longer than the {_MAX_NAME} bytes that Pub/Sub takes")
        if value_bytes > _MAX_VALUE:
            return Refused(f"attribute {name} is {value_bytes:,} bytes, Pub/Sub takes {_MAX_VALUE:,}")
    return None
