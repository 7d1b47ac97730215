"""From events to rows: in the order of each key, one row per key, one statement for all of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, select
from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.errors import PoisonError, VersionGap
from postroad.message import Message
from postroad.stores.base import Store

if TYPE_CHECKING:
    from postroad.projections.projection import Projection

Pairs = Sequence[tuple[object, Message]]
"""Events with their messages."""
Gaps = dict[Any, VersionGap]
"""By key, the last change that could not be made because one before it was missing."""


@dataclass(frozen=True, slots=True)
class Row:
    key: Any
    version: int
    values: Mapping[str, Any] = field(default_factory=dict)
    """Whatever is not in it is NULL."""
    deleted: bool = False


async def change(
    projection: "Projection",
    table: Table,
    store: Store,
    connection: AsyncConnection,
    pairs: Pairs,
    gaps: Gaps | None = None,
) -> None:
    """Raises VersionGap for a delta whose predecessor is missing; or, given `gaps`, notes it and passes it over."""
    built_upon = {projection.key_of(message) for event, message in pairs if projection.is_delta(event)}
    known = await _read(projection, table, connection, built_upon) if built_upon else {}
    if rows := fold(projection, pairs, known, gaps):
        # The guard is in the statement, too: whatever happened since we looked, old never overwrites new.
        upsert = store.upsert_if_newer(table, projection.key, projection.version)
        await connection.execute(upsert, [_bind(projection, row) for row in rows])


def fold(projection: "Projection", pairs: Pairs, known: Mapping[Any, Row], gaps: Gaps | None = None) -> list[Row]:
    """The new rows. `known` has the stored ones, at least for the keys of deltas."""
    now, changed = dict(known), set()
    for event, message in pairs:
        if not message.version:
            raise PoisonError(f"{message.type} {message.id} has no version, and {projection.name} cannot order it.")
        key = projection.key_of(message)
        before = now.get(key)
        if before is not None and before.version >= message.version:
            continue  # it was here before, or something newer was
        if not projection.is_delta(event):
            now[key] = projection.row(event, message)
        elif (stored := before.version if before else 0) == message.version - 1:
            now[key] = projection.row(event, message, before)
        else:
            gap = VersionGap(projection.name, key, stored, message.version)
            if gaps is None:
                raise gap
            gaps[key] = gap
            continue
        changed.add(key)
        if gaps and key in gaps and gaps[key].version <= message.version:
            del gaps[key]  # what was missing has come, or a whole row, which needs no predecessor
    # Sorted, because two workers that write the same rows in different order would deadlock.
    return [now[key] for key in sorted(changed)]


async def _read(
    projection: "Projection", table: Table, connection: AsyncConnection, keys: Iterable[Any]
) -> dict[Any, Row]:
    """Locked until the commit: who brings the next change waits for this one, and finds no gap."""
    key = table.c[projection.key]
    query = select(table).where(key.in_(sorted(keys))).order_by(key).with_for_update()
    rows = (await connection.execute(query)).mappings().all()
    names = [column.name for column in projection.columns]
    return {
        row[projection.key]: Row(
            row[projection.key],
            row[projection.version],
            {name: row[name] for name in names},
            bool(projection.deleted and row[projection.deleted]),
        )
        for row in rows
    }


def _bind(projection: "Projection", row: Row) -> dict[str, Any]:
    bound = {column.name: row.values.get(column.name) for column in projection.columns}
    bound |= {projection.key: row.key, projection.version: row.version}
    return bound | ({projection.deleted: row.deleted} if projection.deleted else {})
