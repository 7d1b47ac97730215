"""From two files or folders to the breaks between them."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from postroad.codec.compat import json_schema
from postroad.codec.compat.break_ import Break
from postroad.errors import ConfigurationError, MissingExtra

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

_PROTO: Final = ".proto"
_DESCRIPTORS: Final = (".binpb", ".desc", ".pb")
_JSON: Final = ".json"
_SUFFIXES: Final = (_PROTO, *_DESCRIPTORS, _JSON)


@dataclass(slots=True)
class _Schemas:
    json: dict[str, json_schema.Schema] = field(default_factory=dict)
    protobuf: "list[FileDescriptorProto]" = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    """Files that stand for one schema each."""


def check(old: Path, new: Path, includes: Sequence[Path] = ()) -> list[Break]:
    """Every break between two schemas, or two folders of them.

    Raises ConfigurationError for what is no schema, MissingExtra for want of a library.
    """
    if old.is_dir() != new.is_dir():
        raise ConfigurationError(f"Of {old} and {new} one is a folder. Give two files or two folders.")
    before, after = _read(old, includes), _read(new, includes)
    if old.is_file():
        if bool(before.json) != bool(after.json):
            raise ConfigurationError(f"{old} and {new} are schemas of different kinds. Give two of one kind.")
        # Two files, whatever they are called.
        after.json, after.names = dict(zip(before.json, after.json.values(), strict=True)), before.names
    breaks = [Break(name, Path(name).stem, "", "schema-removed") for name in before.names - after.names]
    for name in before.json.keys() & after.json.keys():
        try:
            breaks += json_schema.compare(name, before.json[name], after.json[name])
        except (AttributeError, TypeError, RecursionError):
            raise ConfigurationError(f"{name} is no JSON Schema: a keyword has a value of the wrong kind.") from None
    if before.protobuf:
        from postroad.codec.compat.protobuf import compare, definitions  # an optional dependency

        breaks += compare(definitions(before.protobuf), definitions(after.protobuf))
    return sorted(set(breaks))


def _read(place: Path, includes: Sequence[Path]) -> _Schemas:
    found = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.suffix in _SUFFIXES)
    root = place.parent if place.is_file() else place
    if not found:
        raise ConfigurationError(f"{place} has no schema in it. Schemas end with {', '.join(_SUFFIXES)}.")
    schemas = _Schemas()
    for path in found:
        if path.suffix == _JSON:
            schemas.json[_name(path, root)] = _json(path)
        elif path.suffix in _DESCRIPTORS:
            schemas.protobuf += _descriptors(path, path.read_bytes())
        elif path.suffix != _PROTO:
            raise ConfigurationError(f"{path} is no schema: it must end with {', '.join(_SUFFIXES)}.")
        if path.suffix != _PROTO:
            schemas.names.add(_name(path, root))
    if sources := [path for path in found if path.suffix == _PROTO]:
        schemas.protobuf += _compiled(sources, [*includes, root])
    return schemas


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _json(path: Path) -> json_schema.Schema:
    try:
        schema: Any = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is no JSON: {error}") from None
    if not isinstance(schema, dict):
        raise ConfigurationError(f"{path} is no JSON Schema: it is a {type(schema).__name__}, not an object.")
    return schema


def _compiled(sources: Sequence[Path], roots: Sequence[Path]) -> "list[FileDescriptorProto]":
    if find_spec("grpc_tools") is None:
        raise ConfigurationError("Reading .proto files needs a compiler. Run: pip install grpcio-tools")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "schemas.binpb"
        places = [f"--proto_path={root}" for root in roots]
        command = [sys.executable, "-m", "grpc_tools.protoc", *places, f"--descriptor_set_out={target}"]
        ran = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True, check=False)
        if ran.returncode or not target.exists():
            told = ran.stderr.strip().partition("\n")[0] or "protoc failed"
            raise ConfigurationError(f"The .proto files cannot be compiled: {told}")
        return _descriptors(target, target.read_bytes())


def _descriptors(path: Path, data: bytes) -> "list[FileDescriptorProto]":
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from google.protobuf.message import DecodeError
    except ModuleNotFoundError:
        raise MissingExtra("protobuf", "protobuf") from None
    try:
        return list(FileDescriptorSet.FromString(data).file)
    except DecodeError:
        raise ConfigurationError(f"{path} is no set of protobuf descriptors.") from None
