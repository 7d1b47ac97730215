"""SQLAlchemy's greenlets, used again: a session needs half a dozen, and the stack of each is a trip to the kernel."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from greenlet import GreenletExit, getcurrent, greenlet  # type: ignore[import-untyped]
from sqlalchemy.ext.asyncio import engine, session


class _Worker(greenlet):  # type: ignore[misc]
    """Runs one function after the other; to its parent it hands what they await, and at last nothing."""

    __sqlalchemy_greenlet_provider__ = True
    """By which SQLAlchemy knows where it may wait."""

    result: Any = None
    error: BaseException | None = None
    busy = False

    def run(self, work: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        while True:
            try:
                self.result = work(*arguments, **options)
            except GreenletExit:
                raise  # nobody will ever come back to it
            except BaseException as error:
                self.error = error
            self.busy = False
            del work, arguments, options  # others may hope for their end
            work, arguments, options = self.parent.switch(None)


class _Idle(threading.local):
    """A greenlet can only be switched to in its own thread."""

    def __init__(self) -> None:
        self.workers: list[_Worker] = []


_idle = _Idle()


async def spawn(work: Callable[..., Any], *arguments: Any, _require_await: bool = False, **options: Any) -> Any:
    """As `greenlet_spawn` does it."""
    idle = _idle.workers
    worker = idle.pop() if idle else _Worker()
    worker.busy = True
    worker.gr_context = getcurrent().gr_context
    awaited = worker.switch(work, arguments, options)
    while worker.busy:
        try:
            value = await awaited
        except BaseException as error:
            awaited = worker.throw(error)
        else:
            awaited = worker.switch(value)
    result, failure = worker.result, worker.error
    worker.result = worker.error = None
    idle.append(worker)
    if failure is not None:
        raise failure
    return result


@contextmanager
def used_again() -> Iterator[None]:
    with ExitStack() as stack:
        for module in (engine, session):
            stack.enter_context(patch.object(module, "greenlet_spawn", spawn))
        yield
