"""Rows that other programs wrote into an adopted table: they lack key, shard and perhaps version, so far."""

from typing import Any, Final
from uuid import UUID

from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.message import ordering_key, shard_of
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable

_AT_ONCE: Final = 1_000


class Adoption:
    """Done by one relay at a time, the holder of shard 0, so that a key's rows get their turn in order."""

    def __init__(self, store: Store, outbox: OutboxTable) -> None:
        self._store, self._outbox = store, outbox

    async def run_once(self, token: UUID) -> int:
        """How many rows now belong to a shard; 0 also when it is not our turn."""
        async with self._store.transaction() as connection:
            if not await self._is_ours(connection, token):
                return 0
            rows = (await self._store.execute(connection, "unsharded", outbox=self._outbox, most=_AT_ONCE)).rows
            for row in rows:
                await self._assign(connection, row)
        return len(rows)

    async def _is_ours(self, connection: AsyncConnection, token: UUID) -> bool:
        turn = await self._store.execute(connection, "adoption_turn", outbox_name=self._outbox.name, token=token)
        return bool(turn.rows)

    async def _assign(self, connection: AsyncConnection, row: Row[Any]) -> None:
        aggregate = {"aggregate_type": row.aggregate_type, "aggregate_id": str(row.aggregate_id)}
        key = ordering_key(**aggregate)
        # The counter follows what others wrote, so that our next event of this aggregate comes after it.
        await self._store.execute(connection, "version_follow", version=row.version, **aggregate)
        version = row.version
        if version is None:
            version = (await self._store.execute(connection, "version_read", **aggregate)).rows[0].version
        await self._store.execute(
            connection,
            "assign_shard",
            outbox=self._outbox,
            event_id=row.event_id,
            ordering_key=key,
            shard=shard_of(key),
            version=version,
            now=self._store.clock.now(),
        )
