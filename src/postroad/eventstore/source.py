"""The event store as what a read model is rebuilt from."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from postroad.eventstore.record import message_of
from postroad.message import Message
from postroad.stores.base import Store
from postroad.stores.history import Place, pages


class EventStoreSource:
    """The domain events of one kind of aggregate, for a projection in the same database. They are kept for good."""

    def __init__(self, store: Store, aggregate: str) -> None:
        self._store, self._aggregate = store, aggregate

    async def size(self) -> int:
        found = await self._store.read("events_replay_size", aggregate_type=self._aggregate)
        return int(found.rows[0].events)

    async def read(self) -> AsyncGenerator[Message, None]:
        async with aclosing(pages(self._store, "events_replay", _place, self._aggregate)) as found:
            async for rows in found:
                for row in rows:
                    yield message_of(row, self._store)


def _place(row: Any) -> Place:
    return row.aggregate_id, row.aggregate_version
