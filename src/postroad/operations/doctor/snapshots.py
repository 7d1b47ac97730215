"""Who holds back the removal of old rows: the longer, the slower every look at the outbox."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from postroad.errors import StoreError, StoreUnavailable
from postroad.operations.doctor.finding import Level, Problem

if TYPE_CHECKING:
    from postroad.app import Postroad

LONG: Final = 300.0
"""Seconds after which a transaction counts as forgotten."""
_UNTIL_THEN: Final = "until then no dead row can be removed, and every look at the outbox walks past them all"


async def snapshots(road: "Postroad") -> AsyncIterator[Problem]:
    async with road.store.reading() as connection:
        right = (await road.store.execute(connection, "snapshot_right")).rows[0].command
    try:
        async with road.store.reading() as connection:
            rows = (await road.store.execute(connection, "snapshot_holders", seconds=LONG)).rows
    except StoreUnavailable:
        raise
    except StoreError as error:
        yield _hidden(str(error), right)
        return
    for row in rows:
        hidden = f"The transactions of {row.name} sessions of other users cannot be seen."
        yield _hidden(hidden, right) if row.kind == "hidden" else _problem(row)


def _hidden(cause: str, right: str) -> Problem:
    return Problem(Level.UNMADE, cause, "Let this user see what others do.", right)


def _problem(row: Any) -> Problem:
    if row.kind == "replication slot":
        cause = f"Nobody reads the replication slot {row.name}: the server keeps its log and old rows for it."
        return Problem(Level.WARNING, cause, "Start its reader, or drop it.", row.command)
    cause = f"The {row.kind} {row.name} has been open for {float(row.seconds) / 60:.0f} min: {_UNTIL_THEN}."
    return Problem(Level.WARNING, cause, "Find out what it does, then end it.", row.command)
