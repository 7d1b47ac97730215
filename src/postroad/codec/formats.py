"""Which form an event's bytes have: its class says so."""

from typing import Any, Protocol

from postroad.codec import json
from postroad.errors import UnreadableMessage
from postroad.events import EventType, is_protobuf
from postroad.message import Message


class Format(Protocol):
    """What the modules json and protobuf both are."""

    CONTENT_TYPE: str

    def encode(self, event: object, event_type: EventType) -> bytes: ...

    def decode(self, data: bytes, event_type: EventType) -> object: ...

    def plain(self, data: bytes, event_type: EventType) -> dict[str, Any]:
        """The payload as plain values, for upcasting."""

    def from_plain(self, fields: dict[str, Any], event_type: EventType) -> object: ...


def format_of(event_type: EventType) -> Format:
    if not is_protobuf(event_type.cls):
        return json
    from postroad.codec import protobuf  # an optional dependency, which this class shows to be there

    return protobuf


def content_type(message: Message) -> str:
    return message.content_type.partition(";")[0].strip()


def body(message: Message, event_type: EventType) -> bytes:
    """The event's own bytes. Raises UnreadableMessage for another form, or an envelope that contradicts the message."""
    wanted = format_of(event_type).CONTENT_TYPE
    if content_type(message) != wanted:
        raise UnreadableMessage(f"{message.type}: content type {message.content_type!r} is not {wanted}")
    if event_type.envelope is None:
        return message.payload
    from postroad.codec.envelope import unwrap

    return unwrap(message, event_type)
