"""Sums over the rows themselves, small enough to be carried from one service to another.

Outbox and inbox have one thing in common, the event's id; and the ids that Postroad gives begin with the time. Their
first 32 bits are a slice of about a minute (65.5 s), the same on both sides whatever the clocks say. Ids without a
time, and delayed events, are carried one by one.
"""

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from postroad.consistency.sent import PAGE, Sent, foreign, heard_since, sent
from postroad.consistency.window import Window
from postroad.stores.tables import OutboxTable

if TYPE_CHECKING:
    from postroad.app import Postroad

MOST_SINGLES: Final = 1_000_000
"""Ids of one group that are carried one by one, at 39 bytes each."""
_AT_ONCE: Final = 55
"""Slices that one statement adds up: about an hour."""
_SKEW: Final = timedelta(hours=1)
"""By which an event may be dated after it was sent: by its writer's clock, where the other is the database's."""
_EARLY: Final = timedelta(days=1)
"""By which an event may have arrived before it was marked as sent: the relay that sent it first may have died of it."""
Place = tuple[str, str, int]


class Entry(msgspec.Struct, frozen=True):
    topic: str
    type: str
    slice: int
    events: int
    sum: int
    ids: Sequence[UUID] | None = None
    """Told only when asked for."""

    @property
    def place(self) -> Place:
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
    singles: Mapping[str, Sequence[UUID]] = {}
    """Those that belong to no slice; of a group that is not there, nobody has listed them."""


def slice_of(moment: datetime) -> int:
    return int(moment.timestamp() * 1000) >> 16


def moment_of(slice: int) -> datetime:
    """Its beginning."""
    return datetime.fromtimestamp((slice << 16) / 1000, UTC)


def bounds(first: int, last: int) -> dict[str, Any]:
    return {"low": UUID(int=first << 96), "high": UUID(int=last << 96)}


def sum_of(id: UUID) -> int:
    """What an id adds to its slice's sum: the part that is random."""
    return id.int & 0xFF_FFFF_FFFF


def place_of(one: Sent, first: int, last: int) -> Place | None:
    slice = one.id.int >> 96
    return (one.topic, one.type, slice) if one.due is None and first <= slice < last else None


def is_single(one: Sent, first: int, last: int) -> bool:
    """Whether no slice can tell of it. An id of another time is not asked about at all."""
    timeless = place_of(one, first, last) is None and one.id.int >> 76 & 0xF != 7
    return one.due is not None or timeless


async def inbox_ledger(road: "Postroad", window: Window) -> Ledger:
    """Of the groups that this code has handlers for."""
    first, last = slice_of(window.since), slice_of(window.until)
    heard = await heard_since(road)
    begun = {group: {type: slice_of(at) + 1 for type, at in since.items()} for group, since in heard.items()}
    groups: dict[str, list[Entry]] = {group: [] for group in begun}
    for group, entries in groups.items():
        for piece in _pieces(first, last):
            entries += _entries((await road.store.read("ledger_inbox", group=group, **piece)).rows)
    return Ledger(road.source, first, last, groups, begun)


async def with_ids(road: "Postroad", ledger: Ledger, asked: Collection[tuple[str, Place]]) -> Ledger:
    """For another service: with those that belong to no slice, and with all ids of the slices that were asked for."""
    groups = dict(ledger.groups)
    for group, entries in ledger.groups.items():
        groups[group] = [
            msgspec.structs.replace(one, ids=await _inbox_ids(road, group, one)) if (group, one.place) in asked else one
            for one in entries
        ]
    singles: dict[str, Sequence[UUID]] = {}
    for group in groups:
        ids = await _singles(road, group, moment_of(ledger.first) - _EARLY)
        if len(ids) <= MOST_SINGLES:
            singles[group] = ids
    return msgspec.structs.replace(ledger, groups=groups, singles=singles)


async def _inbox_ids(road: "Postroad", group: str, entry: Entry) -> list[UUID]:
    values = {**bounds(entry.slice, entry.slice + 1), "topic": entry.topic, "event_type": entry.type}
    rows = (await road.store.read("ledger_inbox_ids", group=group, **values)).rows
    return [road.store.id_out(row.event_id) for row in rows]


async def _singles(road: "Postroad", group: str, since: datetime) -> list[UUID]:
    ids: list[UUID] = []
    after = UUID(int=0)
    while len(ids) <= MOST_SINGLES:
        values: dict[str, Any] = {"group": group, "after": after, "since": since, "limit": PAGE}
        rows = (await road.store.read("ledger_singles", **values)).rows
        ids += [road.store.id_out(row.event_id) for row in rows]
        if len(rows) < PAGE:
            break
        after = ids[-1]
    return ids


async def outbox_ledger(road: "Postroad", first: int, last: int, now: datetime) -> list[Entry]:
    totals: dict[Place, tuple[int, int]] = {}
    for outbox in road.outboxes:
        async for entry in _added_up(road, outbox, first, last, now):
            events, sum = totals.get(entry.place, (0, 0))
            totals[entry.place] = events + entry.events, sum + entry.sum
    return [Entry(*place, events, sum) for place, (events, sum) in totals.items()]


async def _added_up(
    road: "Postroad", outbox: OutboxTable, first: int, last: int, now: datetime
) -> AsyncIterator[Entry]:
    if foreign(outbox):
        async for place, one in placed(road, outbox, first, last, now):
            yield Entry(*place, 1, sum_of(one.id))
    else:
        for piece in _pieces(first, last):
            for entry in _entries((await road.store.read("ledger_sent", outbox, **piece)).rows):
                yield entry


async def placed(
    road: "Postroad", outbox: OutboxTable, first: int, last: int, until: datetime
) -> AsyncIterator[tuple[Place, Sent]]:
    """What a foreign outbox has in these slices, and sent until then."""
    async for page in sent(road, outbox, moment_of(first) - _SKEW, until):
        for one in page:
            if place := place_of(one, first, last):
                yield place, one


def _pieces(first: int, last: int) -> Iterator[dict[str, Any]]:
    for low in range(first, last, _AT_ONCE):
        yield bounds(low, min(low + _AT_ONCE, last))


def _entries(rows: Any) -> list[Entry]:
    return [Entry(row.topic, row.event_type, int(row.slice, 16), int(row.events), int(row.total)) for row in rows]
