"""Old events for new code: each step lifts a payload from one schema version to the next."""

from collections.abc import Callable, Mapping
from typing import Any

from postroad.codec.formats import body, content_type, format_of
from postroad.codec.json import CONTENT_TYPE as JSON
from postroad.errors import ConfigurationError, UnknownVersion, UnreadableMessage
from postroad.events import EventType, declared, is_protobuf
from postroad.message import Message

Fields = dict[str, Any]
Upcaster = Callable[[Fields], Fields]


class Upcasters:
    def __init__(self) -> None:
        self._steps: dict[tuple[str, int], Upcaster] = {}

    def register(self, type: str, from_version: int, upcaster: Upcaster) -> None:
        """`upcaster` takes the fields of version `from_version` and gives those of the next one."""
        if from_version < 1:
            raise ConfigurationError(f"{type}: from_version is {from_version}. Schema versions begin with 1.")
        if (type, from_version) in self._steps:
            raise ConfigurationError(
                f"{type} has two upcasters from v{from_version} to v{from_version + 1}. Keep one of them."
            )
        self._steps[type, from_version] = upcaster

    def missing(self, type: str, from_version: int, to_version: int) -> list[int]:
        """The versions on this way from which no step leads on."""
        return [v for v in range(from_version, to_version) if (type, v) not in self._steps]

    def read(self, message: Message, event_type: EventType) -> object:
        """The message as an event of the class. Raises UnknownVersion when no way leads there."""
        if message.schema_version == event_type.schema_version:
            return format_of(event_type).decode(body(message, event_type), event_type)
        self._check_way(message, event_type)
        source = _as_sent(message, event_type)
        fields = format_of(source).plain(body(message, source), source)
        for version in range(message.schema_version, event_type.schema_version):
            fields = _lift(self._steps[message.type, version], fields, f"{message.type} v{version}")
        return format_of(event_type).from_plain(fields, event_type)

    def _check_way(self, message: Message, event_type: EventType) -> None:
        have, want = message.schema_version, event_type.schema_version
        if have > want:
            raise UnknownVersion(
                f"{message.type} v{have} is newer than v{want}, the newest this service can read. "
                f"Deploy a class for v{have}, then: postroad dlq retry"
            )
        if missing := self.missing(message.type, have, want):
            gaps = ", ".join(f"v{v} to v{v + 1}" for v in missing)
            raise UnknownVersion(
                f"{message.type} v{have} cannot be read as v{want}: no upcaster leads from {gaps}. "
                "Register it, then: postroad dlq retry"
            )


def choose(schema_version: int, known: Mapping[int, EventType]) -> EventType:
    """Of the versions a consumer knows, the one to read this message as: its own, else the next newer one."""
    newer = [version for version in known if version >= schema_version]
    return known[min(newer) if newer else max(known)]


def _as_sent(message: Message, event_type: EventType) -> EventType:
    """What tells how to read the payload as it is. JSON shows its fields by itself; protobuf needs its class."""
    if content_type(message) == JSON and not is_protobuf(event_type.cls):
        return event_type
    sent = declared(message.type).get(message.schema_version)
    if sent is None:
        raise UnknownVersion(
            f"{message.type} v{message.schema_version} cannot be read: its class is not declared here. "
            "Declare it with @event, then: postroad dlq retry"
        )
    return sent


def _lift(upcaster: Upcaster, fields: Fields, source: str) -> Fields:
    name = getattr(upcaster, "__qualname__", repr(upcaster))
    try:
        lifted = upcaster(fields)
    except Exception as error:
        raise UnreadableMessage(f"{source}: its upcaster {name} failed with {type(error).__name__}: {error}") from error
    if not isinstance(lifted, dict):
        raise UnreadableMessage(f"{source}: its upcaster {name} returned {type(lifted).__name__}, not a dict")
    return lifted
