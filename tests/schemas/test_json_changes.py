"""`schema check` on JSON Schemas: the same rules, as far as JSON has the thing."""

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal

import msgspec
import pydantic
import pytest

from postroad.codec.compat import check
from postroad.codec.compat.json_schema import compare


def schema(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "title": "M", "properties": properties, "required": required or []}


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
NULL = {"type": "null"}
NUMBERS, TEXTS, FLAGS = ({"type": "array", "items": {"type": name}} for name in ("integer", "string", "boolean"))
LETTER, K = {"enum": ["x", "y"]}, {"$ref": "#/$defs/K"}


def refs(**fields: Any) -> dict[str, Any]:
    return {"$ref": "#/$defs/M", "$defs": {"M": schema(n={"$ref": "#/$defs/N"}), "N": schema(**fields)}}


def shared(fields: dict[str, Any], **definitions: Any) -> dict[str, Any]:
    return schema(**fields) | {"$defs": definitions}


def either(*branches: dict[str, Any]) -> dict[str, Any]:
    return schema(a={"anyOf": list(branches)})


def patterned(patterns: dict[str, Any]) -> dict[str, Any]:
    return schema(a={"type": "object", "patternProperties": patterns})


def recursive(**fields: Any) -> dict[str, Any]:
    return {"$ref": "#/$defs/N", "$defs": {"N": schema(next={"$ref": "#/$defs/N"}, **fields)}}


def crossing(steps: int, **fields: Any) -> dict[str, Any]:
    """Refers to itself at every other step: two of them, one begun a step later, never refer at once."""
    begun: dict[str, Any] = {"$ref": "#/$defs/N"}
    for _ in range(steps):
        begun = schema(next=begun, **fields)
    return begun | {"$defs": {"N": schema(next=schema(next={"$ref": "#/$defs/N"}, **fields), **fields)}}


@pytest.mark.spec("P8")
@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (schema(a=TEXT), schema(a=TEXT), []),
        (schema(a=TEXT), schema(a=TEXT, b=NUMBER), []),
        (schema(a=TEXT), schema(a=TEXT | {"description": "told", "title": "A", "default": "x"}), []),
        (schema(a=TEXT | {"default": "x"}), schema(a=TEXT | {"default": "x"}), []),
        (schema(a=TEXT | {"default": "x"}), schema(a=TEXT | {"default": "y"}), ["M a field-default-changed"]),
        (schema(a=TEXT | {"default": "x"}), schema(a=TEXT), ["M a field-default-changed"]),
        (schema(a=TEXT | {"default": "x"}), schema(["a"], a=TEXT), ["M a field-became-required"]),
        (schema(["a"], a=TEXT | {"default": "x"}), schema(["a"], a=TEXT | {"default": "y"}), []),
        (schema(a=TEXT | {"default": "x"}), schema(a=NUMBER | {"default": 1}), ["M a field-type-changed"]),
        (
            refs(a=TEXT) | {"$defs": {"M": schema(n={"$ref": "#/$defs/N", "default": {}}), "N": schema()}},
            refs(a=TEXT) | {"$defs": {"M": schema(n={"$ref": "#/$defs/N", "default": None}), "N": schema()}},
            ["M n field-default-changed"],
        ),
        (patterned({"^x-": TEXT}), patterned({"^x-": TEXT | {"description": "told"}, "^y-": NUMBER}), []),
        (patterned({"^x-": TEXT}), patterned({}), ["M a[^x-] field-removed"]),
        (patterned({"^x-": TEXT}), schema(a={"type": "object"}), ["M a[^x-] field-removed"]),
        (patterned({"^x-": TEXT}), patterned({"^x-": NUMBER}), ["M a[^x-] field-type-changed"]),
        (schema(a={"enum": ["x"]}), schema(a={"enum": ["x", "y"]}), []),
        (schema(["a"], a=TEXT), schema(["a"], a=TEXT), []),
        (schema(a=TEXT), schema(), ["M a field-removed"]),
        (schema(a=TEXT), schema(a=NUMBER), ["M a field-type-changed"]),
        (schema(a=TEXT), schema(a={"anyOf": [TEXT, NULL]}), ["M a field-type-changed"]),
        (schema(a={"anyOf": [TEXT, NULL]}), schema(a={"anyOf": [TEXT, NULL, NUMBER]}), ["M a field-type-changed"]),
        (schema(a={"anyOf": [TEXT, NULL]}), schema(a={"anyOf": [NULL, TEXT]}), []),
        (schema(a={"type": ["string", "null"]}), schema(a={"type": ["null", "string"]}), []),
        (schema(a=TEXT), schema(a=TEXT | {"format": "date-time"}), ["M a field-type-changed"]),
        (schema(a=TEXT), schema(a=TEXT | {"maxLength": 5}), ["M a field-type-changed"]),
        (schema(a=TEXT), schema(["a"], a=TEXT), ["M a field-became-required"]),
        (schema(["a"], a=TEXT), schema(a=TEXT), ["M a field-became-optional"]),
        (schema(a=TEXT), schema(["b"], a=TEXT, b=TEXT), ["M b required-field-added"]),
        (schema(a={"enum": ["x", "y"]}), schema(a={"enum": ["x"]}), ["M a enum-value-removed"]),
        (schema(a=TEXT), schema(a=TEXT | {"enum": ["x"]}), ["M a field-type-changed"]),
        (
            schema(a={"type": "array", "items": TEXT}),
            schema(a={"type": "array", "items": NUMBER}),
            ["M a[] field-type-changed"],
        ),
        (schema(a={"prefixItems": [TEXT]}), schema(a={"prefixItems": [TEXT, TEXT]}), ["M a field-type-changed"]),
        (schema(a={"prefixItems": [TEXT]}), schema(a={"prefixItems": [NUMBER]}), ["M a[0] field-type-changed"]),
        (
            schema(a={"additionalProperties": TEXT}),
            schema(a={"additionalProperties": NUMBER}),
            ["M a[*] field-type-changed"],
        ),
        (schema(), schema() | {"additionalProperties": False}, ["M  object-closed"]),
        (schema(a=schema(b=TEXT)), schema(a=schema()), ["M a.b field-removed"]),
        (refs(a=TEXT), refs(), ["N a field-removed"]),
        (refs(a=TEXT), refs(a=NUMBER), ["N a field-type-changed"]),
        (recursive(a=TEXT), recursive(a=TEXT), []),
        (recursive(a=TEXT), recursive(), ["N a field-removed"]),
        (crossing(2, a=TEXT), crossing(1, a=TEXT), []),
        (shared({"a": LETTER, "b": LETTER}), shared({"a": K, "b": K}, K=LETTER), []),
        (shared({"a": LETTER, "b": NUMBER}), shared({"a": K, "b": K}, K=LETTER), ["M b field-type-changed"]),
        (
            shared({"a": TEXT, "b": TEXT}),
            shared({"a": K, "b": K}, K=NUMBER),
            ["M a field-type-changed", "M b field-type-changed"],
        ),
        (shared({"a": K, "b": K}, K=LETTER), shared({"a": LETTER, "b": NUMBER}), ["K  field-type-changed"]),
        (either(NUMBERS, TEXTS), either(TEXTS, NUMBERS), []),
        (either(NUMBERS, TEXTS), either(FLAGS, TEXTS), ["M a[] field-type-changed"]),
        (either(NUMBERS, TEXTS), either(TEXTS, FLAGS), ["M a[] field-type-changed"]),
        (either(NUMBERS, NUMBERS), either(NUMBERS, TEXTS), ["M a[] field-type-changed"]),
        (either(NUMBERS, TEXTS), either(NUMBERS), ["M a field-type-changed"]),
        (either(NUMBERS), either(NUMBERS, TEXTS), ["M a field-type-changed"]),
        (schema(a=True), schema(a=False), ["M a field-type-changed"]),
        ({"$ref": "#/$defs/gone"}, {"$ref": "#/$defs/gone"}, []),
        ({"$ref": "#"}, {"$ref": "#"}, []),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
            {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
            [],
        ),
    ],
)
def test_a_change_breaks_just_what_it_should(old: dict[str, Any], new: dict[str, Any], found: list[str]) -> None:
    assert [f"{one.message} {one.field} {one.rule}" for one in compare("m.json", old, new)] == found


