"""An event's schema as a file: JSON Schema for what travels as JSON, descriptors for protobuf."""

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from postroad.errors import ConfigurationError
from postroad.events import EventType, is_protobuf, is_pydantic

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def export(event_type: EventType) -> tuple[str, bytes]:
    """Name and contents; the same for the same class."""
    name = f"{event_type.name}.v{event_type.schema_version}"
    if is_protobuf(event_type.cls):
        return f"{name}.binpb", _descriptors(event_type)
    schema = {"$schema": _DIALECT, **_json_schema(event_type.cls)}
    return f"{name}.json", (json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def for_pubsub(event_types: Iterable[EventType]) -> Iterator[tuple[str, bytes]]:
    """Names and contents: for each topic with protobuf the one schema that Pub/Sub can hold its messages to."""
    from postroad.codec.flat import flattened  # needs an optional dependency

    carried: dict[str, dict[str, Any]] = {}
    for one in event_types:
        if is_protobuf(one.cls):
            outermost: Any = one.envelope or one.cls
            carried.setdefault(one.topic, {})[outermost.DESCRIPTOR.full_name] = outermost
    for topic, messages in sorted(carried.items()):
        if len(messages) > 1:
            raise ConfigurationError(
                f"The events of {topic} travel in {' and '.join(sorted(messages))}, and Pub/Sub holds all messages of "
                "a topic to one schema. Declare them with one envelope, or give them topics of their own."
            )
        (only,) = messages.values()
        yield f"{topic}.proto", flattened(only).encode()


def _json_schema(cls: Any) -> dict[str, Any]:
    if is_pydantic(cls):
        return dict(cls.model_json_schema())
    if issubclass(cls, dict):
        return {"title": cls.__name__, "type": "object"}
    return msgspec.json.schema(cls)


def _descriptors(event_type: EventType) -> bytes:
    """The file that defines the message (its envelope, if it has one), behind all that it imports."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet  # an optional dependency

    files: dict[str, FileDescriptor] = {}
    for cls in (event_type.cls, event_type.envelope):
        if cls is not None:
            with_imports(cls.DESCRIPTOR.file, files)  # type: ignore[attr-defined]
    described = FileDescriptorSet()
    for file in files.values():
        file.CopyToProto(described.file.add())
    return described.SerializeToString(deterministic=True)


def with_imports(file: "FileDescriptor", files: "dict[str, FileDescriptor]") -> None:
    for imported in file.dependencies:
        with_imports(imported, files)
    files[file.name] = file
