"""The faults, each in a loop of its own, all at once, until the time is over."""

import asyncio
import random
import time
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from itertools import count
from typing import Any, Final

from sqlalchemy import TextClause, text
from sqlalchemy.exc import SQLAlchemyError

from postroad import Postroad
from postroad.errors import StoreBusy, StoreUnavailable
from proof.chaos.access import Access
from proof.chaos.bank import LEASE, LEAST_PUBSUB_DEADLINE, ack_deadline
from proof.chaos.disk import Disk
from proof.chaos.fleet import RELAYS, WORKERS, WRITERS, Fleet
from proof.chaos.ground import Ground
from proof.chaos.plan import Plan, Tally
from proof.chaos.proxy import COMMIT, MARK, CutAfter, CutAt, Proxy, Side, Trap
from proof.chaos.servers import Server

_PAST: Final = 1.3
"""Times the lease."""
_ORDERED_PART: Final = 0.6
"""Of the time, at first, no worker's connection is broken, where that costs the order."""
_TRAP_PATIENCE: Final = 1.0
_A_WRITER: Final = 0.1
"""How often it is not a relay or a worker; they have no lease, and are not counted with them."""
_FULL_SECONDS: Final = 1.5
_MORE_LOOKS: Final = 15
_EVENTS: Final = text("SELECT COUNT(*) FROM payment")
_COMMANDS: Final = text("SELECT COUNT(*) FROM postroad_command_box WHERE status = 'COMPLETED'")
_EFFECTS: Final = text("SELECT COUNT(*) FROM effect")
_LAST_EFFECT: Final = text("SELECT COALESCE(MAX(id), 0) FROM effect")
_HELD: Final = text("SELECT COUNT(*) FROM postroad_shard WHERE owner LIKE :owner")

ChooseTrap = Callable[[str], tuple[Trap, tuple[str, ...]]]
"""For the process of that name; with what it counts as, once somebody has run into it."""