class Item(msgspec.Struct):
    name: str
    size: Literal["s", "m", "l"] = "m"


class Placed(msgspec.Struct):
    order_id: str
    items: list[Item]
    note: str | None = None


class SmallerItem(msgspec.Struct, rename={"name": "title"}):
    name: str
    size: Literal["s", "m"] = "m"


class SmallerPlaced(msgspec.Struct):
    order_id: int
    items: list[SmallerItem]
    note: str | None


def test_the_schemas_of_classes_are_compared_to_the_innermost_field() -> None:
    old, new = msgspec.json.schema(Placed), msgspec.json.schema(SmallerPlaced)
    new = json.loads(json.dumps(new).replace("Smaller", ""))
    assert {(one.message, one.field, one.rule) for one in compare("m.json", old, new)} == {
        ("Placed", "order_id", "field-type-changed"),
        ("Placed", "note", "field-became-required"),
        ("Item", "name", "field-removed"),
        ("Item", "title", "required-field-added"),
        ("Item", "size", "enum-value-removed"),
    }


def test_an_added_field_with_a_default_is_no_break_for_any_kind_of_class() -> None:
    @dataclasses.dataclass
    class Data:
        a: int

    @dataclasses.dataclass
    class DataMore(Data):
        b: int = 0

    class Model(pydantic.BaseModel):
        a: int

    class ModelMore(Model):
        b: int = 0

    for old, new in [
        (msgspec.json.schema(Data), msgspec.json.schema(DataMore)),
        (Model.model_json_schema(), ModelMore.model_json_schema()),
    ]:
        assert list(compare("m.json", old, json.loads(json.dumps(new).replace("More", "")))) == []


def test_two_files_are_compared_whatever_they_are_called(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(schema(a=TEXT)), encoding="utf-8")
    (tmp_path / "b.json").write_text(json.dumps(schema()), encoding="utf-8")
    assert [one.rule for one in check(tmp_path / "a.json", tmp_path / "b.json")] == ["field-removed"]


def test_a_schema_that_is_gone_from_the_folder_is_told(tmp_path: Path) -> None:
    for folder, names in (("old", ["a", "b"]), ("new", ["b", "c"])):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / f"{name}.json").write_text("{}", encoding="utf-8")
    found = check(tmp_path / "old", tmp_path / "new")
    assert [(one.file, one.rule) for one in found] == [("a.json", "schema-removed")]
