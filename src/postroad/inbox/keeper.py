"""Keeps leases alive from a thread of its own, because a handler that computes starves the event loop."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, Final

from postroad.errors import StoreError
from postroad.inbox.record import Lease
from postroad.stores import open_store
from postroad.stores.base import Store

_RENEWALS_PER_TTL: Final = 3


async def renew(store: Store, lease: Lease, ttl: float) -> bool:
    """False when the lease is somebody else's by now."""
    async with store.transaction() as connection:
        result = await store.execute(
            connection,
            "inbox_renew",
            group=lease.group,
            event_id=lease.event_id,
            epoch=lease.epoch,
            seconds=ttl,
        )
    return result.rowcount == 1


Renew = Callable[[Store, Any, float], Awaitable[bool]]


class LeaseKeeper:
    """Of inbox records, unless `renew` says how others are kept.

    Has its own connections too, because those of the application belong to its event loop.
    """

    def __init__(self, store: Store, renew: Renew | None = None) -> None:
        self._url, self._clock, self._renew = store.url, store.clock, renew
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._store: Store | None = None
        self._held: dict[float, dict[int, Any]] = {}
        """By their time to live, and then by a number of their own. Each thread changes it without asking the other."""
        self._renewing: dict[int, asyncio.Task[None]] = {}
        self._numbers = count()
        # Where the handler's transaction is the only writer, nobody can take its lease, nor renew it.
        self._needed = not store.one_writer

    @contextmanager
    def hold(self, lease: Any, ttl: float) -> Iterator[None]:
        if not self._needed:
            yield
            return
        held, number = self._watched(ttl), next(self._numbers)
        held[number] = lease
        try:
            yield
        finally:
            held.pop(number, None)
            if (renewal := self._renewing.get(number)) and self._loop is not None:
                # It may still wait for a connection, and would lock again what is about to be released.
                self._loop.call_soon_threadsafe(renewal.cancel)

    async def aclose(self) -> None:
        if self._loop is None or self._thread is None:
            return
        loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._stop(), loop))
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)

    def _watched(self, ttl: float) -> dict[int, Any]:
        """The thread looks for itself: to wake it for every lease would cost more than most handlers."""
        loop = self._started()
        if ttl not in self._held:
            self._held[ttl] = {}
            asyncio.run_coroutine_threadsafe(self._keep(ttl, self._held[ttl]), loop)
        return self._held[ttl]

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._held = {}
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_run, args=(self._loop,), name="postroad-lease-keeper", daemon=True)
            self._thread.start()
        return self._loop

    async def _keep(self, ttl: float, held: dict[int, Any]) -> None:
        while True:
            await asyncio.sleep(ttl / _RENEWALS_PER_TTL)
            for number in held.copy():  # at once: the other thread goes on
                # One that waits, perhaps for the transaction that settles it, holds up no other.
                if number not in self._renewing:
                    self._renewing[number] = asyncio.create_task(self._renew_once(held, number, ttl))
                    self._renewing[number].add_done_callback(partial(_forget, self._renewing, number))

    async def _renew_once(self, held: dict[int, Any], number: int, ttl: float) -> None:
        if self._store is None:
            self._store = open_store(self._url, clock=self._clock)
        if (lease := held.get(number)) is None:
            return
        try:
            if not await (self._renew or renew)(self._store, lease, ttl):
                held.pop(number, None)  # settled, or lost: then the fence stops the holder's commit
        except StoreError:
            pass  # there is time for another try before the lease ends

    async def _stop(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._store is not None:
            await self._store.aclose()
            self._store = None


def _forget(renewing: dict[int, asyncio.Task[None]], number: int, _: asyncio.Task[None]) -> None:
    del renewing[number]


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
