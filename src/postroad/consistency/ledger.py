"""Sums over the rows themselves, small enough to be carried from one service to another.

Outbox and inbox have one thing in common, the event's id; and the ids that Postroad gives begin with the time. Their
first 32 bits are a slice of about a minute (65.5 s), the same on both sides whatever the clocks say.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from postroad.consistency.check import comparable
from postroad.consistency.window import Window

if TYPE_CHECKING:
    from postroad.app import Postroad

_AT_ONCE: Final = 55
"""Slices that one statement adds up: about an hour."""


class Entry(msgspec.Struct, frozen=True):
    topic: str
    type: str
    slice: int
    events: int
    sum: int

    @property
    def place(self) -> tuple[str, str, int]:
        return self.topic, self.type, self.slice


class Ledger(msgspec.Struct, frozen=True):
    """What the groups of one service have records of."""

    source: str
    first: int
    last: int
    """The slice behind the last one."""
    groups: Mapping[str, list[Entry]]
    begun: Mapping[str, Mapping[str, int]]
    """Per group and type, the first slice from which on it has heard everything."""


def slice_of(moment: datetime) -> int:
    return int(moment.timestamp() * 1000) >> 16


def bounds(first: int, last: int) -> dict[str, Any]:
    return {"low": UUID(int=first << 96), "high": UUID(int=last << 96)}


async def inbox_ledger(road: "Postroad", window: Window) -> Ledger:
    """Of the groups that this code has handlers for."""
    first, last = slice_of(window.since), slice_of(window.until)
    begun: dict[str, dict[str, int]] = {}
    for row in (await road.store.read("ledger_begun")).rows:
        seen = road.store.time_out(row.first_seen)
        assert seen is not None  # the column is NOT NULL
        if row.consumer_group in road.groups and row.event_type in road.registry.types(row.consumer_group):
            begun.setdefault(row.consumer_group, {})[row.event_type] = slice_of(seen) + 1
    groups: dict[str, list[Entry]] = {group: [] for group in begun}
    for group, entries in groups.items():
        for piece in _pieces(first, last):
            entries += _entries((await road.store.read("ledger_inbox", group=group, **piece)).rows)
    return Ledger(road.source, first, last, groups, begun)


async def outbox_ledger(road: "Postroad", first: int, last: int) -> list[Entry]:
    found: list[Entry] = []
    for outbox in comparable(road.outboxes):
        for piece in _pieces(first, last):
            found += _entries((await road.store.read("ledger_sent", outbox, **piece)).rows)
    return found


def _pieces(first: int, last: int) -> Iterator[dict[str, Any]]:
    for low in range(first, last, _AT_ONCE):
        yield bounds(low, min(low + _AT_ONCE, last))


def _entries(rows: Any) -> list[Entry]:
    return [Entry(row.topic, row.event_type, int(row.slice, 16), int(row.events), int(row.total)) for row in rows]
