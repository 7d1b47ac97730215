"""Removing what has been sent long ago. What is unsent, or parked for a person, is never touched."""

from postroad.errors import ConfigurationError
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable


class Pruner:
    """Small batches in transactions of their own, so that no writer waits and no snapshot is held."""

    def __init__(self, store: Store, outbox: OutboxTable, *, retention: float, batch: int = 1_000) -> None:
        if retention <= 0:
            raise ConfigurationError(f"retention is {retention}: it must be more than 0 seconds.")
        self._store, self._outbox, self._retention, self._batch = store, outbox, retention, batch

    async def run_once(self) -> int:
        """Removes everything that is old enough; how many events that was."""
        removed = 0
        while True:
            async with self._store.transaction() as connection:
                bounds = {"outbox": self._outbox, "older_than": self._retention, "most": self._batch}
                if self._outbox.append_only:
                    await self._store.execute(connection, "prune_facts", **bounds)
                pruned = await self._store.execute(connection, "prune_sent", **bounds)
            removed += pruned.rowcount
            if pruned.rowcount < self._batch:
                return removed
