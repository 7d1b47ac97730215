"""Find what a group never got by comparing sums; only where they differ are ids looked at, and sent again if wanted."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from postroad.brokers.base import Confirmed
from postroad.consistency.check import comparable
from postroad.consistency.ledger import Entry, Ledger, bounds, inbox_ledger, outbox_ledger
from postroad.consistency.window import DAY, GRACE, Window, window
from postroad.operations import audit
from postroad.operations.outbox import outbox_message

if TYPE_CHECKING:
    from postroad.app import Postroad

MOST_KEPT: Final = 100
_MOST_IDS: Final = 5


@dataclass(frozen=True, slots=True)
class Loss:
    """Events of one topic, type and minute that a group has not all got."""

    group: str
    topic: str
    type: str
    sent: int
    seen: int
    ids: Sequence[UUID]
    """Those that are missing; of another service's group, all of the minute, because only it knows which."""


async def export(road: "Postroad", *, since: float | timedelta = DAY, grace: float = GRACE) -> Ledger:
    """What this service's groups have records of, for `against` where the events come from."""
    return await inbox_ledger(road, await window(road, since, grace))


async def verify(
    road: "Postroad", *, since: float | timedelta = DAY, grace: float = GRACE, against: Ledger | None = None
) -> Sequence[Loss]:
    """Where what was sent and what groups have records of differ: here, or as another service's ledger tells."""
    seen = await window(road, since, grace)
    ledger = against or await inbox_ledger(road, seen)
    sent = await outbox_ledger(road, ledger.first, ledger.last)
    losses: list[Loss] = []
    for group, entries in ledger.groups.items():
        had = {entry.place: entry for entry in entries}
        for entry in sent:
            begun = ledger.begun[group].get(entry.type)
            got = had.get(entry.place) or Entry(*entry.place, 0, 0)
            if begun is not None and entry.slice >= begun and got != entry:
                losses += await _look(road, seen, group, entry, got, here=against is None)
    return losses


async def _look(road: "Postroad", seen: Window, group: str, sent: Entry, got: Entry, *, here: bool) -> list[Loss]:
    values = {**bounds(sent.slice, sent.slice + 1), "topic": sent.topic, "event_type": sent.type, "until": seen.until}
    ids = [
        road.store.id_out(row.event_id)
        for outbox in comparable(road.outboxes)
        for row in (await road.store.read("ledger_ids", outbox, **values)).rows
    ]
    if here and ids:
        known = (await road.store.read("inbox_of_events", group=group, ids=list(ids))).rows
        have = {road.store.id_out(row.event_id) for row in known}
        ids = [id for id in ids if id not in have]
    return [Loss(group, sent.topic, sent.type, sent.events, got.events, ids)] if ids else []


def shortened(losses: Sequence[Loss]) -> Sequence[Loss]:
    """As many as a person reads, to be kept: who got nothing for a day lacks more than a row should hold."""
    return [replace(one, ids=one.ids[:_MOST_IDS]) for one in losses[:MOST_KEPT]]


async def resend(road: "Postroad", losses: Sequence[Loss], *, actor: str = "") -> int:
    """Once more to the broker, in the order of their versions; how many it confirmed.

    Nothing is changed in the outbox. Groups that have a record of an event take it for a duplicate.
    """
    store, confirmed = road.store, 0
    for id in dict.fromkeys(id for loss in losses for id in loss.ids):
        message = await outbox_message(store, road.outboxes, id)
        (outcome,) = await road.broker.send([message])
        if isinstance(outcome, Confirmed):
            confirmed += 1
            async with store.transaction() as connection:
                await audit.record(
                    store, connection, actor=actor or audit.this_user(), action="verify.resend", subject=str(id)
                )
    return confirmed
