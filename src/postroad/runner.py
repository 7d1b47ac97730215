"""What one process runs, started together and stopped together."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from postroad.errors import StoreError
from postroad.presence import Presence
from postroad.retry import describe
from postroad.stores import migrations

if TYPE_CHECKING:
    from postroad.app import Postroad
    from postroad.commands import CommandWorker
    from postroad.inbox import RetryScheduler
    from postroad.projections import Caretaker
    from postroad.relay import Pruner, Relay
    from postroad.subscriber import Subscriber
    from postroad.telemetry.canary import CanaryWriter

log = logging.getLogger("postroad")

_RETRY_INTERVAL = 1.0
_PRUNE_INTERVAL = 60.0
_PRUNED_AT_ONCE = 1_000


class Runner:
    def __init__(
        self,
        road: "Postroad",
        *,
        relays: Sequence["Relay"],
        subscribers: Sequence["Subscriber"],
        scheduler: "RetryScheduler | None",
        pruners: Sequence["Pruner | Caretaker"],
        commands: "CommandWorker | None" = None,
        canary: "CanaryWriter | None" = None,
    ) -> None:
        self._road, self._canary = road, canary
        self.relays, self.subscribers, self.commands = relays, subscribers, commands
        self._scheduler, self._pruners = scheduler, pruners
        self._stop = asyncio.Event()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    async def prepare(self) -> None:
        """Fails clearly now rather than obscurely later: the tables are there, the broker answers."""
        await migrations.require_current(self._road.store, self._road.outboxes)
        await self._road.broker.apply(self._road.topology)

    @asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        await self.prepare()
        self._road.runners.add(self)
        tasks = [asyncio.create_task(work) for work in self._work()]
        watching = asyncio.create_task(_end_with(tasks, asyncio.current_task()))
        try:
            yield
        except asyncio.CancelledError:
            # Ours, because a part has failed, or somebody else's? Only what the part raised is worth telling.
            if not _failed(tasks):
                raise
            asyncio.current_task().uncancel()  # type: ignore[union-attr]
        finally:
            self._stop.set()
            watching.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            self._road.runners.discard(self)
        for outcome in ended:
            if isinstance(outcome, BaseException):
                raise outcome

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set."""
        async with self.started():
            await stop.wait()

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        work = [relay.run(self._stop) for relay in self.relays]
        work += [subscriber.run(self._stop) for subscriber in self.subscribers]
        work += [self._presence(subscriber.group).run(self._stop) for subscriber in self.subscribers]
        if self.commands is not None:
            work += [self.commands.run(self._stop), self._presence("commands").run(self._stop)]
        if self._scheduler is not None:
            work.append(self._every(_RETRY_INTERVAL, self._retry))
        work.append(self._every(_PRUNE_INTERVAL, self._prune))
        if self._canary is not None and self._road.canary is not None:
            work.append(self._every(self._road.canary.every, self._canary.run_once))
        return work

    def _presence(self, group: str) -> Presence:
        road = self._road
        return Presence(road.store, group, clock=road.clock, randomness=road.randomness)

    async def _every(self, interval: float, act: Any) -> None:
        """`act` now and then; a database in trouble only delays it."""
        while not self._stop.is_set():
            try:
                await act()
            except StoreError as error:
                log.debug("housekeeping waits: %s", describe(error))
            try:
                await self._road.clock.wait_for(self._stop.wait(), interval)
            except TimeoutError:
                pass

    async def _retry(self) -> None:
        assert self._scheduler is not None
        await self._scheduler.run_once()

    async def _prune(self) -> None:
        for pruner in self._pruners:
            await pruner.run_once()
        while await self._road.inbox.prune(self._road.inbox_retention, limit=_PRUNED_AT_ONCE) == _PRUNED_AT_ONCE:
            pass


async def _end_with(tasks: Sequence[asyncio.Task[None]], body: asyncio.Task[Any] | None) -> None:
    """A part that failed ends the whole: a process that only half works is worse than one that was restarted."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    if body is not None and _failed(tasks):
        body.cancel()


def _failed(tasks: Sequence[asyncio.Task[None]]) -> bool:
    return any(task.done() and not task.cancelled() and task.exception() for task in tasks)
