"""Find what a group never got by comparing sums; only where they differ are ids looked at, and sent again if wanted."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from postroad.brokers.base import Confirmed
from postroad.consistency.ledger import (
    Entry,
    Ledger,
    Place,
    bounds,
    inbox_ledger,
    is_single,
    moment_of,
    outbox_ledger,
    placed,
    slice_of,
    sum_of,
    with_ids,
)
from postroad.consistency.sent import Sent, foreign, recorded, sent
from postroad.consistency.window import DAY, GRACE, window
from postroad.operations import audit
from postroad.operations.outbox import EventId, outbox_message

if TYPE_CHECKING:
    from postroad.app import Postroad

MOST_KEPT: Final = 100
_MOST_IDS: Final = 5


@dataclass(frozen=True, slots=True)
class Loss:
    """Events of one topic and type that a group has not all got; of one minute, if their ids tell it."""

    group: str
    topic: str
    type: str
    sent: int
    seen: int
    ids: Sequence[str]
    """Those that are missing, as the outbox has them; unless `named`, all of the minute."""
    slice: int | None = None
    """Which minute, for the export that tells its ids; None: they tell no time."""
    named: bool = True
    """False of another service's group, as long as only that one knows which of the minute are missing."""


@dataclass(frozen=True, slots=True)
class Uncompared:
    """Events that were sent, and of which it cannot be said whether a group got them."""

    group: str
    events: int


@dataclass(frozen=True, slots=True)
class Comparison:
    losses: Sequence[Loss]
    uncompared: Sequence[Uncompared] = ()

    @property
    def complete(self) -> bool:
        """Whether every group got everything, as far as there was anything to ask."""
        return not self.losses and not self.uncompared


async def export(
    road: "Postroad", *, since: float | timedelta = DAY, grace: float = GRACE, asked: Iterable[Loss] = ()
) -> Ledger:
    """What this service's groups have records of, for `against` where the events come from.

    `asked`: what was found there with the last one; of these minutes it tells every id.
    """
    wanted = {(one.group, (one.topic, one.type, one.slice)) for one in asked if one.slice is not None}
    return await with_ids(road, await inbox_ledger(road, await window(road, since, grace)), wanted)


async def verify(
    road: "Postroad", *, since: float | timedelta = DAY, grace: float = GRACE, against: Ledger | None = None
) -> Comparison:
    """Where what was sent and what groups have records of differ: here, or as another service's ledger tells."""
    seen = await window(road, since, grace)
    ledger = against or await inbox_ledger(road, seen)
    differing = await _differing(road, ledger, seen.now)
    ids = await _ids(road, ledger, {one.sent.place for one in differing}, seen.until)
    losses = [loss for one in differing if (loss := await _look(road, one, ids[one.sent.place], against is None))]
    singles = _Singles(road, ledger, here=against is None)
    await singles.walk(min(seen.until, moment_of(ledger.last)))
    return Comparison([*losses, *singles.losses], singles.uncompared)


class _Differing(NamedTuple):
    group: str
    sent: Entry
    got: Entry


class _Id(NamedTuple):
    id: UUID
    kept: str


async def _differing(road: "Postroad", ledger: Ledger, now: datetime) -> list[_Differing]:
    sums = await outbox_ledger(road, ledger.first, ledger.last, now)
    found: list[_Differing] = []
    for group, entries in ledger.groups.items():
        had = {entry.place: entry for entry in entries}
        for entry in sums:
            begun = ledger.begun[group].get(entry.type)
            got = had.get(entry.place) or Entry(*entry.place, 0, 0)
            if begun is not None and entry.slice >= begun and (got.events, got.sum) != (entry.events, entry.sum):
                found.append(_Differing(group, entry, got))
    return found


async def _ids(
    road: "Postroad", ledger: Ledger, places: Collection[Place], until: datetime
) -> Mapping[Place, Sequence[_Id]]:
    """What was sent by then; what was sent a moment ago may be on its way."""
    found: dict[Place, list[_Id]] = {place: [] for place in places}
    if not places:
        return found
    for outbox in road.outboxes:
        if foreign(outbox):
            async for place, one in placed(road, outbox, ledger.first, ledger.last, until):
                if place in found:
                    found[place].append(_Id(one.id, one.kept))
            continue
        for place, ids in found.items():
            topic, type, slice = place
            values = {**bounds(slice, slice + 1), "topic": topic, "event_type": type, "until": until}
            rows = (await road.store.read("ledger_ids", outbox, **values)).rows
            ids += [_Id(id := road.store.id_out(row.event_id), str(id)) for row in rows]
    return found


