"""Who is at work: a row per worker, kept fresh while it runs."""

import asyncio
import os
import random
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from postroad.clock import Clock
from postroad.errors import StoreError
from postroad.message import new_id
from postroad.stores.base import Store

_BEAT: Final = 5.0


class Presence:
    def __init__(self, store: Store, group: str, *, clock: Clock, randomness: random.Random) -> None:
        self._store, self._group, self._clock = store, group, clock
        self.id = new_id(clock.now(), randomness)
        self._name = f"{socket.gethostname()}:{os.getpid()}"

    async def during(self, work: Callable[[], Awaitable[object]]) -> None:
        """Present for as long as the work lasts. Seen before it begins: on SQLite the very first handler may keep the
        database to itself for long, and it would look as if nobody were at work."""
        await self._beat()
        ended = asyncio.Event()
        beating = asyncio.create_task(self._go_on(ended))
        try:
            await work()
        finally:
            ended.set()
            await beating

    async def _go_on(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self._clock.wait_for(stop.wait(), _BEAT)
            except TimeoutError:
                await self._beat()
        await self._leave()

    async def _beat(self) -> None:
        """A database in trouble only makes the worker look silent."""
        try:
            await self.run_once()
        except StoreError:
            pass

    async def run_once(self) -> None:
        async with self._store.transaction() as connection:
            await self._store.execute(
                connection, "worker_beat", id=self.id, kind="worker", name=self._name, detail=self._group
            )

    async def _leave(self) -> None:
        try:
            async with self._store.transaction() as connection:
                await self._store.execute(connection, "worker_gone", id=self.id)
        except StoreError:
            pass
