"""Money between purses, moved by commands: two domain events each, a row of its own, and a read model of the purses."""

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID, uuid4

import msgspec
from sqlalchemy import BigInteger, Column, MetaData, String, Table, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.schema import CreateTable

from postroad import Message, Postroad, event
from postroad.errors import CommandRefused
from postroad.events import event_type_of
from proof.chaos.journal import Note, Outcome

VIEW: Final = "view"
"""The group that keeps the read model."""
PURSES: Final = 8
LEGS: Final = 2
"""Events of each command."""
_ASKED: Final = 4
"""Times, for an answer."""
_PAUSE: Final = 0.1
_REFUSED_OF: Final = 7

PURSE: Final = Table(
    "purse",
    MetaData(),
    Column("purse", String(20), primary_key=True),
    Column("balance", BigInteger, nullable=False),
    Column("moves", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
)
# No unique constraint: a command that took effect twice has to show.
TABLES: Final = (CreateTable(PURSE), text("CREATE TABLE moved (command_id VARCHAR(36) NOT NULL)"))
_MOVED: Final = text("INSERT INTO moved (command_id) VALUES (:id)")
_log = logging.getLogger("chaos.purses")


@event("Bank.Purse.Moved", topic="bank.purse.events", aggregate="purse", key="purse")
class Moved(msgspec.Struct, frozen=True):
    """A change upon what was there before: one too many or too few, and the read model is wrong for good."""

    purse: str
    amount: int


SUBSCRIPTION: Final = f"{event_type_of(Moved).topic}.{VIEW}"


class Move(msgspec.Struct, frozen=True):
    purse: str
    to: str
    amount: int


def declare_purses(road: Postroad) -> None:
    road.command("Command.Bank.Purse.Move", aggregate="purse", key="purse")(Move)

    # It decides upon a version: of two who move the same purse, one has to begin anew.
    @road.handles(Move)
    async def move(command: Move, version: int, session: AsyncSession, message: Message) -> Sequence[object]:
        await session.execute(_MOVED, {"id": str(message.id)})
        if not command.amount:
            raise CommandRefused("nothing is to be moved")
        return [Moved(command.purse, -command.amount), Moved(command.to, command.amount)]

    @road.projection("purse", PURSE, group=VIEW).on(Moved, delta=True)
    def moved(event: Moved, row: dict[str, Any]) -> dict[str, object]:
        return {"balance": row.get("balance", 0) + event.amount, "moves": row.get("moves", 0) + 1}


async def move_until(stop: asyncio.Event, road: Postroad, note: Note, dice: random.Random) -> None:
    """Few beside the payments: it is the faults between their steps that count."""
    while not stop.is_set():
        here, there = dice.sample(range(PURSES), 2)
        amount = 0 if dice.randrange(_REFUSED_OF) == 0 else dice.randint(1, 100)
        command, id = Move(f"p{here}", f"p{there}", amount), uuid4()
        # Two at once, as when somebody lost patience and asked again.
        answers = await asyncio.gather(*(_ask(road, command, id) for _ in range(dice.choice((1, 1, 2)))))
        note(str(id), next((answer for answer in answers if answer is not Outcome.UNKNOWN), Outcome.UNKNOWN))
        await asyncio.sleep(_PAUSE)


async def _ask(road: Postroad, command: Move, id: UUID) -> Outcome:
    for _ in range(_ASKED):
        try:
            await road.execute(command, command_id=id)
        except CommandRefused:
            return Outcome.UNDONE
        except Exception as error:  # whatever a driver says of a broken connection
            _log.info("command %s: %s", id, error)
            await asyncio.sleep(0.05)
        else:
            return Outcome.KEPT
    return Outcome.UNKNOWN
