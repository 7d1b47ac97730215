"""Time that passes only when nobody has anything to do: waiting costs nothing, and a run can be repeated."""

import asyncio
import selectors
from collections.abc import Awaitable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

T = TypeVar("T")

BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Stuck(Exception):
    """Everybody waits for something that nobody will do."""


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._elapsed = 0.0
        super().__init__(_NoNetwork(self))

    def time(self) -> float:
        return self._elapsed

    def pass_time(self, seconds: float) -> None:
        self._elapsed += seconds


class _NoNetwork(selectors.BaseSelector):
    """Where a loop would wait for sockets, time jumps to the next alarm."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._map: dict[Any, selectors.SelectorKey] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck("no alarm is set, and nothing is left to do")
        if timeout > 0:
            self._loop.pass_time(timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._map[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._map.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._map


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
