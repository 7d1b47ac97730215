"""Protobuf messages as events: in binary, and read back before they are written.

Imported only when one is used: protobuf is an optional dependency.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from google.protobuf.json_format import MessageToDict, ParseDict, SerializeToJsonError
from google.protobuf.json_format import ParseError as JsonParseError
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Protobuf
from google.protobuf.timestamp_pb2 import Timestamp

from postroad.codec.faithful import Step, Unfaithful
from postroad.errors import InvalidPayload, UnreadableMessage
from postroad.events import EventType

CONTENT_TYPE: Final = "application/x-protobuf"

_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799


def encode(event: object, event_type: EventType) -> bytes:
    """The event's bytes. Raises InvalidPayload, naming the field, when it would not arrive as it is."""
    try:
        return _encoded(event, event_type)
    except Unfaithful as fault:
        raise InvalidPayload(event_type.name, fault.path, fault.rule) from None
    except Exception as error:
        # Too deep for its reader, or larger than protobuf's two gigabytes.
        rule = f"cannot be encoded: {type(error).__name__}: {error}"
        raise InvalidPayload(event_type.name, "payload", rule) from error


def decode(data: bytes, event_type: EventType) -> Protobuf:
    """The event. Raises UnreadableMessage; unknown fields are kept, and passed over."""
    try:
        event: Protobuf = _class(event_type).FromString(data)
    except DecodeError as error:
        raise UnreadableMessage(f"{_told(event_type)}: field payload: is no such message: {error}") from None
    if missing := _missing(event):
        raise UnreadableMessage(f"{_told(event_type)}: field {missing[0]}: is missing")
    return event


def plain(data: bytes, event_type: EventType) -> dict[str, Any]:
    """As protobuf's JSON has it, with the names of the .proto file. Raises UnreadableMessage."""
    event = decode(data, event_type)
    try:
        return MessageToDict(event, preserving_proto_field_name=True)
    except (SerializeToJsonError, TypeError, ValueError, RecursionError) as error:
        # Such as a time in the year 10000, which is no JSON although it is protobuf.
        raise UnreadableMessage(f"{_told(event_type)}: has no form in JSON: {error}") from error


def from_plain(fields: dict[str, Any], event_type: EventType) -> Protobuf:
    """The way back from `plain`. Raises UnreadableMessage."""
    if not isinstance(fields, dict):
        raise UnreadableMessage(f"{_told(event_type)}: is a {type(fields).__name__}, not an object with its fields")
    try:
        event: Protobuf = ParseDict(fields, _class(event_type)())
    except (JsonParseError, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise UnreadableMessage(f"{_told(event_type)}: its fields make no such message: {error}") from error
    return event


def _encoded(event: object, event_type: EventType) -> bytes:
    if type(event) is not event_type.cls or not isinstance(event, Protobuf):
        raise Unfaithful(f"is a {type(event).__name__}, not a {event_type.cls.__name__}")
    if missing := _missing(event):
        steps = (int(step) if step.isdecimal() else step for step in re.findall(r"[^.\[\]]+", missing[0]))
        raise Unfaithful("is required, but not set", *steps)
    data = event.SerializeToString(deterministic=True)
    # What is nested too deeply can be written, but not be read.
    if type(event).FromString(data).SerializeToString(deterministic=True) != data:
        raise Unfaithful("would arrive changed")
    _check(event)
    return data


def _check(value: object) -> None:
    """What can be sent, but not be used by who receives it."""
    if isinstance(value, str):
        if "\0" in value:
            raise Unfaithful("contains a NUL character, which PostgreSQL cannot store")
        return
    if isinstance(value, Timestamp):
        if not _FIRST_SECOND <= value.seconds <= _LAST_SECOND or not 0 <= value.nanos < 1_000_000_000:
            raise Unfaithful("is no time between the years 1 and 9999")
        return
    for step, part in _parts(value):
        try:
            _check(part)
        except Unfaithful as fault:
            raise fault.within(step) from None


def _parts(value: object) -> Iterable[tuple[Step, object]]:
    if isinstance(value, Protobuf):
        return [(field.name, part) for field, part in value.ListFields()]
    if isinstance(value, Mapping):
        return [(str(key), part) for key, part in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return list(enumerate(value))
    return ()


def _missing(event: Any) -> list[str]:
    """The paths of required fields, which only proto2 has, that are not set."""
    return list(event.FindInitializationErrors())


def _class(event_type: EventType) -> Any:
    return event_type.cls


def _told(event_type: EventType) -> str:
    return f"{event_type.name} v{event_type.schema_version}"
