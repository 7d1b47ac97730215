"""The table that is built beside the one that serves, and the moment at which it takes its place."""

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, MetaData, Table, insert, inspect, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.schema import CreateTable, DropTable

from postroad.stores.base import Store

if TYPE_CHECKING:
    from postroad.projections.projection import Projection


def beside(table: Table, what: str, generation: int = 0) -> Table:
    """The declared table under another name. Names of indexes and constraints are of the generation, because in most
    databases those of two tables must differ."""
    other = table.to_metadata(MetaData(), name=f"{table.name}_{what}")
    named: list[Any] = [*other.indexes, *other.constraints]
    for item in named:
        if isinstance(item.name, str):
            item.name = f"{item.name[:50]}_g{generation}"
    return other


async def create(connection: AsyncConnection, table: Table, generation: int) -> Table:
    """The shadow, empty. What a rebuild that died has left is removed."""
    shadow = beside(table, "shadow", generation)
    for left in (shadow, beside(table, "old")):
        await connection.execute(DropTable(left, if_exists=True))
    await connection.execute(CreateTable(shadow))
    for index in shadow.indexes:
        await connection.run_sync(index.create)
    return shadow


async def keep_tombstones(projection: "Projection", connection: AsyncConnection, shadow: Table) -> None:
    """Those of aggregates that the source has forgotten: they still guard against what is late."""
    live, deleted = projection.table, projection.deleted
    if deleted is None or deleted not in await connection.run_sync(columns_of, live):
        return
    names = (projection.key, projection.version, deleted)
    both = live.outerjoin(shadow, live.c[projection.key] == shadow.c[projection.key])
    forgotten = select(*(live.c[name] for name in names)).select_from(both)
    forgotten = forgotten.where(live.c[deleted].is_(True), shadow.c[projection.key].is_(None))
    await connection.execute(insert(shadow).from_select(names, forgotten, include_defaults=False))


def columns_of(connection: Connection, table: Table) -> set[str]:
    """What the database says; none if the table is not there."""
    inspector = inspect(connection)
    if not inspector.has_table(table.name, table.schema):
        return set()
    return {column["name"] for column in inspector.get_columns(table.name, table.schema)}


async def swap(store: Store, connection: AsyncConnection, table: Table) -> None:
    """Readers see the one or the other, never none. Raises StoreBusy if some of them hold the table too long."""
    there = await store.has_table(connection, table.fullname)
    old = f"{table.name}_old" if there else ""
    await store.swap(connection, table.schema or "", live=table.name, shadow=f"{table.name}_shadow", old=old)


async def drop(connection: AsyncConnection, table: Table, what: str) -> None:
    await connection.execute(DropTable(beside(table, what), if_exists=True))