async def _look(road: "Postroad", one: _Differing, ids: Sequence[_Id], here: bool) -> Loss | None:
    group, sent, got = one
    if here:
        have = await recorded(road, group, [id.id for id in ids])
        missing, named = [id.kept for id in ids if id.id not in have], True
    else:
        missing, named = _told(sent, got, ids)
    return Loss(group, sent.topic, sent.type, sent.events, got.events, missing, sent.slice, named) if missing else None


def _told(sent: Entry, got: Entry, ids: Sequence[_Id]) -> tuple[list[str], bool]:
    """As far as another service's ledger tells it. If one is missing, the sums differ by what it would have added."""
    if got.ids is not None:
        have = set(got.ids)
        return [id.kept for id in ids if id.id not in have], True
    if sent.events - got.events == 1:
        only = [id.kept for id in ids if sum_of(id.id) == sent.sum - got.sum]
        if len(only) == 1:
            return only, True
    return [id.kept for id in ids], got.events == 0


class _Singles:
    """What belongs to no minute, compared one by one: with the records here, or with the list of another service."""

    def __init__(self, road: "Postroad", ledger: Ledger, *, here: bool) -> None:
        self.road, self.ledger = road, ledger
        self.listed = None if here else {group: frozenset(ids) for group, ids in ledger.singles.items()}
        self._asked: dict[tuple[str, str, str], int] = {}
        self._missing: dict[tuple[str, str, str], list[str]] = {}
        self._left: dict[str, int] = {}

    async def walk(self, until: datetime) -> None:
        first, last = self.ledger.first, self.ledger.last
        for outbox in self.road.outboxes:
            async for page in sent(self.road, outbox, moment_of(first), until):
                alone = [one for one in page if is_single(one, first, last) and (one.due is None or one.due < until)]
                for group, begun in self.ledger.begun.items():
                    await self._compare(
                        group, [one for one in alone if one.type in begun and begun[one.type] <= slice_of(one.at)]
                    )

    async def _compare(self, group: str, asked: Sequence[Sent]) -> None:
        if self.listed is not None and group not in self.listed:
            self._left[group] = self._left.get(group, 0) + len(asked)
            return
        have = (
            self.listed[group]
            if self.listed is not None
            else await recorded(self.road, group, [one.id for one in asked])
        )
        for one in asked:
            place = group, one.topic, one.type
            self._asked[place] = self._asked.get(place, 0) + 1
            if one.id not in have:
                self._missing.setdefault(place, []).append(one.kept)

    @property
    def losses(self) -> list[Loss]:
        asked = self._asked
        return [
            Loss(*place, asked[place], asked[place] - len(ids), ids) for place, ids in sorted(self._missing.items())
        ]

    @property
    def uncompared(self) -> list[Uncompared]:
        return [Uncompared(group, events) for group, events in self._left.items() if events]


def shortened(losses: Sequence[Loss]) -> Sequence[Loss]:
    """As many as a person reads, to be kept: who got nothing for a day lacks more than a row should hold."""
    return [replace(one, ids=one.ids[:_MOST_IDS]) for one in losses[:MOST_KEPT]]


async def resend(road: "Postroad", losses: Sequence[Loss], *, actor: str = "") -> int:
    """Those that are named, once more to the broker, in the order of their versions; how many it confirmed.

    Nothing is changed in the outbox. Groups that have a record of an event take it for a duplicate.
    """
    store, confirmed = road.store, 0
    for id in dict.fromkeys(id for loss in losses if loss.named for id in loss.ids):
        message = await outbox_message(store, road.outboxes, _event_id(id))
        (outcome,) = await road.broker.send([message])
        if isinstance(outcome, Confirmed):
            confirmed += 1
            async with store.transaction() as connection:
                await audit.record(
                    store, connection, actor=actor or audit.this_user(), action="verify.resend", subject=id
                )
    return confirmed


def _event_id(kept: str) -> EventId:
    """Text that is written in another way than ours is only found as it is."""
    try:
        event_id = UUID(kept)
    except ValueError:
        return kept
    return event_id if str(event_id) == kept else kept
