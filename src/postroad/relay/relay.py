"""Lease shards → read → send → settle, again and again."""

import asyncio
import logging
import math
import os
import random
import socket
from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from postroad.brokers.base import Broker
from postroad.clock import Clock, SystemClock
from postroad.errors import StoreBusy, StoreError
from postroad.relay.adoption import Adoption
from postroad.relay.breaker import Breaker
from postroad.relay.carrier import Carrier, destination
from postroad.relay.leases import ShardLeases
from postroad.relay.options import RelayOptions
from postroad.relay.reader import DueReader, Run, Unreadable
from postroad.relay.wakeup import Wakeup
from postroad.retry import describe
from postroad.stores.base import Store
from postroad.stores.tables import DEFAULT_OUTBOX, OutboxTable
from postroad.telemetry.meter import Meter

if TYPE_CHECKING:
    from postroad.outbox.wake import Wake

log = logging.getLogger("postroad.relay")

_ROUNDS_AT_ONCE = 3
_WATCH_AGAIN = 1.0
_PAGES_IN_OUTAGE = 8
_PAUSE_IN_OUTAGE = 0.05
_LONGEST_STORE_PAUSE = 5.0

_serial = count(1)


class Relay:
    """Usable alone: `Relay(open_store(url), connect_broker(url))`, then `run(stop)`.

    `wake` is that of an outbox in this process: it tells of commits sooner than the database can.
    """

    def __init__(
        self,
        store: Store,
        broker: Broker,
        outbox: OutboxTable = DEFAULT_OUTBOX,
        *,
        options: RelayOptions | None = None,
        clock: Clock | None = None,
        randomness: random.Random | None = None,
        name: str = "",
        wake: "Wake | None" = None,
        meter: Meter | None = None,
    ) -> None:
        self.options = options or RelayOptions()
        self.name = name or f"{socket.gethostname()}:{os.getpid()}:{next(_serial)}"
        self._store, self._outbox = store, outbox
        self._clock = clock or SystemClock()
        self.looked_at = self._clock.monotonic()
        """When it last began to look; one that is stuck does so no more."""
        self.running = False
        randomness = randomness or random.SystemRandom()
        self.leases = ShardLeases(
            store, outbox, name=self.name, ttl=self.options.lease, clock=self._clock, randomness=randomness
        )
        self.wakeup = Wakeup(self._clock, self.options.poll)
        self.breaker = Breaker(self._clock, randomness)
        self.carrier = Carrier(
            store,
            broker,
            outbox,
            leases=self.leases,
            breaker=self.breaker,
            wakeup=self.wakeup,
            options=self.options,
            clock=self._clock,
            meter=meter,
        )
        self.statistics = self.carrier.statistics
        self._wake = wake
        self._reader = DueReader(
            store,
            outbox,
            self.options.batch,
            runs=broker.features.ordered_runs,
            holds_delayed=not broker.features.delay,
        )
        self._adoption = Adoption(store, outbox) if outbox.adopted else None
        self._rounds: deque[asyncio.Task[int]] = deque()
        self._probes: dict[str, asyncio.Task[int]] = {}
        self._busy: set[str] = set()
        """Keys of what is on its way: the rest of such a key waits until it is settled."""

    @property
    def outbox(self) -> str:
        return self._outbox.name

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop; then the batch in hand is settled and the leases are handed back."""
        unlisten = self._wake.listen(self.wakeup.set) if self._wake else None
        watching = asyncio.create_task(self._watch())
        stopping = asyncio.create_task(self._wake_on(stop))
        failures = 0
        self.looked_at, self.running = self._clock.monotonic(), True
        try:
            while not stop.is_set() or self._rounds:
                self.wakeup.looking()
                self.looked_at = self._clock.monotonic()
                try:
                    progress = await (self._landed() if stop.is_set() else self._advance())
                    failures = 0
                except StoreError as error:
                    # Whatever the database says: the events are still there, and giving up would help nobody.
                    failures += 1
                    _log_store_trouble(error, failures)
                    # Not the wake-up's wait: busy writers would end it at once, and this would be a hot loop.
                    await self._pause(stop, min(0.05 * 2 ** min(failures, 16), _LONGEST_STORE_PAUSE))
                    continue
                if not progress and self.breaker.open_destinations:
                    await self._pause(stop, _PAUSE_IN_OUTAGE)  # for the same reason
                await self.wakeup.wait_after(progress)
        finally:
            if unlisten:
                unlisten()
            tasks = [watching, stopping, *self._rounds, *self._probes.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._rounds.clear()
            self._probes.clear()
            self.running = False
            await self._leave()

    async def run_once(self) -> int:
        """One round; how many rows it settled."""
        await self._set_out()
        begun = [*self._rounds, *self._probes.values()]
        self._rounds.clear()
        self._probes.clear()
        # All of them to their end, whatever becomes of one.
        await asyncio.gather(*begun, return_exceptions=True)
        return sum(task.result() for task in begun)

    async def _advance(self) -> int:
        """One round, begun while the one before it may still be on its way; 0 if there is no hurry to look again."""
        probed = sum(self._probes.pop(topic).result() for topic in list(self._probes) if self._probes[topic].done())
        more = await self._set_out()
        if more and len(self._rounds) < _ROUNDS_AT_ONCE:
            return 1
        return probed + await self._landed(but=_ROUNDS_AT_ONCE - 1 if more else 0)

    async def _landed(self, but: int = 0) -> int:
        """Once no more rounds than these are on their way: how many rows the others settled."""
        settled = 0
        while len(self._rounds) > but:
            settled += await self._rounds.popleft()
        return settled

    async def _set_out(self) -> bool:
        """Look, and send on its way what is due; whether there are keys that this look did not reach."""
        if self.leases.due():
            # Nothing may be on its way: from a shard that is given back, another relay sends at once.
            await self._landed()
            await self.leases.keep()
        if self._adoption is not None and 0 in self.leases.epochs:
            await self._adoption.run_once(self.leases.token)
        # While a topic is out, its whole backlog must not be read again and again; the cursor goes on next time.
        pages = _PAGES_IN_OUTAGE if self.breaker.open_destinations else math.inf
        # Those that are busy before the look: what is settled during it may have been read as it was before.
        look = await self._reader.read(self.leases.epochs, self._wanted, pages, frozenset(self._busy))
        runs, probes = self._sort(look.runs)
        if runs or look.unreadable:
            self._rounds.append(self._begin(runs, look.unreadable))
        for topic, run in probes.items():
            self._probes[topic] = self._begin([run])
            self._probes[topic].add_done_callback(lambda _: self.wakeup.set())
        return look.more

    def _wanted(self, topic: str) -> bool:
        return self.breaker.allows(topic) and topic not in self._probes

    def _sort(self, runs: list[Run]) -> tuple[list[Run], dict[str, Run]]:
        """To a destination that was out, one event goes ahead to see whether it is back; nobody waits for that."""
        probes: dict[str, Run] = {}
        for run in runs:
            if self.breaker.is_probing(destination(run)):
                probes.setdefault(destination(run), run[:1])
        return [run for run in runs if destination(run) not in probes], probes

    def _begin(self, runs: list[Run], unreadable: Sequence[Unreadable] = ()) -> "asyncio.Task[int]":
        keys = {run[0].key for run in runs} | {row.key for row in unreadable}
        self._busy |= keys
        task = asyncio.create_task(self._carry(runs, unreadable))
        task.add_done_callback(lambda _: self._busy.difference_update(keys))
        return task

    async def _carry(self, runs: list[Run], unreadable: Sequence[Unreadable]) -> int:
        async with self.leases.kept_alive():
            if unreadable:
                await self.carrier.park(unreadable)
            return len(unreadable) + await self.carrier.carry(runs)

    async def _watch(self) -> None:
        """Wake-ups from outside. Polling goes on without them, but they are worth another try."""
        while True:
            try:
                told_already = self._wake.name if self._wake else ""
                return await self._store.watch(self._outbox.channel, self.wakeup.set, told_already)
            except StoreError as error:
                log.debug("watching %s broke off: %s", self._outbox.name, describe(error))
            await self._clock.sleep(_WATCH_AGAIN)

    async def _pause(self, stop: asyncio.Event, seconds: float) -> None:
        try:
            await self._clock.wait_for(stop.wait(), seconds)
        except TimeoutError:
            pass

    async def _leave(self) -> None:
        try:
            await self.leases.release()
        except StoreError as error:
            log.info("leases were not handed back (%s); they run out by themselves", error)

    async def _wake_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.wakeup.set()


def _log_store_trouble(error: StoreError, failures: int) -> None:
    # At the 1st, 2nd, 4th, 8th … failure in a row: an outage must not fill the disk with its own story.
    # That others were busy is worth a line only if it lasts.
    if failures & (failures - 1) == 0 and not (isinstance(error, StoreBusy) and failures < 8):
        log.warning("%s Trying again (failure %d in a row).", error, failures)