class Storm:
    """`road` reaches database and broker directly, the processes reach them through the doors."""

    def __init__(self, plan: Plan, road: Postroad, fleet: Fleet, ground: Ground, dice: random.Random) -> None:
        self._plan, self._road, self._fleet, self._ground, self._dice = plan, road, fleet, ground, dice
        self._database, self._broker = ground.database, ground.broker
        self._frozen: set[str] = set()
        self._disturbances = 0
        self._restarting: list[asyncio.Task[None]] = []
        self._missed: Collection[str] | None = None
        """What there was too little of when the time was over."""
        self._streams_may_break = asyncio.Event()
        """Those of workers from the broker, by a cut or a kill."""
        self.tally = Tally()
        self.in_order_until: int | None = None
        """The last effect before that, where the broker does not keep the order afterwards."""

    async def rage(self) -> None:
        """When it ends, everything that was stopped goes on."""
        later = self._plan.seconds * self._plan.quiet
        loops = [self._kill(), self._supervise(), self._let_streams_break(), self._after(later, self._freeze)]
        if disk := self._ground.disk:
            loops.append(self._times(self._plan.disk_full, "disk_full", partial(self._fill_disk, disk)))
        if self._database:
            loops += [self._after(later, partial(self._cut, self._database, self._trap))]
            loops += [self._times(self._plan.restarts, "restarts", partial(self._restart, self._database, "restarts"))]
        if self._broker:
            loops += [self._after(later, partial(self._cut, self._broker, self._broker_trap))]
            if self._ground.wire.remembers:
                restart = partial(self._restart, self._broker, "broker_restarts")
                loops += [self._times(self._plan.restarts, "broker_restarts", restart)]
        if self._doors():
            loops.append(self._after(later, self._silence))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop) for loop in loops]
            await self._enough()
            for task in tasks:
                task.cancel()
        await asyncio.gather(*self._restarting)

    async def _enough(self) -> None:
        """How much is done in a time depends on the machine: the time is only the least."""
        over = time.monotonic() + self._plan.limit
        await asyncio.sleep(self._plan.seconds)
        while time.monotonic() < over:
            self._missed = self._plan.minimum.missed(
                self.tally, await self._ask(_EVENTS), await self._ask(_COMMANDS), self._ground
            )
            if not self._missed:
                return
            await asyncio.sleep(0.2)

    def _wanted(self, *counts: str) -> bool:
        """When the time is over, only what is still missing: faults of all kinds at once may leave no room for it."""
        return self._missed is None or any(count in self._missed for count in counts)

    async def _ask(self, question: TextClause) -> int:
        """Of the database, be it that it is away at the moment."""
        while True:
            try:
                async with self._road.store.reading() as connection:
                    return int((await connection.execute(question)).scalar_one())
            except (StoreUnavailable, StoreBusy, SQLAlchemyError):
                await asyncio.sleep(0.1)

    async def _supervise(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            self._fleet.revive()

    # -- processes ---------------------------------------------------------------------------------------------

    async def _kill(self) -> None:
        while True:
            await self._pause(self._plan.kill_every)
            if not self._wanted("kills", "writer_kills"):
                continue
            if self._dice.random() < _A_WRITER:
                self.tally.writer_kills += self._fleet.kill(self._dice.choice(WRITERS))
                continue
            names = RELAYS + WORKERS if self._streams_may_break.is_set() else RELAYS
            name = self._dice.choice([name for name in names if name not in self._frozen])
            pid = self._fleet.pid(name)
            self.tally.kills += self._fleet.kill(name)
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
        while True:
            await self._pause(self._plan.stall_every)
            if not self._wanted("stalls", "freezes"):
                continue
            name = self._dice.choice(WRITERS if self._dice.random() < _A_WRITER else RELAYS + WORKERS)
            self._frozen.add(name)
            self._disturbances += 1
            struck = self._fleet.freeze(name)
            try:
                await asyncio.sleep(self._past_lease(name))
                self.tally.freezes += struck and name not in WRITERS
            finally:
                self._fleet.thaw(name)
                self._frozen.discard(name)

    # -- connections -------------------------------------------------------------------------------------------

    async def _let_streams_break(self) -> None:
        if not self._ground.wire.ordered_for_good:
            await asyncio.sleep(self._plan.seconds * _ORDERED_PART)
            while await self._ask(_EFFECTS) < self._plan.minimum.in_order:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
            self.in_order_until = await self._ask(_LAST_EFFECT)
        self._streams_may_break.set()

    async def _cut(self, access: Access, trap: ChooseTrap) -> None:
        self._disturbances += 1
        async with asyncio.TaskGroup() as group:
            for name, door in access.doors.items():
                group.create_task(self._cut_at(access, name, door, trap))

    async def _cut_at(self, access: Access, name: str, door: Proxy, choose: ChooseTrap) -> None:
        if access is self._broker and name in WORKERS:
            await self._streams_may_break.wait()
        while True:
            await self._pause(self._plan.cut_every * len(access.doors))
            trap, counts = choose(name)
            if self._wanted(*counts) and await door.spring(trap, _TRAP_PATIENCE):
                for count in counts:
                    self._count(count)

    def _trap(self, name: str) -> tuple[Trap, tuple[str, ...]]:
        answered, when = self._dice.choice(((True, "after"), (False, "before")))
        kind = self._dice.random()
        if kind < 0.3 and name in RELAYS:
            return CutAt(MARK, answered), ("cuts", f"mark_{when}")
        if kind < 0.6:
            return CutAt(COMMIT, answered), ("cuts", f"commit_{when}")
        return self._somewhere(), ("cuts",)

    def _broker_trap(self, name: str) -> tuple[Trap, tuple[str, ...]]:
        told, when = self._dice.choice(((True, "after"), (False, "before")))
        aims = self._ground.wire.aims
        if aims is None or self._dice.random() < 0.4:
            return self._somewhere(), ("broker_cuts",)
        if name in RELAYS:
            return aims.confirm(told), ("broker_cuts", f"confirm_{when}")
        return aims.acknowledgement(told), ("broker_cuts", f"ack_{when}")

    def _somewhere(self) -> Trap:
        sender = self._dice.choice((Side.CLIENT, Side.SERVER))
        return CutAfter(int(2 ** self._dice.uniform(0, 13)), sender)

    def _count(self, name: str) -> None:
        setattr(self.tally, name, getattr(self.tally, name) + 1)

    async def _silence(self) -> None:
        while True:
            await self._pause(self._plan.stall_every)
            if not self._wanted("stalls", "silences"):
                continue
            name, door = self._dice.choice(self._doors())
            self._disturbances += 1
            struck = bool(door.links)
            door.stall()
            try:
                await asyncio.sleep(self._past_lease(name))
                self.tally.silences += struck and name not in WRITERS
            finally:
                door.resume()

    def _doors(self) -> list[tuple[str, Proxy]]:
        return [door for access in (self._database, self._broker) if access for door in access.doors.items()]

    def _past_lease(self, name: str) -> float:
        """Seconds after which another has what it held: a relay's shards, a worker's records; and its deliveries, where
        they are given to another soon."""
        deadline = ack_deadline(self._ground.broker_url)
        return _PAST * (deadline if name in WORKERS and deadline < LEAST_PUBSUB_DEADLINE else LEASE)

    # -- the ground under their feet ---------------------------------------------------------------------------

    async def _restart(self, access: Access, counted: str) -> None:
        self._disturbances += 1
        # To its end, even if the time is over: a server that stays away is not the fault that was meant.
        self._restarting.append(restarting := asyncio.create_task(self._restarted(access.server, counted)))
        await asyncio.shield(restarting)

    async def _restarted(self, server: Server, counted: str) -> None:
        await server.restart()
        self._count(counted)

    async def _fill_disk(self, disk: Disk) -> None:
        self._disturbances += 1
        before = self._fleet.disk_complaints()
        disk.fill(self._fleet.pids())
        try:
            await asyncio.sleep(_FULL_SECONDS)
            # SQLite may for a while find room inside its files: then nobody has noticed anything yet.
            for _ in range(_MORE_LOOKS):
                if disk.surely_felt or self._fleet.disk_complaints() > before:
                    self.tally.disk_full += 1
                    break
                await asyncio.sleep(0.2)
        finally:
            disk.make_room(self._fleet.pids())

    # -- time --------------------------------------------------------------------------------------------------

    async def _pause(self, mean: float) -> None:
        await asyncio.sleep(mean * self._dice.uniform(0.2, 1.8))

    async def _after(self, seconds: float, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await asyncio.sleep(seconds)
        await loop()

    async def _times(self, times: int, counted: str, fault: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Spread over the time after the quiet part; again, as long as too few of them have struck."""
        quiet = self._plan.seconds * self._plan.quiet
        gap = (self._plan.seconds - quiet) / (times + 1)
        await asyncio.sleep(quiet)
        for number in count():
            await asyncio.sleep(gap * self._dice.uniform(0.5, 1.0))
            if number < times if self._missed is None else counted in self._missed:
                await fault()
