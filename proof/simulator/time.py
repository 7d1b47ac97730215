"""Time that passes only when nobody has anything to do: waiting costs nothing, and a run can be repeated."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Generator
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from itertools import count
from types import coroutine
from typing import Any, ClassVar, Final, TypeVar

T = TypeVar("T")

_NAME: Final = "simulated"
BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Stuck(Exception):
    """Everybody waits for something that nobody will do."""


class _Call(list[Any]):
    """Callback, arguments and context; empty once cancelled. A list, because thousands are made for every seed."""

    def cancel(self) -> None:
        self.clear()

    def cancelled(self) -> bool:
        return not self


class VirtualLoop(asyncio.BaseEventLoop):
    """Where a loop would wait for sockets, time jumps to the next alarm. There are no sockets."""

    _ready: Any
    _scheduled: Any
    _stopping: bool

    running: ClassVar["VirtualLoop"]
    """The latest: there is one at a time, and asyncio asks the operating system who we are before it tells."""

    def __init__(self, adopt: Callable[["asyncio.Task[Any]", Context | None], None]) -> None:
        """`adopt`: who is told of each new task and its context."""
        VirtualLoop.running = self
        self.adopt = adopt
        self._elapsed = 0.0
        self._numbers = count()
        super().__init__()

    get_debug = staticmethod(bool)
    """No. Every future asks."""

    def time(self) -> float:
        return self._elapsed

    def create_task(self, work: Any, *, name: object = None, context: Context | None = None) -> Any:
        # With a name, because asyncio would make one up.
        task: asyncio.Task[Any] = asyncio.Task(work, loop=self, name=_NAME, context=context)
        self.adopt(task, context)
        return task

    def others_wait(self) -> bool:
        return bool(self._ready) or bool(self._scheduled and self._scheduled[0][0] <= self._elapsed)

    def _run_once(self) -> None:
        """Until somebody says stop: thousands of turns, and to be called for each of them costs as much as some do."""
        ready, scheduled = self._ready, self._scheduled
        while True:
            while scheduled and not scheduled[0][2]:
                heapq.heappop(scheduled)
            if not ready and not self._stopping:
                if not scheduled:
                    raise Stuck("no alarm is set, and nothing is left to do")
                self._elapsed = max(self._elapsed, scheduled[0][0])
            while scheduled and scheduled[0][0] <= self._elapsed:
                ready.append(heapq.heappop(scheduled)[2])
            for _ in range(len(ready)):
                if call := ready.popleft():
                    callback, args, context = call
                    try:
                        context.run(callback, *args)
                    except Exception as error:
                        self.call_exception_handler({"message": f"{callback!r} failed", "exception": error})
            if self._stopping:
                return

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        if context is not None:
            # Steps of tasks and answers to futures, which are never called off.
            self._ready.append((callback, args, context))
            return None
        call = _Call((callback, args, copy_context()))
        self._ready.append(call)
        return call

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        call = _Call((callback, args, copy_context() if context is None else context))
        # The number decides between alarms of the same moment.
        heapq.heappush(self._scheduled, (when, next(self._numbers), call))
        return call

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        return self.call_at(self._elapsed + delay, callback, *args, context=context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        """There are no other threads."""
        return self.call_soon(callback, *args, context=context)


def others_wait() -> bool:
    """Whether anybody but the task at work could do something in this moment."""
    return VirtualLoop.running.others_wait()


@coroutine
def make_way() -> Generator[None, None, None]:
    """As `asyncio.sleep(0)`, at less expense: it happens hundreds of times in every seed."""
    yield


def _ring(alarm: "asyncio.Future[None]") -> None:
    if not alarm.done():
        alarm.set_result(None)


async def pass_time(seconds: float) -> None:
    """As `asyncio.sleep`, in fewer steps."""
    if seconds <= 0:
        return await make_way()
    loop = VirtualLoop.running
    alarm: asyncio.Future[None] = asyncio.Future(loop=loop)
    call = loop.call_at(loop._elapsed + seconds, _ring, alarm)
    try:
        await alarm
    finally:
        call.cancel()


class LoopClock:
    """The clock of one machine, which may be wrong; or, without skew, that of the database and the broker."""

    def __init__(self) -> None:
        self.skew = 0.0

    def now(self) -> datetime:
        return BEGINNING + timedelta(seconds=VirtualLoop.running._elapsed + self.skew)

    def monotonic(self) -> float:
        return VirtualLoop.running._elapsed

    async def sleep(self, seconds: float) -> None:
        await pass_time(seconds)

    async def wait_for(self, awaitable: Awaitable[T], timeout: float) -> T:
        """As `asyncio.timeout` does it, in fewer steps."""
        loop, task = VirtualLoop.running, asyncio.current_task()
        assert task is not None
        cancelled_before, late = task.cancelling(), False

        def expire() -> None:
            nonlocal late
            late = True
            task.cancel()

        alarm = loop.call_at(loop._elapsed + timeout, expire)
        try:
            return await awaitable
        except asyncio.CancelledError:
            if late and task.uncancel() <= cancelled_before:
                raise TimeoutError from None
            raise
        finally:
            alarm.cancel()
