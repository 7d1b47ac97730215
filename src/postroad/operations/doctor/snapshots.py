"""Who holds back the removal of old rows: the longer, the slower every look at the outbox."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from postroad.errors import StoreError
from postroad.operations.doctor.finding import Level, Problem

if TYPE_CHECKING:
    from postroad.app import Postroad

LONG: Final = 300.0
"""Seconds after which a transaction counts as forgotten."""
_UNTIL_THEN: Final = "until then no dead row can be removed, and every look at the outbox walks past them all"


async def snapshots(road: "Postroad") -> AsyncIterator[Problem]:
    try:
        async with road.store.reading() as connection:
            rows = (await road.store.execute(connection, "snapshot_holders", seconds=LONG)).rows
    except StoreError as error:
        if road.store.dialect != "mysql":
            raise
        yield Problem(
            Level.UNMADE,
            str(error),
            "Let the user see the transactions of others.",
            "GRANT PROCESS ON *.* TO CURRENT_USER()",
        )
        return
    for row in rows:
        yield _problem(row)


def _problem(row: Any) -> Problem:
    match row.kind:
        case "hidden":
            cause = f"The transactions of {row.name} sessions of other users cannot be seen."
            return Problem(Level.UNMADE, cause, "Let this user read the statistics.", row.command)
        case "replication slot":
            cause = f"Nobody reads the replication slot {row.name}: the server keeps its log and old rows for it."
            return Problem(Level.WARNING, cause, "Start its reader, or drop it.", row.command)
        case _:
            cause = f"The {row.kind} {row.name} has been open for {float(row.seconds) / 60:.0f} min: {_UNTIL_THEN}."
            return Problem(Level.WARNING, cause, "Find out what it does, then end it.", row.command)
