"""SIGINT and SIGTERM: the first asks to finish what is in hand, the second insists."""

import asyncio
import logging
import os
import signal
from types import TracebackType

log = logging.getLogger("postroad")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """`async with Stop() as stop:` in the task that runs everything.

    Before `ready` is called there is nothing in hand: then the first signal ends the task at once.
    """

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.exit_code: int | None = None
        self._ready = False
        self._task: asyncio.Task[object] | None = None

    def ready(self) -> None:
        self._ready = True

    async def __aenter__(self) -> "Stop":
        self._task = asyncio.current_task()
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, number)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in _SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _signalled(self, number: signal.Signals) -> None:
        if self.event.is_set():
            # Whatever hangs, hangs in the event loop or below it: nothing gentler is sure to work.
            os._exit(128 + number)
        self.event.set()
        if self._ready:
            log.info("%s: finishing what is in hand. A second one stops at once.", number.name)
        elif self._task is not None:
            self.exit_code = 128 + number
            self._task.cancel()
