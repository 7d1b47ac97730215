"""A clock that stands still until it is told to move."""

import asyncio
import heapq
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Final, TypeVar

T = TypeVar("T")

_SETTLING_TURNS: Final = 50
"""Loop turns granted to whoever was woken before time moves on; a chain of awaits needs one turn per link."""


class VirtualClock:
    """Implements `postroad.clock.Clock`. Time is kept in whole microseconds, so that sums stay exact."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = 0
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()

    def now(self) -> datetime:
        return self._start + timedelta(microseconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed / 1_000_000

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        await self._alarm(seconds)

    async def wait_for(self, awaitable: Awaitable[T], timeout: float) -> T:
        task = asyncio.ensure_future(awaitable)
        alarm = self._alarm(timeout)
        try:
            await asyncio.wait((task, alarm), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise TimeoutError
        finally:
            alarm.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))

    async def advance(self, seconds: float) -> None:
        """Move on, stopping at every alarm on the way so that what it wakes sees the time it asked for."""
        target = self._elapsed + _microseconds(seconds)
        await self._settle()
        while (alarm := self._next()) is not None and alarm <= target:
            self._move_to(alarm)
            await self._settle()
        self._move_to(target)

    def shift(self, seconds: float) -> None:
        """Move on at once. Whoever's alarm has passed wakes in the next turn of the loop."""
        self._move_to(self._elapsed + _microseconds(seconds))

    def next_alarm(self) -> float | None:
        """The `monotonic()` time at which the next sleeper wakes; None when nobody sleeps."""
        alarm = self._next()
        return None if alarm is None else alarm / 1_000_000

    def _next(self) -> int | None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def _move_to(self, elapsed: int) -> None:
        self._elapsed = max(self._elapsed, elapsed)
        while (alarm := self._next()) is not None and alarm <= self._elapsed:
            heapq.heappop(self._sleepers)[2].set_result(None)

    def _alarm(self, seconds: float) -> asyncio.Future[None]:
        alarm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        due = self._elapsed + _microseconds(seconds)
        if due <= self._elapsed:
            alarm.set_result(None)
        else:
            heapq.heappush(self._sleepers, (due, next(self._order), alarm))
        return alarm

    async def _settle(self) -> None:
        for _ in range(_SETTLING_TURNS):
            await asyncio.sleep(0)


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)
