"""What one process runs, started together and stopped together."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from postroad.errors import StoreError
from postroad.gates import GROUP, LOOK_EVERY, OUTBOX, WORKER, Gates, while_open
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
        self.scheduler, self._pruners = scheduler, pruners
        self._stop = asyncio.Event()
        self._present = {subscriber: self._presence(subscriber.group) for subscriber in subscribers}
        self._commanding = self._presence("commands")
        workers = [one.id for one in (*self._present.values(), self._commanding)]
        self._gates = Gates(road.store, [*workers, *(relay.leases.token for relay in relays)])

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def drained(self) -> bool:
        """Told by a person to take nothing more until the process is started anew."""
        return self._gates.drained

    async def prepare(self) -> None:
        """Fails clearly now rather than obscurely later: the tables are there, the broker answers."""
        await migrations.require_current(self._road.store, self._road.outboxes)
        await self._gates.look()
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
        work = [self._while_open(OUTBOX, relay.outbox, relay.run) for relay in self.relays]
        for subscriber, presence in self._present.items():
            consume = partial(subscriber.run, hurry=self._stop)
            work.append(presence.during(partial(self._while_open, GROUP, subscriber.group, consume)))
        if self.commands is not None:
            work.append(self._commanding.during(partial(self._while_open, WORKER, "", self.commands.run)))
        if self.scheduler is not None:
            work.append(self._every(_RETRY_INTERVAL, self._retry))
        work += [self._every(LOOK_EVERY, self._gates.look), self._every(_PRUNE_INTERVAL, self._prune)]
        if self._canary is not None and self._road.canary is not None:
            work.append(self._every(self._road.canary.every, self._canary.run_once))
        return work

    def _while_open(
        self, kind: str, name: str, work: Callable[[asyncio.Event], Awaitable[None]]
    ) -> Coroutine[Any, Any, None]:
        return while_open(self._gates.of(kind, name), self._stop, work)

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
        assert self.scheduler is not None
        await self.scheduler.run_once(lambda group: self._goes_on() and self._gates.of(GROUP, group).is_open)

    async def _prune(self) -> None:
        for pruner in self._pruners:
            await pruner.run_once(self._goes_on)
        while self._goes_on():
            if await self._road.inbox.prune(self._road.inbox_retention, limit=_PRUNED_AT_ONCE) < _PRUNED_AT_ONCE:
                break

    def _goes_on(self) -> bool:
        return not self._stop.is_set()


async def _end_with(tasks: Sequence[asyncio.Task[None]], body: asyncio.Task[Any] | None) -> None:
    """A part that failed ends the whole: a process that only half works is worse than one that was restarted."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    if body is not None and _failed(tasks):
        body.cancel()


def _failed(tasks: Sequence[asyncio.Task[None]]) -> bool:
    return any(task.done() and not task.cancelled() and task.exception() for task in tasks)
