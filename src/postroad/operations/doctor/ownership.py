"""One service, one schema: what leaves it, and rights that reach beyond it."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from postroad.operations.doctor.finding import Level, Problem

if TYPE_CHECKING:
    from postroad.app import Postroad

_EXAMPLES: Final = 5


async def foreign_keys(road: "Postroad") -> AsyncIterator[Problem]:
    async with road.store.reading() as connection:
        rows = (await road.store.execute(connection, "foreign_keys_out", most=_EXAMPLES)).rows
    for row in rows:
        yield Problem(
            Level.WARNING,
            f"The foreign key {row.name} leads from {row.from_table} to {row.to_table}, across schemas: neither "
            "service can change, move or delete without the other.",
            "Keep a copy of what is needed, made from the other service's events, and drop the key.",
            row.command,
        )


async def grants(road: "Postroad") -> AsyncIterator[Problem]:
    async with road.store.reading() as connection:
        rows = (await road.store.execute(connection, "written_elsewhere", most=_EXAMPLES)).rows
    for row in rows:
        yield Problem(
            Level.WARNING,
            f"This user may write to {row.name}, outside the service's own schema.",
            "Take the right away; what belongs to another service changes by its events or its interface.",
            row.command,
        )


async def rights(road: "Postroad") -> AsyncIterator[Problem]:
    async with road.store.reading() as connection:
        names = [row.name for row in (await road.store.execute(connection, "rights_read")).rows]
    if names:
        yield Problem(
            Level.HINT,
            f"The database user may do more than Postroad needs: {', '.join(names)}.",
            "Use a user of the service's own, with rights in its own schema only.",
            "CREATE USER …",
        )
