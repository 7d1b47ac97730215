"""An event loop in a thread of its own: heartbeats and acknowledgements go on while the caller's loop is busy."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from postroad.errors import BrokerUnavailable

T = TypeVar("T")

_CLOSED: Final = "The connection to the broker is closed. Connect again."


class LoopThread:
    def __init__(self, name: str) -> None:
        self._name = name
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def started(self) -> bool:
        return self._loop is not None and not self._closed

    async def run(self, work: Callable[..., Coroutine[Any, Any, T]], *arguments: object) -> T:
        """Runs a coroutine function there. If the caller is cancelled, so is it."""
        loop = self._started()
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(*arguments), loop))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._closed or (task is not None and task.cancelling()):
                raise
            # It was the work that was cancelled, by the closing of the broker, and not the caller.
            raise BrokerUnavailable(_CLOSED) from None

    def spawn(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Runs a coroutine function there that nobody waits for; not at all once it is closed."""
        if not self._closed:
            asyncio.run_coroutine_threadsafe(work(), self._started())

    def post(self, work: Callable[..., object], *arguments: object) -> None:
        """Calls a function there, soon, in the order of the posts; not at all once it is closed."""
        if not self._closed:
            self._started().call_soon_threadsafe(work, *arguments)

    async def aclose(self) -> None:
        self._closed = True
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise BrokerUnavailable(_CLOSED)
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # A daemon, so that a process that forgot to close its broker can still end.
                self._thread = threading.Thread(target=self._serve, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left))
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()
