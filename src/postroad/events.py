"""Which classes are events, and what Postroad knows about each."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from postroad.errors import ConfigurationError, InvalidName, InvalidPayload
from postroad.naming import check_aggregate, check_command, check_event_type, check_identifier, check_topic

C = TypeVar("C", bound=type)

MAX_AGGREGATE_ID: Final = 255
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclasses.dataclass(frozen=True, slots=True)
class EventType:
    """What `@event` declared about a class."""

    name: str
    topic: str
    aggregate: str
    key: str | None
    """The field that holds the aggregate's id. None: each event stands alone, under its own id."""
    schema_version: int
    outbox: str | None
    """The outbox table, when it is not the default one."""
    cls: type
    envelope: type | None = None
    """The protobuf message that carries the event together with its identity; None: it travels bare."""


_declared: Final[dict[tuple[str, int], EventType]] = {}
_topics: Final[set[str]] = set()


def event(
    type: str,
    *,
    topic: str,
    aggregate: str,
    key: str | None = None,
    schema_version: int = 1,
    outbox: str | None = None,
    envelope: type | None = None,
) -> Callable[[C], C]:
    """Declares a msgspec struct, dataclass, Pydantic model, protobuf message or subclass of dict to be an event.

    `envelope` is a protobuf message with the event in one of its fields and event_id, version and the like in others.
    """
    (check_command if str(type).startswith("Command.") else check_event_type)(type)
    check_topic(topic)
    check_aggregate(aggregate)
    if outbox is not None:
        check_identifier(outbox)
    if isinstance(schema_version, bool) or not isinstance(schema_version, int) or schema_version < 1:
        raise ConfigurationError(f"{type}: schema_version is {schema_version!r}. Count versions as 1, 2, 3.")

    def declare(cls: C) -> C:
        check_class(cls)
        check_key(cls, key)
        event_type = EventType(type, topic, aggregate, key, schema_version, outbox, cls, envelope)
        if envelope is not None:
            from postroad.codec.envelope import check_envelope  # an optional dependency

            check_envelope(event_type)
        # A process may hold several services, and two of them may read one event as classes of their own.
        _declared[type, schema_version] = event_type
        _topics.add(topic)
        cls.__postroad__ = event_type  # type: ignore[attr-defined]
        return cls

    return declare


def event_type_of(event: object) -> EventType:
    """What was declared about an event or its class. A subclass is another event and needs its own."""
    cls = event if isinstance(event, type) else type(event)
    declared = cls.__dict__.get("__postroad__")
    if isinstance(declared, EventType):
        return declared
    if event is None:
        raise ConfigurationError("There is None where an event is expected.")
    if isinstance(event, str):
        raise ConfigurationError(f"There is the text {event[:80]!r} where an event or its class is expected.")
    raise ConfigurationError(
        f"{cls.__qualname__} is not declared as an event. "
        'Put @event("order.placed", topic="shop.order.events", aggregate="order", key="order_id") above it.'
    )


def is_declared(cls: type) -> bool:
    return isinstance(cls.__dict__.get("__postroad__"), EventType)


def declared(name: str) -> Mapping[int, EventType]:
    """The versions of this type that the process knows, lowest first."""
    return {version: _declared[name, version] for known, version in sorted(_declared) if known == name}


def declared_names() -> list[str]:
    """The types that the process knows."""
    return sorted({name for name, _ in _declared})


def known_topics() -> set[str]:
    """The topics of all types that the process knows."""
    return set(_topics)


def aggregate_id_of(event: object, event_type: EventType) -> str | None:
    """The value of the key field as text; None for a keyless event, which stands under its own id."""
    key = event_type.key
    if key is None:
        return None
    value = event.get(key) if isinstance(event, dict) else getattr(event, key, None)
    if isinstance(value, Enum):
        value = value.value
    fault = _key_fault(value)
    if fault:
        raise InvalidPayload(event_type.name, key, f"{fault}, but it is the aggregate's id")
    return str(value)


@cache
def field_names(kind: Any) -> dict[str, str] | None:
    """Attribute → name on the wire, for the classes whose instances have declared fields; None for others."""
    if issubclass(kind, msgspec.Struct):
        return dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    if dataclasses.is_dataclass(kind):
        return {field.name: field.name for field in dataclasses.fields(kind)}
    if is_pydantic(kind):
        return {name: field.serialization_alias or name for name, field in kind.model_fields.items()}
    if is_protobuf(kind):
        return {field.name: field.name for field in kind.DESCRIPTOR.fields}
    return None


@cache
def is_pydantic(kind: Any) -> bool:
    """Told by the class itself, because Pydantic need not be installed."""
    return any(base.__module__ == "pydantic.main" and base.__name__ == "BaseModel" for base in kind.__mro__)


@cache
def is_protobuf(kind: Any) -> bool:
    """Told by the class itself, because protobuf need not be installed."""
    return any(base.__module__ == "google.protobuf.message" and base.__name__ == "Message" for base in kind.__mro__)


def _key_fault(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | UUID):
        return f"is {type(value).__name__}, not text, int or UUID"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        # Python refuses to write out an int of thousands of digits.
        return "does not fit in 64 bits"
    text = str(value)
    if not text:
        return "is empty"
    if len(text) > MAX_AGGREGATE_ID:
        return f"is longer than {MAX_AGGREGATE_ID} characters"
    if _UNPRINTABLE.search(text):
        return "contains a control character"
    if text != text.strip():
        # MySQL compares "a" and "a " as equal, the others do not.
        return "begins or ends with a space"
    return ""


def check_class(cls: type) -> None:
    if not isinstance(cls, type):
        raise ConfigurationError(f"@event was put on {cls!r}. It belongs above a class.")
    kind: Any = cls  # mypy takes no class for something that can be hashed
    if issubclass(cls, msgspec.Struct | dict) or is_pydantic(kind) or is_protobuf(kind):
        return
    if "__dataclass_fields__" in cls.__dict__:
        return
    raise ConfigurationError(
        f"{cls.__qualname__} cannot be an event: it has no declared fields. Make it a msgspec.Struct, "
        "a dataclass (with @event above @dataclass), a Pydantic model, a protobuf message or a subclass of dict."
    )


def check_key(cls: type, key: str | None) -> None:
    if key is not None and not isinstance(key, str):
        raise InvalidName("key", key, f"must be text, is {type(key).__name__}. Name a field of {cls.__qualname__}.")
    fields = field_names(cls)
    if key is None or fields is None or key in fields:
        return
    near = get_close_matches(key, fields, n=1)
    raise ConfigurationError(
        f"{cls.__qualname__} has no field {key!r} to be the key. "
        + (f"Did you mean {near[0]!r}?" if near else f"Its fields are: {', '.join(fields) or 'none'}.")
    )
