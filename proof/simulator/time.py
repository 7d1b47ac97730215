"""Time that passes only when nobody has anything to do: waiting costs nothing, and a run can be repeated."""

import asyncio
import heapq
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

T = TypeVar("T")

BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Stuck(Exception):
    """Everybody waits for something that nobody will do."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Where a loop would wait for sockets, time jumps to the next alarm."""

    _ready: Any
    _scheduled: Any
    _timer_cancelled_count: int

    def __init__(self) -> None:
        self._elapsed = 0.0
        super().__init__()

    def time(self) -> float:
        return self._elapsed

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)._scheduled = False
        if not ready and not self._stopping:
            if not scheduled:
                raise Stuck("no alarm is set, and nothing is left to do")
            self._elapsed = max(self._elapsed, scheduled[0]._when)
        while scheduled and scheduled[0]._when <= self._elapsed:
            alarm = heapq.heappop(scheduled)
            alarm._scheduled = False
            if alarm._cancelled:
                self._timer_cancelled_count -= 1
            else:
                ready.append(alarm)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _write_to_self(self) -> None:
        """There are no other threads that would have to wake us."""


class LoopClock:
    """The clock of one machine, which may be wrong; or, without skew, that of the database and the broker."""

    def __init__(self) -> None:
        self.skew = 0.0

    def now(self) -> datetime:
        return BEGINNING + timedelta(seconds=asyncio.get_running_loop().time() + self.skew)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait_for(self, awaitable: Awaitable[T], timeout: float) -> T:
        async with asyncio.timeout(timeout):
            return await awaitable
