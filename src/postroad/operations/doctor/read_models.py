"""Read models: the tables that projections keep are the application's own, and must be as it declares them."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Inspector, Table, inspect

from postroad.operations.doctor.finding import Level, Problem
from postroad.projections import Projection
from postroad.projections.shadow import columns_of

if TYPE_CHECKING:
    from postroad.app import Postroad


async def projections(road: "Postroad") -> AsyncIterator[Problem]:
    async with road.store.reading() as connection:
        for projection in road.projections.values():
            for problem in await connection.run_sync(_examined, projection):
                yield problem


def _examined(connection: Connection, projection: Projection) -> list[Problem]:
    return [Problem(Level.FAULT, *told) for told in _lacks(connection, projection)]


def _lacks(connection: Connection, projection: Projection) -> Iterator[tuple[str, str, str]]:
    """Cause, cure and command. A rebuild makes the table anew as it is declared, and fills it."""
    table, told = projection.table, f"The table {projection.table.fullname} of the projection {projection.name}"
    again = f"postroad projection rebuild {projection.name}"
    found = columns_of(connection, table)
    if not found:
        cause = f"{told} is missing: every event of it fails."
        yield cause, "Create it as your application does, or rebuild it.", again
        return
    kept = (projection.key, projection.version, projection.deleted)
    if guards := [name for name in kept if name and name not in found]:
        cause = f"{told} has no column {', '.join(guards)}: nothing guards its rows, and every event of it fails."
        # A rebuild compares what it has made with what is there, and could not.
        cure = f"Set it aside, then make it anew: {again}."
        yield cause, cure, f"ALTER TABLE {table.fullname} RENAME TO {table.name}_aside"
    elif missing := [column.name for column in table.columns if column.name not in found]:
        cause = f"{told} has no column {', '.join(missing)}: every event of it fails."
        yield cause, "Add it as your application declares it, or rebuild the table.", again
    if projection.key in found and [projection.key] not in _unique_keys(inspect(connection), table):
        cause = f"{told} has no unique key on {projection.key}: an older event can stand beside a newer one."
        yield cause, "Remove what is there twice and create the key, or rebuild the table.", again


def _unique_keys(inspector: Inspector, table: Table) -> list[Sequence[str | None]]:
    name, schema = table.name, table.schema
    indexes = inspector.get_indexes(name, schema)
    whole = [one for one in indexes if one["unique"] and not one.get("dialect_options", {}).get("postgresql_where")]
    return [
        inspector.get_pk_constraint(name, schema)["constrained_columns"],
        *(one["column_names"] for one in inspector.get_unique_constraints(name, schema)),
        *(one["column_names"] for one in whole),
    ]
