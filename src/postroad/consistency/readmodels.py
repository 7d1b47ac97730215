"""Whether the rows of read models have what their groups have records of."""

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlalchemy import Select, bindparam, select

from postroad.consistency.window import Window
from postroad.projections import Projection

if TYPE_CHECKING:
    from postroad.app import Postroad

_PAGE: Final = 1_000


async def behind(road: "Postroad", projection: Projection, window: Window) -> AsyncIterator[list[str]]:
    """Page by page the aggregates whose row is missing, or of a lower version than its group has handled.

    The record is read before the row, which only rises: what is being handled is never found.
    """
    columns = projection.table.c
    key, version = columns[projection.key], columns[projection.version]
    # Once for all pages: a statement of each would hold its keys until the garbage collector comes.
    rows = select(key, version).where(key.in_(bindparam("keys", expanding=True)))
    since: datetime | None = window.since
    after = UUID(int=0)
    while True:
        values: dict[str, Any] = {"group": projection.group, "since": since, "after": after, "limit": _PAGE}
        page = (await road.store.read("check_projected", **values)).rows
        if handled := _highest(projection, page):
            yield await _lower(road, projection, rows, handled)
        if len(page) < _PAGE:
            return
        since, after = road.store.time_out(page[-1].processed_at), road.store.id_out(page[-1].event_id)


def _highest(projection: Projection, page: Any) -> dict[Any, int]:
    """By the row's key."""
    start = f"{projection.aggregate}/"
    handled: dict[Any, int] = {}
    for row in page:
        if row.event_type in projection.types and row.ordering_key.startswith(start):
            key = projection.as_key(row.ordering_key.removeprefix(start))
            handled[key] = max(row.version, handled.get(key, 0))
    return handled


async def _lower(road: "Postroad", projection: Projection, rows: Select[Any], handled: Mapping[Any, int]) -> list[str]:
    async with road.store.reading() as connection:
        there = {row[0]: row[1] for row in await connection.execute(rows, {"keys": list(handled)})}
    start = f"{projection.aggregate}/"
    return [f"{start}{key} v{wanted}" for key, wanted in handled.items() if there.get(key, 0) < wanted]
