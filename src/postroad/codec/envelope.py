"""A protobuf message around the event that repeats the message's identity, for who reads the payload alone."""

from datetime import UTC
from functools import cache
from typing import Any, Final
from uuid import UUID

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto
from google.protobuf.message import DecodeError

from postroad.codec.late_version import without_version
from postroad.errors import ConfigurationError, InvalidPayload, UnreadableMessage
from postroad.events import EventType, is_protobuf
from postroad.message import Message, parse_id

_TEXTS: Final = ("event_id", "aggregate_id", "aggregate_type")
_INTEGERS: Final = (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64)
_TIMESTAMP: Final = "google.protobuf.Timestamp"


def check_envelope(event_type: EventType) -> None:
    """Raises ConfigurationError, naming the field, for a class that cannot be the envelope of this event."""
    if not (isinstance(event_type.envelope, type) and is_protobuf(event_type.envelope)):
        raise ConfigurationError(
            f"{event_type.name}: envelope is no protobuf message class. Give one, or leave it out."
        )
    if not is_protobuf(event_type.cls):
        raise ConfigurationError(
            f"{event_type.name}: {event_type.cls.__qualname__} is no protobuf message, so it has no place in an "
            "envelope. Leave out `envelope`."
        )
    for name in _TEXTS:
        _require(event_type, name, (FieldDescriptor.TYPE_STRING,), "string")
    _require(event_type, "event_type", (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_ENUM), "string or an enum")
    _require(event_type, "version", _INTEGERS, "int64 or uint64")
    _require(event_type, "occurred_at", (FieldDescriptor.TYPE_MESSAGE,), _TIMESTAMP, f".{_TIMESTAMP}")
    _member(event_type)
    _type_value(event_type)


def wrap(message: Message, event_type: EventType) -> Message:
    """The message with its payload in the envelope. A version that is still to come is appended by the relay."""
    envelope: Any = event_type.envelope()  # type: ignore[misc]
    envelope.event_id, envelope.event_type = str(message.id), _type_value(event_type)
    envelope.aggregate_id, envelope.aggregate_type = message.aggregate_id, message.aggregate_type
    envelope.occurred_at.FromDatetime(message.occurred_at.astimezone(UTC))
    # Also of no bytes at all: an event without any field set is there, too.
    getattr(envelope, _member(event_type)).MergeFromString(message.payload)
    content_type = message.content_type
    if message.version is None:
        content_type = without_version(content_type, _descriptor(event_type).fields_by_name["version"].number)
    else:
        envelope.version = message.version
    payload = envelope.SerializeToString(deterministic=True)
    try:
        envelope.FromString(payload)
    except DecodeError:
        # As deep as can be read, the event would be one level too deep here.
        raise InvalidPayload(message.type, "payload", "is nested too deeply to be read in its envelope") from None
    return msgspec.structs.replace(message, payload=payload, content_type=content_type)


def unwrap(message: Message, event_type: EventType) -> bytes:
    """The event's own bytes. Raises UnreadableMessage if the envelope is another event's, or says otherwise."""
    try:
        envelope: Any = event_type.envelope.FromString(message.payload)  # type: ignore[union-attr]
    except DecodeError as error:
        raise UnreadableMessage(f"{message.type}: the envelope cannot be read: {error}") from None
    member = _member(event_type)
    if not envelope.HasField(member):
        raise UnreadableMessage(f"{message.type}: field {member} of the envelope is not set")
    _check_identity(message, envelope)
    data: bytes = getattr(envelope, member).SerializeToString(deterministic=True)
    return data


def _check_identity(message: Message, envelope: Any) -> None:
    """Two identities in one message: whoever believes the other one would handle it twice, or not at all."""
    told = {"event_id": message.id, "aggregate_id": message.aggregate_id, "version": message.version or 0}
    for name, expected in told.items():
        found = getattr(envelope, name)
        if (_id(found) if name == "event_id" else found) != expected:
            raise UnreadableMessage(
                f"{message.type}: {name} is {found!r} in the envelope, but {str(expected)!r} in the attributes"
            )
    # Attributes may be written to the second.
    if abs(_seconds(envelope.occurred_at) - message.occurred_at.timestamp()) >= 1:
        raise UnreadableMessage(f"{message.type}: occurred_at is another time in the envelope than in the attributes")


def _id(text: str) -> UUID | None:
    """However it is written: a ULID and a UUID in capitals are the same id."""
    try:
        return parse_id(text)
    except ValueError:
        return None


def _seconds(timestamp: Any) -> float:
    return float(timestamp.seconds + timestamp.nanos / 1e9)


def _require(event_type: EventType, name: str, types: tuple[int, ...], told: str, type_name: str = "") -> None:
    field = _fields(event_type).get(name)
    if field is None or field.type not in types or not field.type_name.endswith(type_name) or _is_repeated(field):
        raise ConfigurationError(
            f"{event_type.name}: the envelope {_descriptor(event_type).full_name} needs a field {name} of type {told}. "
            "It repeats the message's attribute of that name."
        )


@cache
def _member(event_type: EventType) -> str:
    """The field of the envelope that holds this event."""
    ours = event_type.cls.DESCRIPTOR.full_name  # type: ignore[attr-defined]
    fields = [field for name, field in _fields(event_type).items() if name != "occurred_at"]
    found = [field.name for field in fields if field.type_name == f".{ours}" and not _is_repeated(field)]
    if len(found) != 1:
        raise ConfigurationError(
            f"{event_type.name}: the envelope {_descriptor(event_type).full_name} has {len(found) or 'no'} fields of "
            f"type {ours}. It needs exactly one."
        )
    return found[0]


@cache
def _type_value(event_type: EventType) -> str | int:
    """The event's name, or the value of the enum that ends with it: video.created is EVENT_TYPE_VIDEO_CREATED."""
    enum = _descriptor(event_type).fields_by_name["event_type"].enum_type
    if enum is None:
        return event_type.name
    wanted = event_type.name.replace(".", "_").upper()
    for value in enum.values:
        if value.name == wanted or value.name.endswith(f"_{wanted}"):
            return int(value.number)
    raise ConfigurationError(
        f"{event_type.name}: the enum {enum.full_name} has no value for it. Add {wanted}, or a value that ends with it."
    )


def _is_repeated(field: FieldDescriptorProto) -> bool:
    return field.label == FieldDescriptorProto.LABEL_REPEATED


def _fields(event_type: EventType) -> dict[str, FieldDescriptorProto]:
    """As the .proto file has them: that is told alike by every release of protobuf."""
    told = DescriptorProto()
    _descriptor(event_type).CopyToProto(told)
    return {field.name: field for field in told.field}


def _descriptor(event_type: EventType) -> Descriptor:
    descriptor: Descriptor = event_type.envelope.DESCRIPTOR  # type: ignore[union-attr]
    return descriptor
