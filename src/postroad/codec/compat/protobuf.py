"""Two sets of .proto files, message by message. Where they stand does not matter, only what they are called."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from postroad.codec.compat.break_ import Break

_NOBODYS: Final = "google.protobuf"
"""Imported by many, changed by none of them."""
_REQUIRED: Final = "required"
_SCALAR_NAMES: Final = {
    number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()
}


@dataclass(frozen=True, slots=True)
class Definitions:
    """What some files define, by full name."""

    messages: dict[str, tuple[FileDescriptorProto, DescriptorProto]]
    enums: dict[str, tuple[FileDescriptorProto, EnumDescriptorProto]]


def definitions(files: Iterable[FileDescriptorProto]) -> Definitions:
    found = Definitions({}, {})
    for file in files:
        if file.package == _NOBODYS:
            continue
        _collect(found, file, file.package, file.message_type, file.enum_type)
    return found


def _collect(found: Definitions, file: FileDescriptorProto, scope: str, messages: Any, enums: Any) -> None:
    prefix = f"{scope}." if scope else ""
    for enum in enums:
        found.enums[prefix + enum.name] = file, enum
    for message in messages:
        found.messages[prefix + message.name] = file, message
        _collect(found, file, prefix + message.name, message.nested_type, message.enum_type)


def compare(old: Definitions, new: Definitions) -> Iterator[Break]:
    for name, (file, message) in old.messages.items():
        if name in new.messages:
            yield from _Messages(name, file, message, *new.messages[name]).breaks()
        elif not message.options.map_entry:
            yield Break(file.name, name, "", "message-removed")
    for name, (file, enum) in old.enums.items():
        if name in new.enums:
            yield from _enum_breaks(name, file, enum, new.enums[name][1])
        else:
            yield Break(file.name, name, "", "enum-removed")
    yield from _syntax_breaks(old, new)


def _syntax_breaks(old: Definitions, new: Definitions) -> Iterator[Break]:
    told = set()
    for name, (file, _) in old.messages.items():
        if name in new.messages and file.name not in told and _syntax(file) != _syntax(new.messages[name][0]):
            told.add(file.name)
            yield Break(file.name, name, "", "syntax-changed", _change(_syntax(file), _syntax(new.messages[name][0])))


@dataclass(frozen=True, slots=True)
class _Messages:
    name: str
    old_file: FileDescriptorProto
    old: DescriptorProto
    new_file: FileDescriptorProto
    new: DescriptorProto

    def breaks(self) -> Iterator[Break]:
        by_number = {field.number: field for field in self.new.field}
        by_name = {field.name: field for field in self.new.field}
        for field in self.old.field:
            if field.number in by_number:
                yield from self._field(field, by_number[field.number])
            elif field.name in by_name:
                yield self._break(field, "field-number-changed", field.number, by_name[field.name].number)
            else:
                yield self._break(field, "field-removed")
        yield from self._added_required()
        yield from self._oneofs()
        yield from _reserved_breaks(self.old_file.name, self.name, self.old, self.new, end_included=False)

    def _field(self, old: FieldDescriptorProto, new: FieldDescriptorProto) -> Iterator[Break]:
        if old.name != new.name:
            yield self._break(old, "field-renamed", old.name, new.name)
        elif _json_name(old) != _json_name(new):
            yield self._break(old, "field-renamed", f"in JSON {_json_name(old)}", _json_name(new))
        if (old.type, old.type_name) != (new.type, new.type_name):
            yield self._break(old, "field-type-changed", _type(old), _type(new))
        elif old.default_value != new.default_value:
            yield self._break(old, "field-default-changed", old.default_value, new.default_value)
        before, after = _label(self.old_file, old), _label(self.new_file, new)
        if before != after:
            rule = "field-became-required" if after == _REQUIRED else "field-label-changed"
            yield self._break(old, rule, before, after)
        if _oneof(self.old, old) != _oneof(self.new, new):
            yield self._break(old, "field-oneof-changed", _oneof(self.old, old), _oneof(self.new, new))

    def _added_required(self) -> Iterator[Break]:
        known = {field.number for field in self.old.field}
        for field in self.new.field:
            if field.number not in known and _label(self.new_file, field) == _REQUIRED:
                yield self._break(field, "required-field-added")

    def _oneofs(self) -> Iterator[Break]:
        for name in sorted(_oneofs(self.old) - _oneofs(self.new)):
            yield Break(self.old_file.name, self.name, name, "oneof-removed")

    def _break(self, field: FieldDescriptorProto, rule: str, *change: object) -> Break:
        return Break(self.old_file.name, self.name, field.name, rule, _change(*change) if change else "")


def _enum_breaks(
    name: str, file: FileDescriptorProto, old: EnumDescriptorProto, new: EnumDescriptorProto
) -> Iterator[Break]:
    names: dict[int, set[str]] = {}
    for value in new.value:
        names.setdefault(value.number, set()).add(value.name)
    for value in old.value:
        if value.number not in names:
            yield Break(file.name, name, value.name, "enum-value-removed")
        elif value.name not in names[value.number]:
            new_name = " or ".join(sorted(names[value.number]))
            yield Break(file.name, name, value.name, "enum-value-renamed", _change(value.name, new_name))
    yield from _reserved_breaks(file.name, name, old, new, end_included=True)


def _reserved_breaks(file: str, name: str, old: Any, new: Any, *, end_included: bool) -> Iterator[Break]:
    """A range of a message ends before its `end`, one of an enum with it."""
    for span in old.reserved_range:
        last = span.end if end_included else span.end - 1
        if not _covered(span.start, last, new, end_included):
            told = str(span.start) if span.start == last else f"{span.start} to {last}"
            yield Break(file, name, told, "reserved-removed")
    for reserved in old.reserved_name:
        if reserved not in new.reserved_name:
            yield Break(file, name, reserved, "reserved-removed")


def _covered(first: int, last: int, new: Any, end_included: bool) -> bool:
    """By one range or by several that touch each other."""
    for span in sorted(new.reserved_range, key=lambda span: int(span.start)):
        end = span.end if end_included else span.end - 1
        if span.start <= first <= end:
            first = end + 1
    return first > last


def _label(file: FileDescriptorProto, field: FieldDescriptorProto) -> str:
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return "repeated"
    if field.label == FieldDescriptorProto.LABEL_REQUIRED:
        return _REQUIRED
    presence = field.options.features.field_presence or file.options.features.field_presence
    if presence == FeatureSet.LEGACY_REQUIRED:
        return _REQUIRED
    is_message = field.type in (FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.TYPE_GROUP)
    if is_message or field.HasField("oneof_index"):
        return "optional"
    implicit = presence == FeatureSet.IMPLICIT or _syntax(file) == "proto3"
    return "without a label" if implicit else "optional"


def _oneof(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    """What stands behind `optional` in proto3 is none."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return "none"
    return message.oneof_decl[field.oneof_index].name


def _oneofs(message: DescriptorProto) -> set[str]:
    return {_oneof(message, field) for field in message.field} - {"none"}


def _json_name(field: FieldDescriptorProto) -> str:
    """Generated code leaves out the one that follows from the name."""
    return field.json_name or re.sub("_+(.?)", lambda after: after[1].upper(), field.name)


def _type(field: FieldDescriptorProto) -> str:
    return field.type_name.removeprefix(".") or _SCALAR_NAMES[field.type]


def _syntax(file: FileDescriptorProto) -> str:
    return file.syntax or "proto2"


def _change(old: object, new: object) -> str:
    return f"{old} → {new}"
