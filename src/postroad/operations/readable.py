"""Payloads as a person can read them."""

from dataclasses import replace
from typing import Any

import msgspec

from postroad.codec.formats import format_of
from postroad.errors import UnreadableMessage
from postroad.events import declared, is_protobuf


def readable(payload: bytes, content_type: str, event_type: str = "", schema_version: int = 1) -> Any:
    """Fields where the type is known or tells itself; else the bytes."""
    kind = declared(event_type).get(schema_version)
    if kind is not None and is_protobuf(kind.cls) and "protobuf" in content_type:
        try:
            return format_of(kind).plain(payload, replace(kind, cls=kind.envelope or kind.cls))
        except UnreadableMessage:
            pass
    if "json" in content_type:
        try:
            return msgspec.json.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
    return payload
