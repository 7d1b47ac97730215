"""When the relay looks again: when told of a commit, else after a pause that grows while nothing comes."""

import asyncio

from postroad.clock import Clock

_SHORTEST_PAUSE = 0.02
_BREATH = 0.003


class Wakeup:
    def __init__(self, clock: Clock, longest_pause: float) -> None:
        self._clock, self._longest = clock, longest_pause
        self._pause = _SHORTEST_PAUSE
        self._event = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def set(self) -> None:
        """From any thread."""
        loop = self._loop
        if loop is None:
            self._event.set()
            return
        try:
            loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            # The loop is closed: nobody waits any more, and the writer who called must not suffer for it.
            pass

    async def wait_after(self, found: int, full: int) -> None:
        """After a look that found so many; `full` of them, and there is more."""
        # After a few there is hardly more: what was just sent is handled sooner if we do not look again right now.
        pause = _BREATH if found else min(self._pause, self._longest)
        self._pause = _SHORTEST_PAUSE if found else self._pause * 2
        if found >= full:
            return
        self._loop = asyncio.get_running_loop()
        try:
            await self._clock.wait_for(self._event.wait(), pause)
            self._pause = _SHORTEST_PAUSE
        except TimeoutError:
            pass
        self._event.clear()
