"""One run of the user's service, from the scenario to the last settled event, with at most one fault in it."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID
from weakref import WeakKeyDictionary

from sqlalchemy.ext.asyncio import AsyncSession

from postroad.app import Postroad
from postroad.drain import unsent
from postroad.errors import StoreBusy
from postroad.inbox import Status
from postroad.message import Message
from postroad.outbox.outbox import Added
from postroad.testing.clock import VirtualClock
from postroad.testing.survival import database
from postroad.testing.survival.calls import Call, RepeatableIds, watched
from postroad.testing.survival.commands import COMMANDS, WatchedExecutor, is_finished, one_at_a_time
from postroad.testing.survival.faults import KINDS, Crash, Fault
from postroad.testing.survival.memory import Memory, PutBack
from postroad.testing.survival.patience import Patience
from postroad.testing.survival.plain import PlainCommits
from postroad.testing.survival.process import Process
from postroad.testing.survival.wire import Wire

_SHORT_PAUSE: Final = 60.0
_LONGEST_PAUSE: Final = 1e8
"""Three years: whatever is still not settled by then never will be."""

SCENARIO: Final = "scenario"
OF_SCENARIO: Final = "your scenario"


class Run:
    """Everything happens in one task, in the same order each time; only time is made up.

    The database is the user's own. Its clock cannot be moved, so its leases and pauses are aged instead.
    """

    def __init__(
        self, road: Postroad, fault: Fault | None, began: datetime, patience: Patience, *, workers: int = 1
    ) -> None:
        self.road, self.fault, self.began, self.workers = road, fault, began, workers
        self.patience = patience
        self.flow = road.subscriber_options.flow
        self.points: dict[str, list[str]] = defaultdict(list)
        self.calls: list[Call] = []
        self.log: list[Call | Fault] = []
        """Calls as they began, and the fault between them."""
        self.foreign: dict[UUID, Message] = {}
        """What the scenario sent through the broker itself: events of other services."""
        self.actor = ""
        """Who is at work; empty: nobody of the user's, and nothing is counted or disturbed."""
        self.processes: list[Process] = []
        self.dying = False
        self.retries_due = False
        self.cut = False
        """The scenario's own process died: the rest of the scenario never happened."""
        kind, where = (fault.kind, fault.where) if fault else ("", "")
        self.late_key = where if kind == "late-key" else ""
        self.late_group = where if kind == "late-group" else ""
        self.struck = False
        if workers > 1 and not road.store.one_writer:
            self.points["pair"].append("two workers")
        if fault and kind in ("late-key", "late-group", "two-workers"):
            self._strike(fault)
        self.wire = Wire(self)
        self.plain = PlainCommits(self.before_commit, self.after_commit)
        self._memory = Memory(())
        self._fresh = self._memory.now()
        """Makes the handlers' memory that of a process that has just begun."""
        self._successors: PutBack | None = None
        """The memory of those who have taken over, while one who was taken for dead goes on."""
        self._written_by: WeakKeyDictionary[Any, list[Call]] = WeakKeyDictionary()
        self._fates: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

    # -- the road, made repeatable -------------------------------------------------------------------

    def dress(self) -> None:
        road, values = self.road, self.road.__dict__
        for name in ("broker", "outbox", "inbox", "bus", "events", "executor", "command_worker"):
            values.pop(name, None)
        road.clock = VirtualClock(self.began)
        road.registry = watched(road.registry, self.begun, self.patience)
        if not self._at_once:
            road.subscriber_options = replace(road.subscriber_options, concurrency=1)
            road.group_options = {name: replace(one, concurrency=1) for name, one in road.group_options.items()}
        values["broker"] = self.wire
        road.outbox.randomness = RepeatableIds(0)
        self._outbox_add: Callable[..., Added] = road.outbox.add
        road.outbox.__dict__["add"] = self._add
        values["executor"] = WatchedExecutor(road, self.begun, lambda: self.actor == COMMANDS, self.patience)
        one_at_a_time(road.command_worker)
        # What a scenario taken from an ordinary test may call: here it is the run that carries and consumes.
        values["drain"] = self._drain
        values["running"] = self._running
        values["aclose"] = self._stay_open

    def _add(self, target: Any, event: object, **options: Any) -> Added:
        added = self._outbox_add(target, event, **options)
        if self.actor:
            self.plain.add(target, added.id, self.actor)
        return added

    def remember(self, world: Iterable[object]) -> None:
        """What the handlers keep in memory dies with their process; the world outside does not."""
        commands = [self.road.commands.handler_of(name).handler for name in self.road.commands.handled]
        handlers = [one for group in self.road.registry.groups for one in self.road.registry.handlers(group)]
        given = list(vars(self.road).values())  # whoever is given the road can reach what hangs on it
        self._memory = Memory([one.function for one in (*handlers, *commands)], [*world, *given])
        self._fresh = self._memory.now()

    async def start(self) -> None:
        await self.wire.apply(self.road.topology)
        await self._begin_anew()

    async def _drain(self, timeout: float = 0.0) -> None:
        await self.settle()
        self.breathe()

    @asynccontextmanager
    async def _running(self, **_: Any) -> AsyncIterator[Postroad]:
        yield self.road

    async def _stay_open(self) -> None:
        """`async with road:` ends with the scenario; the run does not."""

    # -- what the watchers report ------------------------------------------------------------------------

    def reach(self, point: str, where: str) -> str:
        """A place where a fault can strike; its kind if it does so now."""
        self.patience.moved()
        self.points[point].append(where)
        fault = self.fault
        if fault and KINDS[fault.kind].point == point and fault.number == len(self.points[point]):
            self._strike(fault)
            return fault.kind
        return ""

    def breathe(self) -> None:
        """The dead do nothing."""
        if self.cut if self.actor == SCENARIO else self.dying:
            raise Crash

    def die(self) -> None:
        if self.actor == SCENARIO:
            self.cut = True
        else:
            self.dying = True
        raise Crash

    def met_key(self, key: str) -> None:
        if key not in self.points["key"]:
            self.points["key"].append(key)

    def met_group(self, group: str) -> None:
        if group not in self.points["group"]:
            self.points["group"].append(group)

    async def begun(self, call: Call, session: AsyncSession) -> None:
        self.breathe()
        connection = await session.connection()
        self.calls.append(call)
        self.log.append(call)
        assert connection.sync_connection is not None
        self._written_by.setdefault(connection.sync_connection, []).append(call)
        if self.reach("call", str(call)):
            # So long that the database has given up on us: without that, its locks would keep everybody else out.
            await connection.invalidate()
            await self.take_over()

    def before_commit(self, connection: Any) -> None:
        if not self.actor:
            return
        self.breathe()
        whose = self._whose(connection)
        fate = self.reach("commit", whose)
        if fate == "commit-before":
            self.die()
        if connection in self._written_by and self.reach("work", whose):
            connection.connection.rollback()  # as the server would: SQLAlchemy takes the transaction for ended now
            raise StoreBusy("The commit failed.")
        self._fates[connection] = fate

    def after_commit(self, connection: Any) -> None:
        for call in self._written_by.pop(connection, ()):
            call.committed = True
        if self._fates.pop(connection, ""):
            self.die()

    def _whose(self, connection: Any) -> str:
        if calls := self._written_by.get(connection):
            return " and ".join(map(str, calls))
        if running := [call for call in self.calls if not call.ended]:
            return f"a transaction of its own inside {running[-1]}"
        match self.actor:
            case "scenario":
                return OF_SCENARIO
            case "relay":
                return "the relay's own notes"
            case "command worker":
                return "the command worker's own notes"
            case group:
                return f"the notes of the worker of group {group}"

    def _strike(self, fault: Fault) -> None:
        self.struck = True
        self.log.append(fault)

    # -- from step to step -------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Until nothing moves any more, however long that would take by the clock."""
        pause = _SHORT_PAUSE
        while True:
            if await self._step():
                pause = _SHORT_PAUSE
            elif self.late_key or self.late_group:
                self.late_key = self.late_group = ""
            elif pause > _LONGEST_PAUSE or await self._is_settled():
                return
            else:
                await self._let_time_pass(pause)
                pause *= 10

    async def take_over(self) -> None:
        """Those at work are taken for dead, and others do all there is to do. Then this returns to the living dead."""
        own = self._memory.now()
        with self.acting(""):
            for process in self.processes:
                process.abandon()
            self._fresh()
            await self._begin_anew()
            await self.settle()
        self._successors = self._memory.now()
        own()

    @contextmanager
    def acting(self, actor: str) -> Iterator[None]:
        before, self.actor = self.actor, actor
        try:
            yield
        finally:
            self.actor = before

    async def _step(self) -> bool:
        with self.acting(self.actor):
            try:
                steps = [process.step() for process in self.processes]
                # One after the other unless they are to meet: then, and only then, chance has a say.
                moved = any(await asyncio.gather(*steps) if self._at_once else [await step for step in steps])
            except Crash:
                moved = True
        if self.dying:
            for process in self.processes:
                process.abandon()
            self.plain.abandon(lambda actor: actor != SCENARIO)
            self.dying = False
            self._fresh()
            with self.acting(""):
                await self._begin_anew()
        elif self._successors is not None:
            self._successors()
            self._successors = None
        return moved

    async def _begin_anew(self) -> None:
        """When the leases of all who were there before have run out."""
        with self.acting(""):
            if self.processes:
                await database.end_leases(self.road.store)
                longest = max((one.ack_deadline for one in self.road.topology.subscriptions), default=0.0)
                self.wire.time.shift(longest + 1)
            self.processes = [Process(self) for _ in range(2 if self._at_once else 1)]
            for process in self.processes:
                await process.start()

    @property
    def _at_once(self) -> bool:
        return self.fault is not None and self.fault.kind == "two-workers"

    async def _let_time_pass(self, seconds: float) -> None:
        with self.acting(""):
            await database.end_pauses(self.road.store, self.road.outboxes)
            self.wire.time.shift(seconds)
            self.retries_due = True

    async def _is_settled(self) -> bool:
        with self.acting(""):
            if await unsent(self.road, self.began + timedelta(days=36_500)):
                return False
            waiting = [
                record
                for record in (await database.records(self.road.store)).values()
                if record.status is not Status.SUCCEEDED and not record.stopped
            ]
            if not all(map(is_finished, (await database.commands(self.road)).values())):
                return False
            depths = [await self.wire.depth(one.name) for one in self.road.topology.subscriptions]
            return not waiting and not any(depth.messages for depth in depths)
