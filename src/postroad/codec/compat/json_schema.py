"""Two JSON Schemas, field by field."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from postroad.codec.compat.break_ import Break

Schema = Mapping[str, Any]

_UNTYPED: Final = frozenset(
    {
        "$comment", "$defs", "$id", "$ref", "$schema", "additionalProperties", "allOf", "anyOf", "default",
        "definitions", "deprecated", "description", "discriminator", "enum", "examples", "items", "oneOf",
        "patternProperties", "prefixItems", "properties", "readOnly", "required", "title", "writeOnly",
    }
)  # fmt: skip
"""What is compared in its own way, or says nothing about the values."""
_ANYTHING: Final[Schema] = {}
_NOTHING: Final[Schema] = {"not": {}}
_MOST_STEPS: Final = 64


def compare(file: str, old: Schema, new: Schema) -> Iterator[Break]:
    yield from _Comparison(file, old, new).breaks()


class _Comparison:
    def __init__(self, file: str, old: Schema, new: Schema) -> None:
        self._file, self._old, self._new = file, old, new
        self._seen: set[tuple[str, str, int, int]] = set()
        """Where which two met, by identity: all of them live as long as the two files do."""

    def breaks(self) -> Iterator[Break]:
        message = str(self._old.get("title") or self._old.get("$ref", "").rpartition("/")[2] or "payload")
        yield from self._values(message, "", self._old, self._new)

    def _values(self, message: str, path: str, old: Schema, new: Schema) -> Iterator[Break]:
        if not old and not new:
            return  # anything, as before
        if "$ref" in old or "$ref" in new:
            message, path = (str(old["$ref"]).rpartition("/")[2], "") if "$ref" in old else (message, path)
            old, new = _resolved(self._old, old), _resolved(self._new, new)
            # Where one side refers and the other does not, the reference alone would stand for many pairs.
            meeting = message, path, id(old), id(new)
            if meeting in self._seen:
                return
            self._seen.add(meeting)
        if _signature(old) != _signature(new):
            yield Break(self._file, message, path, "field-type-changed", f"{_told(old)} → {_told(new)}")
            return
        yield from self._enum(message, path, old, new)
        yield from self._branches(message, path, old, new)
        yield from self._properties(message, path, old, new)
        yield from self._patterns(message, path, old, new)
        yield from self._elements(message, path, old, new)

    def _enum(self, message: str, path: str, old: Schema, new: Schema) -> Iterator[Break]:
        for value in old.get("enum", ()):
            if value not in new.get("enum", ()):
                yield Break(self._file, message, path, "enum-value-removed", repr(value))

    def _branches(self, message: str, path: str, old: Schema, new: Schema) -> Iterator[Break]:
        """`anyOf` and the like: the same ones, each as before."""
        for word in ("anyOf", "oneOf", "allOf"):
            before, after = _by_kind(old.get(word, ())), _by_kind(new.get(word, ()))
            if _counted(before) != _counted(after):
                change = f"{' | '.join(_counted(before))} → {' | '.join(_counted(after))}"
                yield Break(self._file, message, path, "field-type-changed", change)
            for kind in before.keys() & after.keys():
                for one, other in _paired(before[kind], after[kind]):
                    yield from self._values(message, path, one, other)

    def _properties(self, message: str, path: str, old: Schema, new: Schema) -> Iterator[Break]:
        before, after = old.get("properties", {}), new.get("properties", {})
        needed_before, needed = set(old.get("required", ())), set(new.get("required", ()))
        for name in before:
            place = f"{path}.{name}".removeprefix(".")
            if name not in after:
                yield Break(self._file, message, place, "field-removed")
                continue
            if name in needed - needed_before:
                yield Break(self._file, message, place, "field-became-required")
            elif name in needed_before - needed:
                yield Break(self._file, message, place, "field-became-optional")
            one, other = _schema(before[name]), _schema(after[name])
            breaks = list(self._values(message, place, one, other))
            yield from breaks
            # Of a field that is required, and of one whose values are others now, the default is nobody's concern.
            if name not in needed and not any(found.field == place for found in breaks):
                yield from self._default(message, place, one, other)
        for name in sorted(needed - before.keys()):
            if name not in needed_before:
                yield Break(self._file, message, f"{path}.{name}".removeprefix("."), "required-field-added")

    def _default(self, message: str, path: str, old: Schema, new: Schema) -> Iterator[Break]:
        """What a message without the field means to whoever reads it. That it means anything at all may be new."""
        before, after = ([repr(one["default"])] if "default" in one else [] for one in (old, new))
        if before and before != after:
            change = f"{before[0]} → {after[0] if after else 'none'}"
            yield Break(self._file, message, path, "field-default-changed", change)

    def _patterns(self, message: str, path: str, old: Schema, new: Schema) -> Iterator[Break]:
        """Fields, too, only that many share one description."""
        before, after = old.get("patternProperties", {}), new.get("patternProperties", {})
        for pattern in before:
            place = f"{path}[{pattern}]"
            if pattern in after:
                yield from self._values(message, place, _schema(before[pattern]), _schema(after[pattern]))
            else:
                yield Break(self._file, message, place, "field-removed")

    def _elements(self, message: str, path: str, old: Schema, new: Schema) -> Iterator[Break]:
        before, after = old.get("additionalProperties", True), new.get("additionalProperties", True)
        if before is not False and after is False:
            yield Break(self._file, message, path, "object-closed")
        elif before is not False:
            yield from self._values(message, f"{path}[*]", _schema(before), _schema(after))
        yield from self._values(message, f"{path}[]", _schema(old.get("items")), _schema(new.get("items")))
        first, second = old.get("prefixItems", ()), new.get("prefixItems", ())
        if len(first) != len(second):
            change = f"{len(first)} items → {len(second)} items"
            yield Break(self._file, message, path, "field-type-changed", change)
        for number, (one, other) in enumerate(zip(first, second, strict=False)):
            yield from self._values(message, f"{path}[{number}]", _schema(one), _schema(other))


def _schema(value: object) -> Schema:
    """`true` takes anything, `false` nothing; both are schemas."""
    if isinstance(value, Mapping):
        return value
    return _NOTHING if value is False else _ANYTHING


def _resolved(root: Schema, schema: Schema) -> Schema:
    for _ in range(_MOST_STEPS):
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        found: Any = root
        for step in reference[2:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        schema = _schema(found)
    return schema


def _signature(schema: Schema) -> tuple[Schema, bool]:
    """All that says which values are taken, but for what is compared in its own way."""
    told = {word: value for word, value in schema.items() if word not in _UNTYPED}
    if isinstance(told.get("type"), list):
        told["type"] = sorted(told["type"])
    return told, "enum" in schema


def _by_kind(branches: Any) -> Mapping[str, list[Schema]]:
    found = defaultdict(list)
    for branch in map(_schema, branches):
        found[str(branch.get("$ref", _told(branch))).rpartition("/")[2]].append(branch)
    return found


def _counted(branches: Mapping[str, list[Schema]]) -> list[str]:
    return sorted(kind for kind, some in branches.items() for _ in some)


def _paired(before: list[Schema], after: list[Schema]) -> Iterator[tuple[Schema, Schema]]:
    """Each with the one that reads the same, the others in their order."""
    changed, rest = [], list(after)
    for one in before:
        if one in rest:
            yield one, rest.pop(rest.index(one))
        else:
            changed.append(one)
    yield from zip(changed, rest, strict=False)


def _told(schema: Schema) -> str:
    words = [f"{value}" if word == "type" else f"{word} {value}" for word, value in _signature(schema)[0].items()]
    return ", ".join([*words, *(["enum"] if "enum" in schema else [])]) or "anything"
