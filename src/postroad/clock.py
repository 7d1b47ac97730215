"""Time, handed in from outside so that a test or a simulator can own it."""

import asyncio
import time
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol, TypeVar

T = TypeVar("T")

SKEW: Final = timedelta(seconds=5)
"""By which a broker's stamps may be ahead of our clock: they are its own, or of the host whose relay has published."""


class Clock(Protocol):
    def now(self) -> datetime:
        """The wall clock, always in UTC. For stamps, never for leases: those use the database's clock."""

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    async def wait_for(self, awaitable: Awaitable[T], timeout: float) -> T:
        """The awaitable's result; raises TimeoutError after `timeout` seconds and cancels it."""


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait_for(self, awaitable: Awaitable[T], timeout: float) -> T:
        # Not asyncio.wait_for: in Python 3.11 it forgets a cancellation that comes together with the result.
        async with asyncio.timeout(timeout):
            return await awaitable
