"""Which shards are ours. Leases are rows in the database, timed by its clock alone."""

import math
import random
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.clock import Clock
from postroad.message import SHARDS, new_id
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable


class ShardLeases:
    """A fair share of the shards, renewed; each take raises the shard's epoch, which fences its earlier holders."""

    def __init__(
        self, store: Store, outbox: OutboxTable, *, name: str, ttl: float, clock: Clock, randomness: random.Random
    ) -> None:
        self._store, self._outbox, self._name, self._ttl, self._clock = store, outbox, name, ttl, clock
        self.token: UUID = new_id(clock.now(), randomness)
        self._epochs: dict[int, int] = {}
        self._safe_until = -math.inf
        self._renew_at = -math.inf

    @property
    def epochs(self) -> dict[int, int]:
        """Shard → epoch of what we hold; empty once the leases may have run out unnoticed."""
        return self._epochs if self._clock.monotonic() < self._safe_until else {}

    def due(self) -> bool:
        return self._clock.monotonic() >= self._renew_at

    async def keep(self) -> None:
        """Renew, give back what is more than our share, take what is free: one short transaction."""
        asked_at = self._clock.monotonic()
        async with self._store.transaction() as connection:
            await self._run(connection, "worker_beat", id=self.token, kind="relay", name=self._name, detail=self._outbox.name)
            await self._run(connection, "lease_renew", ttl=self._ttl, token=self.token)
            held = await self._held(connection)
            share = math.ceil(SHARDS / max(1, await self._relays_alive(connection)))
            if len(held) > share:
                await self._run(connection, "lease_release", token=self.token, shards=sorted(held)[share:])
            elif len(held) < share:
                await self._take(connection, share - len(held))
            self._epochs = await self._held(connection)
        # Counted from before the question, so that our idea of the lease ends before the database's.
        self._safe_until = asked_at + self._ttl * 0.9
        self._renew_at = asked_at + min(self._ttl / 3, 1.0)

    async def release(self) -> None:
        """Hand everything back, so that others need not wait for the lease to run out."""
        async with self._store.transaction() as connection:
            await self._run(connection, "lease_release", token=self.token, shards=list(range(SHARDS)))
            await self._store.execute(connection, "worker_gone", id=self.token)
        self._epochs = {}

    async def _held(self, connection: AsyncConnection) -> dict[int, int]:
        return {row.shard: row.epoch for row in (await self._run(connection, "lease_held", token=self.token)).rows}

    async def _relays_alive(self, connection: AsyncConnection) -> int:
        return int((await self._run(connection, "relays_alive", ttl=self._ttl)).rows[0].alive)

    async def _take(self, connection: AsyncConnection, most: int) -> None:
        free = [row.shard for row in (await self._run(connection, "lease_free", most=most)).rows]
        if free:
            await self._run(
                connection, "lease_take", shards=free, token=self.token, owner=self._name, ttl=self._ttl
            )

    async def _run(self, connection: AsyncConnection, statement: str, **values: object):  # type: ignore[no-untyped-def]
        if statement != "worker_beat":
            values["outbox_name"] = self._outbox.name
        return await self._store.execute(connection, statement, **values)
