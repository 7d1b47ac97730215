"""Keeping the leases of this process's receivers alive while their messages are being handled."""

import asyncio
import logging
import sqlite3
import threading
from contextlib import ExitStack, closing
from functools import partial
from typing import Final

from postroad.brokers.embedded.database import Connection, Database, connect, micros, nobody, transaction
from postroad.brokers.embedded.handout import extend

_PER_DEADLINE: Final = 3
"""Extensions per ack deadline: two may fail before a lease is lost."""

_log: Final = logging.getLogger(__name__)


class Leases:
    """In a file, a thread with a connection of its own extends them: a handler that blocks the event loop, or
    keeps the processor busy, must not lose its messages to somebody else. In memory, a task for each deadline does.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._deadlines: dict[int, float] = {}
        self._tasks: dict[float, asyncio.Task[None]] = {}
        self._thread: threading.Thread | None = None
        self._changed = threading.Event()
        self._stopped = False

    def keep(self, receiver: int, deadline: float) -> None:
        # A new dict each time: the thread may be going through the old one.
        self._deadlines = {**self._deadlines, receiver: deadline}
        if self._database.path is None:
            if not self._is_kept(deadline):
                self._tasks[deadline] = asyncio.create_task(self._keep_in_memory(deadline))
            return
        self._changed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_in_file, name="postroad-leases", daemon=True)
            self._thread.start()

    def drop(self, receiver: int) -> None:
        if receiver not in self._deadlines:
            return
        deadline = self._deadlines[receiver]
        self._deadlines = {kept: own for kept, own in self._deadlines.items() if kept != receiver}
        if deadline not in self._deadlines.values() and (task := self._tasks.pop(deadline, None)):
            task.cancel()

    def _is_kept(self, deadline: float) -> bool:
        """By a task of this event loop: one of a loop that has ended keeps nothing any more."""
        task = self._tasks.get(deadline)
        return task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()

    async def extend(self) -> int:
        """The number of leases that were still there and now last a full deadline again."""
        return await self._extend(list(self._deadlines))

    async def aclose(self) -> None:
        for receiver in list(self._deadlines):
            self.drop(receiver)
        self._stopped = True
        self._changed.set()
        if self._thread:
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    async def _extend(self, receivers: list[int]) -> int:
        work = partial(extend, receivers=receivers)
        return await self._database.write(work, durable=False, wakes=nobody)

    async def _keep_in_memory(self, deadline: float) -> None:
        while True:
            await self._database.clock.sleep(deadline / _PER_DEADLINE)
            await self._extend([receiver for receiver, own in self._deadlines.items() if own == deadline])

    def _keep_in_file(self) -> None:
        with ExitStack() as stack:
            connection: Connection | None = None
            while not self._stopped:
                try:
                    if connection is None:
                        connection = stack.enter_context(closing(connect(self._database.path)))
                    self._extend_in_file(connection)
                except sqlite3.Error as error:
                    _log.warning("The leases of the embedded broker could not be extended: %s", error)
                self._changed.wait(min(self._deadlines.values(), default=60.0) / _PER_DEADLINE)
                self._changed.clear()

    def _extend_in_file(self, connection: Connection) -> None:
        with transaction(connection, durable=False):
            extend(connection, micros(self._database.clock.now()), receivers=list(self._deadlines))
