"""An event's schema as a file: JSON Schema for what travels as JSON, descriptors for protobuf."""

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

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
            _with_imports(cls.DESCRIPTOR.file, files)  # type: ignore[attr-defined]
    described = FileDescriptorSet()
    for file in files.values():
        file.CopyToProto(described.file.add())
    return described.SerializeToString(deterministic=True)


def _with_imports(file: "FileDescriptor", files: "dict[str, FileDescriptor]") -> None:
    for imported in file.dependencies:
        _with_imports(imported, files)
    files[file.name] = file
