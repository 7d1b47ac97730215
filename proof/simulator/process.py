"""One life of one operating-system process. When it is killed, nothing of it reaches the outside any more."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, NoReturn

from proof.simulator.time import LoopClock, make_way, others_wait, pass_time

_FEW = 32
_LAST_WORDS = 0.01
current: ContextVar["Process | None"] = ContextVar("process", default=None)


class Process:
    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.clock = LoopClock()
        self._tasks: list[asyncio.Task[Any]] = []
        self._most = _FEW
        self.at_death: dict[object, Callable[[], None]] = {}
        """What the operating system does for the dead: sockets are closed."""
        self.at_freezing: dict[object, Callable[[float], None]] = {}
        """What it does not get to meanwhile, although others do it for it here."""
        self.idle: list[Any] = []
        """Its connections that nobody uses at the moment."""
        self.at_murder: Callable[[], None] = lambda: None
        """Somebody may want to see how it stood."""
        self._frozen_until = 0.0

    def context(self) -> Context:
        context = copy_context()
        context.run(current.set, self)
        return context

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(work, context=self.context())

    def freeze(self, seconds: float) -> None:
        """As SIGSTOP does, until SIGCONT."""
        self._frozen_until = max(self._frozen_until, asyncio.get_running_loop().time() + seconds)
        for act in tuple(self.at_freezing.values()):
            act(seconds)

    def frozen_for(self) -> float:
        """Seconds that are left of it."""
        return max(0.0, self._frozen_until - self.clock.monotonic()) if self._frozen_until else 0.0

    def may_go_on(self) -> bool:
        """At once: it is alive and not frozen, and nobody else is waiting."""
        return self.alive and not others_wait() and self._frozen_until <= self.clock.monotonic()

    async def step_outside(self, seconds: float = 0.0) -> None:
        """Before anything that others could see: takes its time, and never happens in a dead process."""
        # Making way where nobody waits would only cost time.
        if seconds:
            await pass_time(seconds)
        elif others_wait():
            await make_way()
        while self._frozen_until and self.alive and (frozen := self.frozen_for()):
            await pass_time(frozen)
        if not self.alive:
            raise asyncio.CancelledError

    def require_life(self) -> None:
        if not self.alive:
            raise asyncio.CancelledError

    def die(self) -> NoReturn:
        """Called from within; whoever else belongs to it gets no further than its next step outside."""
        if self.alive:
            self.at_murder()
        self.kill()
        raise asyncio.CancelledError

    def kill(self) -> None:
        if not self.alive:
            return
        self.alive = False
        for act in tuple(self.at_death.values()):
            act()
        for task in self.under_way():
            task.cancel()

    async def buried(self) -> None:
        while left := self.under_way():
            await asyncio.wait(left, timeout=_LAST_WORDS)
            for task in self.under_way():
                task.cancel()  # again: some would tidy up, and wait for answers that nobody gives them any more

    def adopt(self, task: asyncio.Task[Any]) -> None:
        self._tasks.append(task)
        if len(self._tasks) > self._most:
            # Now and then, and not at the end of each: that would be a callback for every task.
            self._tasks = self.under_way()
            self._most = 2 * len(self._tasks) + _FEW
        if not self.alive:
            task.cancel()

    def under_way(self) -> list[asyncio.Task[Any]]:
        """In the order in which they were started: the same in every run."""
        return [task for task in self._tasks if not task.done()]


def adopt(task: "asyncio.Task[Any]", context: Context | None) -> None:
    """Each task belongs to the process that started it, and ends with it."""
    process = context.get(current) if context is not None else current.get()
    if process is not None:
        process.adopt(task)
