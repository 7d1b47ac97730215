"""New outbox events as they appear. It reads the outbox only: no group gets or misses anything by it."""

from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from postroad.operations.outbox import EventId, OutboxEvent, event_of
from postroad.stores.base import Result, Store
from postroad.stores.tables import OutboxTable
from postroad.telemetry.canary import is_canary

_AT_ONCE: Final = 1_000
_WINDOW: Final = 10.0
"""Seconds a transaction may stay open and its events still be seen before they are sent."""
_REMEMBERED: Final = 100_000


class Tail:
    """Each call of `look` gives what has appeared since the last.

    Two indexes tell: the primary key, because ids begin with their time; and the times of sending, for events
    whose ids come from an idempotency key.
    """

    def __init__(self, store: Store, outboxes: Sequence[OutboxTable]) -> None:
        self._store, self._outboxes = store, outboxes
        self._seen: OrderedDict[EventId, None] = OrderedDict()
        self._began = False

    async def look(self) -> Sequence[OutboxEvent]:
        """The first look only takes note of what is there."""
        found: list[OutboxEvent] = []
        for outbox in self._outboxes:
            for row in await self._rows(outbox):
                event = event_of(self._store, outbox, row)
                if event.id not in self._seen and not is_canary(event.type):
                    self._seen[event.id] = None
                    found.append(event)
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        began, self._began = self._began, True
        return sorted(found, key=lambda event: event.occurred_at) if began else []

    async def _rows(self, outbox: OutboxTable) -> Sequence[Any]:
        now = self._store.clock.now()
        # Other hosts' clocks may be a little ahead of ours.
        span = _first_id(now - timedelta(seconds=_WINDOW)), _first_id(now + timedelta(seconds=_WINDOW))
        low, high = (str(id) if outbox.ids == "text" else id for id in span)
        rows: list[Any] = []
        async with self._store.reading() as connection:
            while True:
                page: Result = await self._store.execute(
                    connection, "outbox_written", outbox=outbox, low=low, high=high, limit=_AT_ONCE
                )
                rows += page.rows
                if len(page.rows) < _AT_ONCE:
                    break
                low = page.rows[-1].event_id
            sent = await self._store.execute(
                connection, "outbox_sent_since", outbox=outbox, seconds=_WINDOW, limit=10 * _AT_ONCE
            )
        return [*rows, *sent.rows]


def _first_id(moment: datetime) -> UUID:
    """The smallest id of this millisecond."""
    return UUID(int=int(moment.timestamp() * 1000) << 80)
