"""The event store as what a read model is rebuilt from."""

from collections.abc import AsyncGenerator
from typing import Final

from postroad.eventstore.record import message_of
from postroad.message import Message
from postroad.stores.base import Store

_PAGE: Final = 500


class EventStoreSource:
    """The domain events of one kind of aggregate, for a projection in the same database. They are kept for good."""

    def __init__(self, store: Store, aggregate: str) -> None:
        self._store, self._aggregate = store, aggregate

    async def size(self) -> int:
        found = await self._store.read("events_replay_size", aggregate_type=self._aggregate)
        return int(found.rows[0].events)

    async def read(self) -> AsyncGenerator[Message, None]:
        after_id, after_version = "", 0
        while True:
            page = await self._store.read(
                "events_replay",
                aggregate_type=self._aggregate,
                after_id=after_id,
                after_version=after_version,
                limit=_PAGE,
            )
            for row in page.rows:
                yield message_of(row, self._store)
            if len(page.rows) < _PAGE:
                return
            after_id, after_version = page.rows[-1].aggregate_id, page.rows[-1].aggregate_version
