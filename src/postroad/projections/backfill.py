"""Snapshots of rows that were there before anybody listened, as events, page by page."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from sqlalchemy import ColumnElement, Select
from sqlalchemy.ext.asyncio import AsyncSession

from postroad.errors import ConfigurationError, StoreBusy
from postroad.naming import check_group

if TYPE_CHECKING:
    from postroad.app import Postroad

_PAUSE: Final = 0.1
_TRIES: Final = 20


class Backfill:
    """Each page is a transaction: the rows are locked and read, their events written, and the place noted. So no row
    changes between its reading and the version that its snapshot gets, and a run that died is taken up where it was.
    """

    def __init__(
        self,
        road: "Postroad",
        name: str,
        query: Select[Any],
        *,
        key: ColumnElement[Any],
        event: Callable[[Any], object],
        page: int = 200,
        per_second: float | None = None,
    ) -> None:
        check_group(name, on_broker=False)
        if page < 1 or (per_second is not None and per_second <= 0):
            raise ConfigurationError(f"Backfill {name}: page and per_second must be more than 0.")
        self._road, self._name, self._query, self._key = road, name, query, key
        self._event, self._page, self._per_second = event, page, per_second

    async def run(self) -> int:
        """How many snapshots there are in all, of this run and those before it. One that has ended does nothing."""
        store = self._road.store
        await store.change("backfill_begin", name=self._name)
        while True:
            done, more = await self._patiently()
            if not more:
                return done
            if self._per_second:
                await self._road.clock.sleep(self._page / self._per_second)

    async def _patiently(self) -> tuple[int, bool]:
        for left in reversed(range(_TRIES)):
            try:
                with self._road.store.translating():
                    return await self._step()
            except StoreBusy:
                # A writer that has its version already and waits for its row, which we hold: one of us gives way.
                if not left:
                    raise
                await self._road.clock.sleep(_PAUSE)
        raise AssertionError("the last try returns or raises")

    async def _step(self) -> tuple[int, bool]:
        store = self._road.store
        async with self._road.session() as session, session.begin():
            connection = await session.connection()
            (state,) = (await store.execute(connection, "backfill_lock", name=self._name)).rows
            if state.ended_at is not None:
                return state.snapshots, False
            rows = await self._rows(session, state.place)
            for row in rows:
                self._road.add(session, self._event(row))
            if not rows:
                await store.execute(connection, "backfill_end", name=self._name)
                return state.snapshots, False
            place, done = msgspec.json.encode(rows[-1]._mapping[_PLACE]).decode(), state.snapshots + len(rows)
            await store.execute(connection, "backfill_move", name=self._name, place=place, snapshots=done)
        return done, True

    async def _rows(self, session: AsyncSession, place: str | None) -> Any:
        query = self._query.add_columns(self._key.label(_PLACE)).order_by(self._key).limit(self._page)
        if place is not None:
            query = query.where(self._key > msgspec.json.decode(place, type=self._key.type.python_type))
        return (await session.execute(query.with_for_update())).all()


_PLACE: Final = "postroad_place"
