"""The envelope that every stage passes on, and its form on the wire."""

import random
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from operator import attrgetter
from typing import Final, TypeVar
from zlib import crc32

import msgspec

from postroad.errors import UnreadableMessage

SHARDS: Final = 256
"""Fixed for ever: another count would put one key under two owners while old and new code run together."""

_NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_URL, "postroad:idempotency-key")
_ULID: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", re.IGNORECASE)
_CROCKFORD: Final = {c: i for i, c in enumerate("0123456789ABCDEFGHJKMNPQRSTVWXYZ")}
_DIGITS: Final = re.compile("[0-9]{1,18}")
_HEADER_PREFIX: Final = "header."
TRACE_CONTEXT: Final = ("traceparent", "tracestate")
"""Headers that travel under their own name: every program that traces, ours or not, looks for them there."""

T = TypeVar("T")


class Message(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One event on its way. Handlers may ask for it as `message`; it never shows a table."""

    id: uuid.UUID
    type: str
    topic: str
    aggregate_type: str
    aggregate_id: str
    version: int | None
    """Position in the aggregate's history; None until the outbox has allocated it."""
    occurred_at: datetime
    payload: bytes
    schema_version: int = 1
    content_type: str = "application/json"
    tenant: str = ""
    headers: Mapping[str, str] = {}
    correlation_id: str | None = None
    causation_id: str | None = None
    user_id: str | None = None
    source_service: str | None = None
    source_version: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    also_as: str | None = None
    """The older schema versions, such as "v1", in which the same fact follows under the same id."""
    deliver_at: datetime | None = None
    """Not before this time. A delayed message stands outside its key's order."""

    @property
    def ordering_key(self) -> str:
        """What must stay in order: the aggregate. An event without aggregate is alone with its id."""
        return ordering_key(self.aggregate_type, self.aggregate_id)

    @property
    def wire_key(self) -> str:
        """The broker's ordering key; empty for a delayed message, which nothing may wait behind."""
        return "" if self.deliver_at else self.aggregate_id

    def attributes(self) -> dict[str, str]:
        """The message without its payload, as the text attributes every broker can carry."""
        return self._attributes.copy()

    @cached_property
    def _attributes(self) -> dict[str, str]:
        # Kept: a relay looks at them to see whether they can travel, before the broker's adapter does.
        wire = {
            "event_id": str(self.id),
            "event_type": self.type,
            "aggregate_id": self.aggregate_id,
            "aggregate_type": self.aggregate_type,
            "version": str(self.version or 0),
            "occurred_at": rfc3339(self.occurred_at),
            "schema_version": f"v{self.schema_version}",
        }
        if self.content_type != "application/json":
            wire["content_type"] = self.content_type
        if self.tenant:
            wire["tenant_id"] = self.tenant
        if self.also_as:
            wire["also_as"] = self.also_as
        if self.deliver_at:
            wire["deliver_at"] = rfc3339(self.deliver_at)
        for name, value in zip(OPTIONAL_ATTRIBUTES, _optional_values(self), strict=True):
            if value is not None:
                wire[name] = value
        for name, value in self.headers.items():
            wire[name if name in TRACE_CONTEXT else _HEADER_PREFIX + name] = value
        return wire

    @classmethod
    def from_wire(cls, topic: str, attributes: Mapping[str, str], payload: bytes) -> "Message":
        """Raises UnreadableMessage, naming the attribute, when a required one is missing or malformed."""
        return cls(
            id=_read(attributes, "event_id", parse_id),
            type=_read(attributes, "event_type", _text),
            topic=topic,
            aggregate_type=_read(attributes, "aggregate_type", _text),
            aggregate_id=_read(attributes, "aggregate_id", _text),
            version=_read(attributes, "version", _whole),
            occurred_at=_read(attributes, "occurred_at", parse_rfc3339),
            payload=payload,
            schema_version=_read(attributes, "schema_version", _schema_version),
            content_type=attributes.get("content_type", "application/json"),
            tenant=attributes.get("tenant_id", ""),
            headers={
                name.removeprefix(_HEADER_PREFIX): value
                for name, value in attributes.items()
                if name.startswith(_HEADER_PREFIX) or name in TRACE_CONTEXT
            },
            also_as=attributes.get("also_as"),
            deliver_at=_read(attributes, "deliver_at", parse_rfc3339) if "deliver_at" in attributes else None,
            **{name: attributes.get(name) for name in OPTIONAL_ATTRIBUTES},
        )


OPTIONAL_ATTRIBUTES: Final = (
    "correlation_id",
    "causation_id",
    "user_id",
    "source_service",
    "source_version",
    "trace_id",
    "span_id",
)


_optional_values = attrgetter(*OPTIONAL_ATTRIBUTES)


def ordering_key(aggregate_type: str, aggregate_id: str) -> str:
    return f"{aggregate_type}/{aggregate_id}"


def shard_of(key: str) -> int:
    """crc32, because Python's own hash differs from process to process."""
    return crc32(key.encode()) % SHARDS


def new_id(now: datetime, randomness: random.Random) -> uuid.UUID:
    """A UUIDv7 from a given clock and a given source of randomness, so that a simulation can repeat it."""
    milliseconds = int(now.timestamp() * 1000)
    noise = randomness.getrandbits(74)
    return uuid.UUID(
        int=(milliseconds << 80) | (0x7 << 76) | ((noise >> 62) << 64) | (0b10 << 62) | (noise & ((1 << 62) - 1))
    )


def id_from_key(source: str, event_type: str, idempotency_key: str) -> uuid.UUID:
    """The same operation gets the same id, however often it is repeated."""
    return uuid.uuid5(_NAMESPACE, f"{source}\n{event_type}\n{idempotency_key}")


def parse_id(text: str) -> uuid.UUID:
    """A UUID, or a ULID in its 26 characters; both are the same 16 bytes. Raises ValueError."""
    if _ULID.fullmatch(text):
        value = 0
        for character in text.upper():
            value = value * 32 + _CROCKFORD[character]
        return uuid.UUID(int=value)
    try:
        return uuid.UUID(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a UUID nor a ULID") from None


def rfc3339(moment: datetime) -> str:
    """Raises ValueError for a naive datetime, which `astimezone` would take for the machine's local time."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} has no time zone")
    # Twenty times as quick as isoformat, and each event that a relay carries has one.
    return msgspec.to_builtins(moment.astimezone(UTC))  # type: ignore[no-any-return]


def parse_rfc3339(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError("no time zone")
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time with a zone, such as 2025-10-24T10:30:00Z") from None


def _read(attributes: Mapping[str, str], name: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(attributes[name])
    except KeyError:
        raise UnreadableMessage(f"attribute {name} is missing") from None
    except ValueError as error:
        raise UnreadableMessage(f"attribute {name} is malformed: {error}") from None


def _text(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return text


def _whole(text: str) -> int:
    # int() alone would also take "-1", " 1" and "1_0".
    if not _DIGITS.fullmatch(text):
        raise ValueError(f"{text!r} is not a whole number of at most 18 digits")
    return int(text)


def _schema_version(text: str) -> int:
    version = _whole(text.removeprefix("v"))
    if version < 1:
        raise ValueError("schema versions begin with v1")
    return version
