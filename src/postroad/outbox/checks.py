"""What the caller says beside the event itself: of the right type, and storable everywhere, or refused by name."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from postroad.errors import InvalidPayload
from postroad.events import EventType

LONGEST_TENANT: Final = 255
"""What every inbox can hold; a longer one could be written but never handled."""
_LONGEST_DELAY: Final = 366 * 86_400


def checked_version(kind: EventType, version: int | None) -> int | None:
    # At most 18 digits: that is what travels, and it leaves room to count on in a 64-bit column.
    if version is not None and (isinstance(version, bool) or not isinstance(version, int) or not 1 <= version < 10**18):
        raise InvalidPayload(kind.name, "version", "must be a whole number from 1, of at most 18 digits")
    return version


def checked_id(kind: EventType, field: str, id: str | UUID | None) -> str | None:
    """An idempotency key, a correlation id, a user: text as the caller has it, or a UUID."""
    if id is None:
        return None
    if isinstance(id, UUID):
        return str(id)
    if not isinstance(id, str):
        raise InvalidPayload(kind.name, field, f"is {type(id).__name__}, not text or UUID")
    if not id:
        raise InvalidPayload(kind.name, field, "must not be empty; leave it out for none")
    try:
        id.encode()
    except UnicodeEncodeError:
        raise InvalidPayload(kind.name, field, "contains half a surrogate pair, which is not Unicode text") from None
    return id


def checked_tenant(kind: EventType, tenant: str) -> str:
    if not isinstance(tenant, str):
        raise InvalidPayload(kind.name, "tenant", f"is {type(tenant).__name__}, not text")
    if len(tenant) > LONGEST_TENANT:
        raise InvalidPayload(kind.name, "tenant", f"is longer than {LONGEST_TENANT} characters")
    return tenant


def checked_headers(kind: EventType, headers: Mapping[str, str] | None) -> dict[str, str]:
    """Only their shape: how long they may be is the same for all attributes, and checked with them."""
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise InvalidPayload(kind.name, "headers", f"is {type(headers).__name__}, not a mapping of text to text")
    for name in headers:
        if not isinstance(name, str):
            raise InvalidPayload(kind.name, "headers", f"has a name of type {type(name).__name__}, not text")
    return dict(headers)


def deliver_at(kind: EventType, now: datetime, delay: float | timedelta | None) -> datetime | None:
    if delay is None:
        return None
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= _LONGEST_DELAY:
        raise InvalidPayload(kind.name, "delay", "must be more than 0 seconds and at most 366 days")
    return now + timedelta(seconds=seconds)
