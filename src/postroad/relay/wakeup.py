"""When the relay looks again: when told of a commit, else after a pause that grows while nothing comes."""

import asyncio

from postroad.clock import Clock

_SHORTEST_PAUSE = 0.02


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

    def busy(self) -> None:
        """Something was found: the next pause is short again."""
        self._pause = _SHORTEST_PAUSE

    async def wait(self, at_most: float) -> None:
        self._loop = asyncio.get_running_loop()
        pause = min(self._pause, at_most)
        self._pause = min(self._pause * 2, self._longest)
        try:
            await self._clock.wait_for(self._event.wait(), pause)
            self._pause = _SHORTEST_PAUSE
        except TimeoutError:
            pass
        self._event.clear()
