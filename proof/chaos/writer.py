"""Transfers of several payments each, some rolled back on purpose."""

import asyncio
import logging
import random
from typing import Final
from uuid import uuid4

from sqlalchemy import text

from postroad import Postroad
from proof.chaos.bank import GROUPS, USUAL_LOAD, Load, pay
from proof.chaos.journal import Note, Outcome
from proof.chaos.purses import VIEW

_UNDONE_OF: Final = 7
_LOOK_EVERY: Final = 20
_BACKLOG: Final = text(
    "SELECT (SELECT COUNT(*) FROM payment) * :groups - (SELECT COUNT(*) FROM effect)"
    " + (SELECT COUNT(*) FROM postroad_domain_events)"
    " - (SELECT COUNT(*) FROM postroad_inbox WHERE consumer_group = :view AND status = 1)"
    " + (SELECT COUNT(*) FROM postroad_command_box"
    "     WHERE status IN ('PENDING', 'PROCESSING') OR (status = 'FAILED' AND next_retry_at IS NOT NULL)) AS waiting"
)
_log = logging.getLogger("chaos.writer")


async def write(road: Postroad, note: Note, dice: random.Random, transfers: int, load: Load = USUAL_LOAD) -> None:
    for _ in range(transfers):
        accounts = [f"a{dice.randrange(load.keys)}" for _ in range(dice.randint(1, load.most_payments))]
        transfer = uuid4().hex
        note(transfer, await _transfer(road, transfer, accounts, undo=dice.randrange(_UNDONE_OF) == 0))


async def write_until(stop: asyncio.Event, road: Postroad, note: Note, dice: random.Random, load: Load) -> None:
    """As fast as the others can follow: the backlog must be worked off when the faults have ended."""
    while not stop.is_set():
        if await waiting(road) > load.backlog:
            await asyncio.sleep(0.1)
        else:
            await write(road, note, dice, _LOOK_EVERY, load)


async def _transfer(road: Postroad, transfer: str, accounts: list[str], *, undo: bool) -> Outcome:
    outcome = Outcome.UNDONE
    try:
        async with road.session() as session:
            await pay(road, session, transfer, {uuid4().hex: account for account in accounts})
            if undo:
                await session.rollback()
            else:
                outcome = Outcome.UNKNOWN
                await session.commit()
                outcome = Outcome.KEPT
    except Exception as error:  # whatever a driver says of a broken connection
        _log.info("transfer %s is %s: %s", transfer, outcome.value, error)
        await asyncio.sleep(0.05)
    return outcome


async def waiting(road: Postroad) -> int:
    """Effects, events of purses and commands whose end is still to come, as far as can be seen."""
    try:
        async with road.store.reading() as connection:
            return int((await connection.execute(_BACKLOG, {"groups": len(GROUPS), "view": VIEW})).scalar_one())
    except Exception as error:
        _log.info("the backlog cannot be seen: %s", error)
        return 0
