"""Removing what was sent or skipped long ago. What is unsent, or parked for a person, is never touched."""

from collections.abc import Callable

from postroad.stores.base import Store, id_text
from postroad.stores.tables import OutboxTable

_WORKER_MEMORY = 86_400.0
"""Seconds for which a worker that went without a word is remembered; long enough to have been noticed."""


class Pruner:
    """Small batches in transactions of their own, so that no writer waits and no snapshot is held."""

    def __init__(self, store: Store, outbox: OutboxTable, *, retention: float, batch: int = 1_000) -> None:
        self._store, self._outbox, self._retention, self._batch = store, outbox, retention, batch

    async def run_once(self, goes_on: Callable[[], bool] = lambda: True) -> int:
        """Removes what is old enough, for as long as `goes_on` says so; how many events that was."""
        async with self._store.transaction() as connection:
            await self._store.execute(connection, "workers_forget", ttl=_WORKER_MEMORY)
        return sum([await self._remove(old, goes_on) for old in ("prunable", "prunable_skipped")])

    async def _remove(self, old: str, goes_on: Callable[[], bool]) -> int:
        removed = 0
        while goes_on():
            async with self._store.transaction() as connection:
                # Chosen once for both tables: two searches could disagree, and leave facts without delivery.
                found = await self._store.execute(
                    connection, old, outbox=self._outbox, older_than=self._retention, most=self._batch
                )
                ids = [id_text(row.event_id) for row in found.rows]
                if ids and self._outbox.append_only:
                    await self._store.execute(connection, "prune_facts", outbox=self._outbox, ids=ids)
                if ids:
                    await self._store.execute(connection, "prune_sent", outbox=self._outbox, ids=ids)
            removed += len(ids)
            if len(ids) < self._batch:
                break
        return removed
