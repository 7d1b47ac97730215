"""The faults, each in a loop of its own, all at once, until the time is over."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from sqlalchemy import text

from postroad import Postroad
from proof.chaos.bank import LEASE
from proof.chaos.disk import Disk
from proof.chaos.fleet import RELAYS, WORKERS, WRITERS, Fleet
from proof.chaos.plan import Plan, Tally
from proof.chaos.proxy import COMMIT, MARK, CutAfter, CutAt, Proxy, Side, Trap
from proof.chaos.servers import Server

_PAST_LEASE: Final = 1.3 * LEASE
_QUIET_PART: Final = 0.3
"""Of the time, at first, there are kills only, of relays one by one: then a takeover can be timed."""
_TRAP_PATIENCE: Final = 1.0
_WRITER_KILL: Final = 0.1
_FULL_SECONDS: Final = 1.5
_MORE_LOOKS: Final = 15
_HELD: Final = text("SELECT COUNT(*) FROM postroad_shard WHERE owner LIKE :owner")


class Storm:
    """`road` reaches the database directly; `doors` are the proxies by which the processes reach it."""

    def __init__(
        self,
        plan: Plan,
        road: Postroad,
        fleet: Fleet,
        doors: Mapping[str, Proxy],
        server: Server | None,
        disk: Disk,
        dice: random.Random,
    ) -> None:
        self._plan, self._road, self._fleet, self._doors = plan, road, fleet, doors
        self._server, self._disk, self._dice = server, disk, dice
        self._frozen: set[str] = set()
        self._disturbances = 0
        self._restarting: asyncio.Task[None] | None = None
        self._until = 0.0
        self.tally = Tally()

    @property
    def _raging(self) -> bool:
        return time.monotonic() < self._until

    async def rage(self) -> None:
        """When it ends, everything that was stopped goes on."""
        self._until = time.monotonic() + self._plan.seconds
        later = self._plan.seconds * _QUIET_PART
        loops = [self._kill(), self._supervise(), self._after(later, self._freeze)]
        loops.append(self._times(self._plan.disk_full, self._fill_disk))
        if self._doors:
            loops += [self._after(later, self._cut), self._after(later, self._silence)]
        if self._server:
            loops.append(self._times(self._plan.restarts, self._restart))
        try:
            async with asyncio.timeout(self._plan.seconds), asyncio.TaskGroup() as group:
                for loop in loops:
                    group.create_task(loop)
        except TimeoutError:
            pass
        if self._restarting is not None:
            await self._restarting

    async def _supervise(self) -> None:
        while self._raging:
            await asyncio.sleep(0.2)
            self._fleet.revive()

    # -- processes ---------------------------------------------------------------------------------------------

    async def _kill(self) -> None:
        while self._raging:
            await self._pause(self._plan.kill_every)
            if self._dice.random() < _WRITER_KILL:
                self._fleet.kill(self._dice.choice(WRITERS))
                self.tally.writer_kills += 1
                continue
            name = self._dice.choice([name for name in RELAYS + WORKERS if name not in self._frozen])
            pid = self._fleet.pid(name)
            self._fleet.kill(name)
            self.tally.kills += 1
            if name in RELAYS and not self._disturbances:
                await self._time_takeover(pid)

    async def _time_takeover(self, pid: int) -> None:
        killed_at = time.monotonic()
        held_at_first = held = await self._shards_of(pid)
        while held and not self._disturbances:
            await asyncio.sleep(0.02)
            held = await self._shards_of(pid)
        if held_at_first and not self._disturbances:
            self.tally.takeovers.append(time.monotonic() - killed_at)

    async def _shards_of(self, pid: int) -> int:
        async with self._road.store.reading() as connection:
            return int((await connection.execute(_HELD, {"owner": f"%:{pid}:%"})).scalar_one())

    async def _freeze(self) -> None:
        while self._raging:
            await self._pause(self._plan.stall_every)
            name = self._dice.choice(RELAYS + WORKERS + WRITERS)
            self._frozen.add(name)
            self._disturbances += 1
            self._fleet.freeze(name)
            try:
                await asyncio.sleep(_PAST_LEASE)
                self.tally.freezes += 1
            finally:
                self._fleet.thaw(name)
                self._frozen.discard(name)

    # -- connections -------------------------------------------------------------------------------------------

    async def _cut(self) -> None:
        self._disturbances += 1
        async with asyncio.TaskGroup() as group:
            for name in self._doors:
                group.create_task(self._cut_at(name, self._doors[name]))

    async def _cut_at(self, name: str, door: Proxy) -> None:
        every = self._plan.cut_every * len(self._doors)
        while self._raging:
            await self._pause(every)
            trap, count = self._trap(name)
            if await door.spring(trap, _TRAP_PATIENCE):
                self.tally.cuts += 1
                count()

    def _trap(self, name: str) -> tuple[Trap, Callable[[], None]]:
        answered = self._dice.random() < 0.5
        when = "after" if answered else "before"
        kind = self._dice.random()
        if kind < 0.3 and name in RELAYS:
            return CutAt(MARK, answered), lambda: self._count(f"mark_{when}")
        if kind < 0.6:
            return CutAt(COMMIT, answered), lambda: self._count(f"commit_{when}")
        sender = self._dice.choice((Side.CLIENT, Side.SERVER))
        return CutAfter(int(2 ** self._dice.uniform(0, 14)), sender), lambda: None

    def _count(self, name: str) -> None:
        setattr(self.tally, name, getattr(self.tally, name) + 1)

    async def _silence(self) -> None:
        while self._raging:
            await self._pause(self._plan.stall_every)
            door = self._dice.choice(list(self._doors.values()))
            self._disturbances += 1
            door.stall()
            try:
                await asyncio.sleep(_PAST_LEASE)
                self.tally.silences += 1
            finally:
                door.resume()

    # -- the ground under their feet ---------------------------------------------------------------------------

    async def _restart(self) -> None:
        assert self._server is not None
        self._disturbances += 1
        # To its end, even if the time is over: a server that stays away is not the fault that was meant.
        self._restarting = asyncio.create_task(self._server.restart())
        await asyncio.shield(self._restarting)
        self.tally.restarts += 1

    async def _fill_disk(self) -> None:
        self._disturbances += 1
        before = self._fleet.disk_complaints()
        self._disk.fill(self._fleet.pids())
        try:
            await asyncio.sleep(_FULL_SECONDS)
            # SQLite may for a while find room inside its files: then nobody has noticed anything yet.
            for _ in range(_MORE_LOOKS):
                if self._disk.surely_felt or self._fleet.disk_complaints() > before:
                    self.tally.disk_full += 1
                    break
                await asyncio.sleep(0.2)
        finally:
            self._disk.make_room(self._fleet.pids())

    # -- time --------------------------------------------------------------------------------------------------

    async def _pause(self, mean: float) -> None:
        await asyncio.sleep(mean * self._dice.uniform(0.2, 1.8))

    async def _after(self, seconds: float, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await asyncio.sleep(seconds)
        await loop()

    async def _times(self, times: int, fault: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Spread over the time after the quiet part."""
        quiet = self._plan.seconds * _QUIET_PART
        gap = (self._plan.seconds - quiet) / (times + 1)
        await asyncio.sleep(quiet)
        for _ in range(times):
            await asyncio.sleep(gap * self._dice.uniform(0.5, 1.0))
            await fault()
