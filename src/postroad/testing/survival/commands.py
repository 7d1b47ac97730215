"""The worker that carries out what was written down with `road.submit`, watched."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from postroad.app import Postroad
from postroad.commands import CommandBox, CommandRecord, CommandStatus, CommandWorker, Executor
from postroad.commands.box import Held
from postroad.eventstore import DomainEvent
from postroad.stores.base import Result, Store
from postroad.testing.survival.calls import Call, RepeatableIds, Watch, watching
from postroad.testing.survival.patience import Patience

COMMANDS: Final = "command worker"
"""Who is at work then, and stands for the group of its calls: no group can have this name."""


class _SeenBox(CommandBox):
    """What is begun is committed by way of SQLAlchemy, whose commits are seen."""

    async def _insert(self, values: Mapping[str, Any]) -> Result:
        return await Store.change(self.store, "command_begin", **values)


class WatchedExecutor(Executor):
    """What is executed elsewhere belongs to whoever asked for it: the scenario, or a handler."""

    def __init__(self, road: Postroad, begun: Watch, by_worker: Callable[[], bool], patience: Patience) -> None:
        box = _SeenBox(road.store, randomness=road.randomness)
        super().__init__(box, road.events, road.commands, clock=road.clock, randomness=RepeatableIds(0), road=road)
        self._begun, self._by_worker, self._patience = begun, by_worker, patience

    async def _work(self, session: AsyncSession, held: Held) -> Sequence[DomainEvent]:
        if not self._by_worker():
            return await super()._work(session, held)
        name = self.commands.handler_of(held.message.type).handler.name
        call = Call(name.rpartition(".")[2], COMMANDS, (held.message,))
        with watching(call, self._road):
            await self._begun(call, session)
            with self._patience.while_works(str(call)):
                return await super()._work(session, held)

    async def _breathe(self, failed: int) -> None:
        await asyncio.sleep(0)  # the clock stands still here


def one_at_a_time(worker: CommandWorker) -> CommandWorker:
    worker._slots = 1
    return worker


def is_finished(record: CommandRecord) -> bool:
    return record.status is CommandStatus.COMPLETED or has_failed(record)


def has_failed(record: CommandRecord) -> bool:
    """For good: it waits for a person."""
    return record.status is CommandStatus.FAILED and record.next_retry_at is None
