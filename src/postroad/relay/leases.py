"""Which shards are ours. Leases are rows in the database, timed by its clock alone."""

import asyncio
import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.clock import Clock
from postroad.errors import StoreError
from postroad.message import SHARDS, new_id
from postroad.stores.base import Result, Store
from postroad.stores.tables import OutboxTable

_BEAT: Final = 5.0
"""Seconds; who is not heard of for 15 counts as gone."""


class ShardLeases:
    """A fair share of the shards, renewed; each take raises the shard's epoch and fences earlier holders."""

    def __init__(
        self,
        store: Store,
        outbox: OutboxTable,
        *,
        name: str,
        ttl: float,
        clock: Clock,
        randomness: random.Random,
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

    def doubt(self) -> None:
        """Somebody else seems to hold what we took for ours: ask before doing anything more."""
        self._safe_until = self._renew_at = -math.inf

    async def keep(self) -> None:
        """Renew, give back what is more than our share, take what is free: one short transaction."""
        asked_at = self._clock.monotonic()
        async with self._store.transaction() as connection:
            await self._renew(connection)
            held = await self._held(connection)
            share = math.ceil(SHARDS / max(1, await self._relays_alive(connection)))
            if len(held) > share:
                given_back = sorted(held)[share:]
                await self._run(connection, "lease_release", token=self.token, shards=given_back)
                held = {shard: epoch for shard, epoch in held.items() if shard not in given_back}
            elif len(held) < share and await self._take(connection, share - len(held)):
                held = await self._held(connection)
        # Only now: what a failed commit would have given us is not ours.
        self._epochs = held
        self._renewed(asked_at)

    @asynccontextmanager
    async def kept_alive(self) -> AsyncIterator[None]:
        """While a slow broker makes us wait: else another relay would take over, and be as slow."""
        done = asyncio.Event()
        beating = asyncio.create_task(self._beat(done))
        try:
            yield
        finally:
            done.set()
            await beating

    async def release(self) -> None:
        """Hand everything back, so that others need not wait for the lease to run out."""
        self._epochs = {}
        self.doubt()  # or one who runs again would wait for the next renewal of what is no longer held
        async with self._store.transaction() as connection:
            await self._run(connection, "lease_release", token=self.token, shards=list(range(SHARDS)))
            await self._store.execute(connection, "worker_gone", id=self.token)

    async def _beat(self, done: asyncio.Event) -> None:
        while not done.is_set():
            try:
                # Often enough to be seen alive, however long the lease.
                await self._clock.wait_for(done.wait(), min(self._ttl / 3, _BEAT))
            except TimeoutError:
                await self._renew_all()

    async def _renew_all(self) -> None:
        asked_at = self._clock.monotonic()
        try:
            async with self._store.transaction() as connection:
                renewed = await self._renew(connection)
        except StoreError:
            return  # tried again at the next beat; without success `epochs` runs dry by itself
        if renewed == len(self._epochs):
            self._renewed(asked_at)
        else:
            self.doubt()

    async def _renew(self, connection: AsyncConnection) -> int:
        await self._store.execute(
            connection, "worker_beat", id=self.token, kind="relay", name=self._name, detail=self._outbox.name
        )
        return (await self._run(connection, "lease_renew", ttl=self._ttl, token=self.token)).rowcount

    def _renewed(self, asked_at: float) -> None:
        # Counted from before the question, so that our idea of the lease ends before the database's.
        self._safe_until = asked_at + self._ttl * 0.9
        self._renew_at = asked_at + min(self._ttl / 3, 1.0)

    async def _held(self, connection: AsyncConnection) -> dict[int, int]:
        return {row.shard: row.epoch for row in (await self._run(connection, "lease_held", token=self.token)).rows}

    async def _relays_alive(self, connection: AsyncConnection) -> int:
        return int((await self._run(connection, "relays_alive", ttl=self._ttl)).rows[0].alive)

    async def _take(self, connection: AsyncConnection, most: int) -> bool:
        """Whether anything was free."""
        free = [row.shard for row in (await self._run(connection, "lease_free", most=most)).rows]
        if free:
            await self._run(connection, "lease_take", shards=free, token=self.token, owner=self._name, ttl=self._ttl)
        return bool(free)

    async def _run(self, connection: AsyncConnection, statement: str, **values: Any) -> Result:
        return await self._store.execute(connection, statement, outbox_name=self._outbox.name, **values)
