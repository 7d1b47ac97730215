"""Threads that are none: whoever blocks in one lets the others have their turn, and waits on virtual time."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from sqlalchemy.util import await_only

from proof.simulator.greenlets import spawn
from proof.simulator.process import current
from proof.simulator.time import LoopClock, pass_time

wait_here = await_only
"""For what can be awaited, in what looks like a thread."""
in_a_thread = spawn
"""As `asyncio.to_thread`."""


class Thread:
    def __init__(self, *, target: Callable[[], object], name: str, daemon: bool) -> None:
        process = current.get()
        assert process is not None
        self._target, self._process = target, process
        self._task: asyncio.Task[Any] | None = None

    def start(self) -> None:
        self._task = self._process.spawn(spawn(self._target))

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done()

    def join(self, timeout: float) -> None:
        if self._task is not None:
            wait_here(asyncio.wait([self._task], timeout=timeout))


class Event:
    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.set, self.is_set, self.clear = self._event.set, self._event.is_set, self._event.clear

    def wait(self, timeout: float) -> bool:
        try:
            return wait_here(LoopClock().wait_for(self._event.wait(), timeout))
        except TimeoutError:
            return False


class Lock:
    """Nobody has a turn before he who holds it waits, and nobody waits while he holds one."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def _sleep(seconds: float) -> None:
    wait_here(pass_time(seconds))


THREADING = SimpleNamespace(Thread=Thread, Event=Event, Lock=Lock)
TIME = SimpleNamespace(monotonic=LoopClock().monotonic, sleep=_sleep)
"""In place of the modules."""
