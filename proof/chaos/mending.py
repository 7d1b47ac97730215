"""At the end something is lost on purpose, as if somebody had deleted rows: it must come back, and nothing else."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from postroad import Postroad
from postroad.consistency import Finding, Loss, repair, resend
from proof.chaos.bank import GROUPS
from proof.chaos.purses import VIEW

_TRIES: Final = 20
_PAUSE: Final = 0.5
_GROUP: Final = GROUPS[0]
# The latest: what comes back of an account comes after all that was sent meanwhile.
_EFFECT: Final = text(
    "SELECT payment, account, version FROM effect WHERE consumer = :group ORDER BY version DESC, account LIMIT 1"
)
_CREDITED: Final = text(
    "SELECT event_id FROM postroad_outbox WHERE aggregate_type = 'account' AND aggregate_id = :account"
    " AND version = :version"
)
_EVENTS: Final = text(
    "SELECT event_id, aggregate_id, aggregate_version, payload FROM postroad_domain_events"
    " ORDER BY aggregate_version, aggregate_id"
)
_FORGET_EFFECT: Final = text("DELETE FROM effect WHERE consumer = :group AND payment = :payment")
_FORGET_RECORD: Final = text("DELETE FROM postroad_inbox WHERE consumer_group = :group AND event_id = :id")
_FORGET_OUTBOX: Final = text("DELETE FROM postroad_outbox WHERE event_id = :id")
_SET_BACK: Final = text(
    "UPDATE purse SET balance = balance - :amount, moves = moves - 1, version = version - 1 WHERE purse = :purse"
)


async def plant(road: Postroad) -> int:
    """How many events are lost now: of a payment, one group's effect and record of it; of the purses, the very first
    event and the very last, as if neither had been sent. The last is taken out of the read model, too; the first is
    not, and must not get into it again."""
    async with road.store.transaction() as connection:
        return await _lose_an_effect(connection) + await _lose_what_was_sent(connection)


async def _lose_an_effect(connection: AsyncConnection) -> int:
    if (found := (await connection.execute(_EFFECT, {"group": _GROUP})).first()) is None:
        return 0
    payment, account, version = found
    id = (await connection.execute(_CREDITED, {"account": account, "version": version})).scalar_one()
    await connection.execute(_FORGET_EFFECT, {"group": _GROUP, "payment": payment})
    await connection.execute(_FORGET_RECORD, {"group": _GROUP, "id": id})
    return 1


async def _lose_what_was_sent(connection: AsyncConnection) -> int:
    events = (await connection.execute(_EVENTS)).fetchall()
    if len(events) < 2:
        return 0
    first, last = events[0], events[-1]
    for event in (first, last):
        await connection.execute(_FORGET_OUTBOX, {"id": event.event_id})
        await connection.execute(_FORGET_RECORD, {"group": VIEW, "id": event.event_id})
    amount = msgspec.json.decode(bytes(last.payload))["amount"]
    await connection.execute(_SET_BACK, {"purse": last.aggregate_id, "amount": amount})
    return 2


async def missing(road: Postroad) -> Sequence[Finding]:
    """What does not fit together. Before anything is planted, that is what the faults have done; but order is promised
    for a part of the time only where a broker does not keep it, and the ledger knows for which."""
    report = await road.check(grace=0)
    return [finding for finding in report.findings if finding.kind != "out_of_order"]


async def mend(road: Postroad) -> None:
    """`verify` would name what the groups have no record of, but not of the last minute, and much of a campaign is."""
    unseen = [
        Loss(finding.where, "", "", 0, 0, finding.ids) for finding in await missing(road) if finding.kind == "unseen"
    ]
    await repair(road, grace=0, apply=True, actor="chaos")
    wanted = len({id for loss in unseen for id in loss.ids})
    for _ in range(_TRIES):
        # Our own connection to the broker may have been broken, too: then a person would ask again.
        if await resend(road, unseen, actor="chaos") == wanted:
            return
        await asyncio.sleep(_PAUSE)
