"""JSON, strictly: what is written is valid for every store and reads back as the same event."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Protocol

import msgspec

from postroad.codec.faithful import Unfaithful, Walk, compare
from postroad.errors import ConfigurationError, InvalidPayload, UnreadableMessage
from postroad.events import EventType, field_names, is_pydantic

CONTENT_TYPE: Final = "application/json"

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_WALK: Final = Walk(foreign=False)
_MISSING: Final = re.compile(r"Object missing required field `(.+)`")


class Form(Protocol):
    """How one class becomes JSON and back. Faults are raised as Unfaithful."""

    walk: Walk

    def dump(self, event: Any) -> bytes: ...

    def load(self, data: bytes) -> object: ...


def encode(event: object, event_type: EventType) -> bytes:
    """The event's bytes. Raises InvalidPayload, naming the field, when it would not arrive as it is."""
    form = _form(event_type.cls)
    try:
        if type(event) is not event_type.cls:
            raise Unfaithful(f"is a {type(event).__name__}, not a {event_type.cls.__name__}")
        form.walk.check(event)
        data = form.dump(event)
        compare(event, form.load(data))
    except Unfaithful as fault:
        raise InvalidPayload(event_type.name, fault.path, fault.rule) from None
    except Exception as error:
        # The event is the user's: its properties, comparisons and time zones may raise anything.
        raise InvalidPayload(event_type.name, "payload", f"cannot be encoded: {_told(error)}") from error
    return data


def decode(data: bytes, event_type: EventType) -> object:
    """The event. Raises UnreadableMessage, naming the field; unknown fields are passed over."""
    form = _form(event_type.cls)
    try:
        return form.load(data)
    except Unfaithful as fault:
        told = f"field {fault.path}: {fault.rule}"
    except Exception as error:
        told = f"field payload: cannot be decoded: {_told(error)}"
    raise UnreadableMessage(f"{event_type.name} v{event_type.schema_version}: {told}")


def plain(data: bytes, event_type: EventType) -> dict[str, Any]:
    """The payload as plain values, for upcasting. Raises UnreadableMessage unless it is a JSON object."""
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableMessage(f"The payload is not a JSON object: {_told(error)}") from None


def from_plain(fields: dict[str, Any], event_type: EventType) -> object:
    """The way back from `plain`. Raises UnreadableMessage."""
    try:
        data = _ENCODER.encode(fields)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnreadableMessage(f"{event_type.name}: what its upcasters made is not JSON: {error}") from error
    return decode(data, event_type)


@cache
def _form(cls: type) -> Form:
    if is_pydantic(cls):
        from postroad.codec.pydantic import PydanticForm  # an optional dependency

        return PydanticForm(cls)
    if issubclass(cls, dict):
        return _DictForm(cls)
    return _TypedForm(cls)


class _TypedForm:
    """msgspec structs and dataclasses: the class says the types."""

    walk = _WALK

    def __init__(self, cls: type) -> None:
        self._cls = cls
        try:
            self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(cls)
        except (TypeError, NameError) as error:
            raise ConfigurationError(
                f"The fields of {cls.__qualname__} cannot be read from JSON: {error} "
                "Give them types that msgspec supports."
            ) from error

    def dump(self, event: object) -> bytes:
        try:
            return _ENCODER.encode(event)
        except TypeError:
            fields = field_names(self._cls) or {}
            raise _culprit({name: getattr(event, attribute) for attribute, name in fields.items()}) from None

    def load(self, data: bytes) -> object:
        try:
            return self._decoder.decode(data)
        except msgspec.DecodeError as error:
            raise from_msgspec(error) from None


class _DictForm:
    """Subclasses of dict: no declared fields, so only what JSON itself has."""

    walk = _WALK

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def dump(self, event: dict[str, Any]) -> bytes:
        try:
            return _ENCODER.encode(event)
        except TypeError:
            raise _culprit(event) from None

    def load(self, data: bytes) -> object:
        try:
            return self._cls(msgspec.json.decode(data, type=dict[str, Any]))
        except msgspec.DecodeError as error:
            raise from_msgspec(error) from None


def from_msgspec(error: msgspec.DecodeError) -> Unfaithful:
    """msgspec ends its messages with "- at `$.items[2].price`"; an entry of a dict is `[...]`."""
    rule, _, place = str(error).partition(" - at `")
    path = place.removesuffix("`").removeprefix("$").removeprefix(".")
    if missing := _MISSING.fullmatch(rule):
        path, rule = f"{path}.{missing[1]}".removeprefix("."), "is missing"
    return _Placed(rule, path or "payload")


class _Placed(Unfaithful):
    """A fault whose path is known as text."""

    def __init__(self, rule: str, path: str) -> None:
        super().__init__(rule)
        self._text = path

    @property
    def path(self) -> str:
        return self._text


def _culprit(parts: Mapping[str, object]) -> Unfaithful:
    """The field that cannot be encoded; msgspec does not say which."""
    for name, value in parts.items():
        try:
            _ENCODER.encode(value)
        except TypeError as error:
            return Unfaithful(f"cannot be encoded: {error}", name)
    return Unfaithful("cannot be encoded")


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
