"""The document that describes the API, drawn from the types that it answers with."""

import dataclasses
import types
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from postroad.dashboard.acts import ACTS, Done
from postroad.dashboard.api import QUESTIONS, Question

_PLAIN: Final[Mapping[Any, Mapping[str, str]]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    types.NoneType: {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
    UUID: {"type": "string", "format": "uuid"},
}


def document(base: str, version: str) -> dict[str, Any]:
    """OpenAPI 3.1."""
    known: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for question in QUESTIONS:
        paths[question.path.replace(":path", "")] = {
            "get": {
                "summary": question.summary,
                "parameters": _parameters(question),
                "responses": _responses(_shape(question.answer, known)),
            }
        }
    for name, act in ACTS.items():
        body = msgspec.json.schema(act.takes)["$defs"][act.takes.__name__]
        paths[f"/api/acts/{name}"] = {
            "post": {
                "summary": f"{act.title} (role {act.role.name.lower()})",
                "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
                "responses": _responses(_shape(Done, known)),
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Postroad dashboard", "version": version},
        "servers": [{"url": base or "/"}],
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {"schemas": known, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _shape(kind: Any, known: dict[str, Any]) -> Mapping[str, Any]:
    """The JSON schema of a type; dataclasses are described once, in `known`."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_shape(one, known) for one in inner]}
    if origin in (list, Sequence):
        return {"type": "array", "items": _shape(inner[0], known)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _shape(inner[1], known)}
    if not dataclasses.is_dataclass(kind):
        return {}
    name: str = kind.__name__  # type: ignore[union-attr]
    if known.get(name, {}).get("x-in", kind.__module__) != kind.__module__:
        name = f"{kind.__module__.split('.')[-2].capitalize()}{name}"  # two things may be called alike
    if name not in known:
        known[name] = {"x-in": kind.__module__}
        hints = get_type_hints(kind)
        fields = {field.name: _shape(hints[field.name], known) for field in dataclasses.fields(kind)}
        known[name] |= {"type": "object", "properties": fields, "required": list(fields)}
    return {"$ref": f"#/components/schemas/{name}"}


def _parameters(question: Question) -> list[Mapping[str, Any]]:
    in_path = [part.strip("{}").partition(":")[0] for part in question.path.split("/") if part.startswith("{")]
    text = {"type": "string"}
    return [
        *({"name": name, "in": "path", "required": True, "schema": text} for name in in_path),
        *({"name": name, "in": "query", "required": False, "schema": text} for name in question.query),
    ]


def _responses(shape: Any) -> Mapping[str, Any]:
    told = {"401": "Who are you?", "403": "Not for you", "409": "Refused; nothing was done", "503": "Not reachable"}
    return {
        "200": {"description": "As asked", "content": {"application/json": {"schema": shape}}},
        **{code: {"description": text} for code, text in told.items()},
    }
