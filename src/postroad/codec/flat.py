"""A protobuf message as one .proto file without imports, and with nothing but this message at its top: so Pub/Sub's
registry takes it. What the message imports stands inside it. On the wire it is the same message."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from postroad.codec.export import with_imports
from postroad.errors import ConfigurationError

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor

_Type = DescriptorProto | EnumDescriptorProto
_INDENT: Final = "  "


def flattened(cls: Any) -> str:
    """The same for the same class. Raises ConfigurationError for what such a file cannot say."""
    files: dict[str, FileDescriptor] = {}
    with_imports(cls.DESCRIPTOR.file, files)
    return _Flat(cls.DESCRIPTOR.full_name, files).text()


class _Flat:
    def __init__(self, root: str, files: "dict[str, FileDescriptor]") -> None:
        self._root = root
        self._types: dict[str, _Type] = {}
        self._owner: dict[str, str] = {}
        """Which type goes into the file as a whole, of each that is nested in it."""
        self._syntax: dict[str, str] = {}
        for file in files.values():
            self._learn(file)
        self._wanted = [root]
        for name in self._wanted:  # it grows meanwhile
            self._wanted += sorted({self._owner[used] for used in self._used_by(name)} - {*self._wanted})
        self._called = self._names()

    def text(self) -> str:
        syntaxes = {self._syntax[name] for name in self._wanted}
        if len(syntaxes) > 1 or "editions" in syntaxes:
            raise self._refused(f"it is made of files in {' and '.join(sorted(syntaxes))}")
        self._proto2 = syntaxes == {"proto2"}
        lines = [f'syntax = "{syntaxes.pop()}";', "", *self._message(self._root)]
        return "\n".join(lines) + "\n"

    # -- what there is -------------------------------------------------------------------------------

    def _learn(self, file: "FileDescriptor") -> None:
        described = FileDescriptorProto()
        file.CopyToProto(described)
        package = f"{described.package}." if described.package else ""
        for one in _types_in(described.message_type, described.enum_type):
            self._learn_type(one, package + one.name, package + one.name, described.syntax or "proto2")

    def _learn_type(self, one: _Type, name: str, owner: str, syntax: str) -> None:
        owner = name if name == self._root else owner
        self._types[name], self._owner[name], self._syntax[name] = one, owner, syntax
        if isinstance(one, DescriptorProto):
            for inner in _types_in(one.nested_type, one.enum_type):
                self._learn_type(inner, f"{name}.{inner.name}", owner, syntax)

    def _used_by(self, name: str) -> Iterator[str]:
        one = self._types[name]
        if isinstance(one, DescriptorProto):
            yield from (field.type_name[1:] for field in one.field if field.type_name)
            for inner in self._inner(name):
                yield from self._used_by(inner)

    def _inner(self, name: str) -> list[str]:
        """The messages and enums that are nested in a message."""
        one = self._types[name]
        assert isinstance(one, DescriptorProto)
        nested = (f"{name}.{each.name}" for each in _types_in(one.nested_type, one.enum_type))
        return [inner for inner in nested if inner != self._root]

    # -- what it is called ---------------------------------------------------------------------------

    def _names(self) -> dict[str, str]:
        """Of the types that move into the root. There, types, fields and the values of enums share one scope."""
        root = self._types[self._root]
        assert isinstance(root, DescriptorProto)
        taken = {one.name for one in root.field} | {one.name for one in root.oneof_decl}
        taken |= {one.name for one in _types_in(root.nested_type, root.enum_type)}
        taken |= {value.name for one in root.enum_type for value in one.value}
        called = {self._root: root.name}
        for name in self._wanted[1:]:
            one = self._types[name]
            values = {value.name for value in one.value} if isinstance(one, EnumDescriptorProto) else set()
            if taken & {one.name, *values}:
                called[name] = name.replace(".", "_")
                values = {f"{called[name]}_{value}" for value in values}
            else:
                called[name] = one.name
            taken |= {called[name], *values}
        return called

    def _path(self, name: str) -> str:
        """As fields refer to it, from the top."""
        owner = self._owner[name]
        place = self._called[self._root] + ("" if owner == self._root else f".{self._called[owner]}")
        return f".{place}{name.removeprefix(owner)}"

    # -- how it is written ---------------------------------------------------------------------------

    def _type(self, name: str) -> Iterator[str]:
        one = self._types[name]
        return self._message(name) if isinstance(one, DescriptorProto) else self._enum(name, one)

    def _message(self, name: str) -> Iterator[str]:
        one = self._types[name]
        assert isinstance(one, DescriptorProto)
        if one.extension_range:
            raise self._refused(f"{name} may be extended")
        yield f"message {self._called.get(name, one.name)} {{"
        for inner in [*self._inner(name), *(self._wanted[1:] if name == self._root else ())]:
            if not _is_map(self._types[inner]):
                yield from _indented(self._type(inner))
        yield from _indented(self._fields(one))
        yield "}"

    def _enum(self, name: str, one: EnumDescriptorProto) -> Iterator[str]:
        called = self._called.get(name, one.name)
        yield f"enum {called} {{"
        if one.options.allow_alias:
            yield f"{_INDENT}option allow_alias = true;"
        for value in one.value:
            told = value.name if called == one.name else f"{called}_{value.name}"
            yield f"{_INDENT}{told} = {value.number};"
        yield "}"

    def _fields(self, one: DescriptorProto) -> Iterator[str]:
        begun: set[int] = set()
        for field in one.field:
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield f"{self._label(field)}{self._field(field)}"
            elif field.oneof_index not in begun:
                begun.add(field.oneof_index)
                together = [other for other in one.field if _is_of(other, field.oneof_index)]
                yield f"oneof {one.oneof_decl[field.oneof_index].name} {{"
                yield from _indented(map(self._field, together))
                yield "}"

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            return "" if _is_map(self._types.get(field.type_name[1:])) else "repeated "
        if field.label == FieldDescriptorProto.LABEL_REQUIRED:
            return "required "
        return "optional " if self._proto2 or field.proto3_optional else ""

    def _field(self, field: FieldDescriptorProto) -> str:
        # Defaults and packing are left out: every reader takes both, and no message is right or wrong by them.
        return f"{self._of(field)} {field.name} = {field.number};"

    def _of(self, field: FieldDescriptorProto) -> str:
        if field.type == FieldDescriptorProto.TYPE_GROUP:
            raise self._refused(f"{field.name} is a group")
        if not field.type_name:
            return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
        used = self._types[field.type_name[1:]]
        if isinstance(used, DescriptorProto) and _is_map(used):
            return f"map<{', '.join(map(self._of, used.field))}>"
        return self._path(field.type_name[1:])

    def _refused(self, cause: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self._root} cannot be written as one message in one file: {cause}. Register a schema of your own making."
        )


def _types_in(messages: Iterable[DescriptorProto], enums: Iterable[EnumDescriptorProto]) -> list[_Type]:
    return [*enums, *messages]


def _is_map(one: _Type | None) -> bool:
    return isinstance(one, DescriptorProto) and one.options.map_entry


def _is_of(field: FieldDescriptorProto, oneof: int) -> bool:
    return field.HasField("oneof_index") and field.oneof_index == oneof


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (_INDENT + line for line in lines)
