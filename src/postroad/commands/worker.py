"""Carries out commands that were written down, and goes on with those whose holder has died."""

import asyncio
import logging
from typing import Final

from postroad.clock import Clock
from postroad.commands.execution import Executor
from postroad.commands.record import CommandRecord
from postroad.errors import StoreError
from postroad.relay.wakeup import Wakeup
from postroad.retry import COMMAND, Backoff, describe

_AT_ONCE: Final = 10
_LONGEST_PAUSE: Final = 0.5
_log = logging.getLogger("postroad")


class CommandWorker:
    """Several may run at once: taking the command decides which of them carries it out."""

    def __init__(self, executor: Executor, *, clock: Clock, backoff: Backoff = COMMAND) -> None:
        self._executor, self._backoff = executor, backoff
        self._clock = clock
        self.wakeup = Wakeup(clock, _LONGEST_PAUSE)
        # With one writer at a time, more would only wait for its lock.
        self._slots = 1 if executor.box.store.one_writer else _AT_ONCE
        self.completed = self.failed = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; then what runs may finish."""
        stopping = asyncio.create_task(self._wake_on(stop))
        try:
            while not stop.is_set():
                self.wakeup.looking()
                try:
                    found = await self.run_once()
                except StoreError as error:
                    _log.debug("the commands wait for their database: %s", describe(error))
                    found = 0
                await self.wakeup.wait_after(found)
        finally:
            stopping.cancel()

    async def run_once(self) -> int:
        """One look, and the first due command of up to ten aggregates; how many were tried."""
        types = self._executor.commands.handled
        due = await self._executor.box.due(types, self._slots) if types else ()
        return sum(await asyncio.gather(*(self._run(record) for record in due)))

    async def _run(self, record: CommandRecord) -> bool:
        box = self._executor.box
        try:
            async with box.store.transaction() as connection:
                held = await box.take(record, connection)
            if held is None:
                return False  # somebody else has it
            await self._executor.run(held, self._backoff)
        except StoreError as error:
            _log.warning("%s %s waits: %s", record.command_type, record.command_id, error)
            return False
        except Exception:
            self.failed += 1  # and it is told, and recorded with the time of the next try
        else:
            self.completed += 1
        return True

    async def _wake_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.wakeup.set()
