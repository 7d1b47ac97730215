"""How long the user's code may take. It can hang, and then nobody else is left to say so: the runs have a thread of
their own, and whoever asked for them looks at the clock meanwhile."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Any, Final, TypeVar
from weakref import WeakSet

LONGEST: Final = 30.0
"""Seconds: much more than one call takes on a slow machine, and little for a person who waits."""
_LOOK: Final = 0.2
_GRACE: Final = 2.0
"""Seconds in which a loop that is not blocked hears that it is to stop."""
_TIDYING: Final = 10.0
_NOBODY: Final = (
    f"Nothing has moved for {LONGEST:.0f} s, and none of your code is at work. Does a transaction that was left open "
    "hold a lock in the database?"
)
_STAYS: Final = (
    "It runs in a thread, which cannot be ended: it stays there until it returns or the whole process ends. Other "
    "tests may notice."
)

T = TypeVar("T")


class HungError(Exception):
    """Its text says who."""


class Patience:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._at_work: list[str] = []
        """The last one is it that all others wait for."""
        self._moved_at = now()

    def moved(self) -> None:
        self._moved_at = self._now()

    @contextmanager
    def while_works(self, who: str) -> Iterator[None]:
        self._at_work.append(who)
        self.moved()
        try:
            yield
        finally:
            self._at_work.remove(who)
            self.moved()

    @property
    def complaint(self) -> str:
        """Empty while there is patience left. Asked from another thread."""
        if self._now() - self._moved_at <= LONGEST:
            return ""
        return next((f"{who} has not returned for {LONGEST:.0f} s." for who in self._at_work[-1:]), _NOBODY)


class _Daemons(ThreadPoolExecutor):
    """A new thread for each call, which the end of the process does not wait for: a handler may never return."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: WeakSet[threading.Thread] = WeakSet()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        answer: Future[T] = Future()
        thread = threading.Thread(target=_answer, args=(answer, lambda: fn(*args, **kwargs)), daemon=True)
        self.threads.add(thread)
        thread.start()
        return answer


def _answer(answer: "Future[T]", work: Callable[[], T]) -> None:
    answer.set_running_or_notify_cancel()
    try:
        result = work()
    except BaseException as error:
        answer.set_exception(error)
    else:
        answer.set_result(result)


class Beside:
    """A thread with an event loop, for one piece of work."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._work = work
        self._answer: Future[Any] = Future()
        self._daemons = _Daemons()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heard = threading.Event()
        # What the test has set, a locale or a tenant, holds in here too.
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), name="survives", daemon=True)

    def result(self, patience: Patience) -> Any:
        """What the work returns or raises; HungError when there is no patience left."""
        self._thread.start()
        while self._is_running():
            if complaint := patience.complaint:
                self._end()
                stays = any(thread.is_alive() for thread in (self._thread, *self._daemons.threads))
                raise HungError(f"{complaint} {_STAYS}" if stays else complaint)
        return self._answer.result()

    def _is_running(self) -> bool:
        try:
            self._thread.join(_LOOK)
        except BaseException:
            self._stop()  # a person has interrupted
            raise
        return self._thread.is_alive()

    def _end(self) -> None:
        self._stop()
        if self._heard.wait(_GRACE):
            self._thread.join(_TIDYING)

    def _stop(self) -> None:
        with suppress(RuntimeError):  # closed a moment ago: it has ended by itself
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._cancel)

    # -- in the thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        _answer(self._answer, self._run_loop)

    def _run_loop(self) -> Any:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(self._begin())

    async def _begin(self) -> Any:
        self._task, loop = asyncio.current_task(), asyncio.get_running_loop()
        loop.set_default_executor(self._daemons)
        self._loop = loop
        return await self._work()

    def _cancel(self) -> None:
        assert self._task is not None
        self._heard.set()
        self._task.cancel()
