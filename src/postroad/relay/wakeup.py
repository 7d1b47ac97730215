"""When the relay looks again: when told of a commit, else after a pause that grows while nothing comes."""

import asyncio

from postroad.clock import Clock

_SHORTEST_PAUSE = 0.02
_BREATH = 0.006


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

    def looking(self) -> None:
        """Before each look: what is told from now on, it may miss."""
        self._loop = asyncio.get_running_loop()
        self._event.clear()

    async def breath(self) -> None:
        """Between sending a few and marking them: what was sent is handled sooner if we keep still for a moment."""
        if self._loop is not None:  # else nobody goes on looking
            await self._told_within(_BREATH)

    async def wait_after(self, found: int) -> None:
        """Until the next look, after one that found so many."""
        if found or await self._told_within(min(self._pause, self._longest)):
            self._pause = _SHORTEST_PAUSE
        else:
            self._pause *= 2

    async def _told_within(self, seconds: float) -> bool:
        try:
            await self._clock.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            return False
        return True
