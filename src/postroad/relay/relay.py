"""Lease shards → read → send → settle, again and again."""

import asyncio
import logging
import os
import random
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from postroad.brokers.base import Broker, Confirmed, Outcome, Refused, Unavailable
from postroad.clock import Clock, SystemClock
from postroad.errors import ConfigurationError, StoreBusy, StoreError
from postroad.relay.breaker import Breaker
from postroad.relay.leases import ShardLeases
from postroad.relay.reader import Due, DueReader, Run
from postroad.relay.wakeup import Wakeup
from postroad.retry import EXPONENTIAL, Backoff, describe
from postroad.stores.base import Store
from postroad.stores.tables import DEFAULT_OUTBOX, OutboxTable

log = logging.getLogger("postroad.relay")


@dataclass(frozen=True, slots=True)
class RelayOptions:
    batch: int = 1_000
    lease: float = 15.0
    """Seconds after which the shards of a relay that died are taken over."""
    poll: float = 1.0
    """The longest pause between looks when no wake-up comes."""
    publish_timeout: float = 30.0
    backoff: Backoff = EXPONENTIAL

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ConfigurationError(f"relay.batch is {self.batch}: at least 1 is needed.")
        for name in ("lease", "poll", "publish_timeout"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"relay.{name} is {getattr(self, name)}: it must be more than 0 seconds.")


@dataclass(slots=True)
class RelayStatistics:
    sent: int = 0
    refused: int = 0
    parked: int = 0
    outages: int = 0


_serial = count(1)


class Relay:
    """Usable alone: `Relay(open_store(url), connect_broker(url))`, then `run(stop)`."""

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
    ) -> None:
        self.options = options or RelayOptions()
        self.name = name or f"{socket.gethostname()}:{os.getpid()}:{next(_serial)}"
        self._store, self._broker, self._outbox = store, broker, outbox
        self._clock = clock or SystemClock()
        randomness = randomness or random.SystemRandom()
        self.leases = ShardLeases(
            store, outbox, name=self.name, ttl=self.options.lease, clock=self._clock, randomness=randomness
        )
        self.wakeup = Wakeup(self._clock, self.options.poll)
        self.breaker = Breaker(self._clock, randomness)
        self.statistics = RelayStatistics()
        self._reader = DueReader(store, outbox, self.options.batch)
        self._adopts = bool(outbox.columns)

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop; then the batch in hand is settled and the leases are handed back."""
        watching = asyncio.create_task(self._store.watch(self._outbox.channel, self.wakeup.set))
        stopping = asyncio.create_task(self._wake_on(stop))
        failures = 0
        try:
            while not stop.is_set():
                try:
                    progress = await self.run_once()
                    failures = 0
                except StoreError as error:
                    failures += 1
                    _log_store_trouble(error, failures)
                    await self.wakeup.wait(min(0.1 * 2**failures, 5.0))
                    continue
                if progress:
                    self.wakeup.busy()
                else:
                    await self.wakeup.wait(self.options.poll)
        finally:
            for task in (watching, stopping):
                task.cancel()
            await asyncio.gather(watching, stopping, return_exceptions=True)
            await self._leave()

    async def run_once(self) -> int:
        """One round; how many rows it settled."""
        if self.leases.due():
            await self.leases.keep()
            if self._adopts:
                await self._reader.adopt_foreign_rows()
        runs = [run for run in await self._reader.read(self.leases.epochs) if self.breaker.allows(_destination(run))]
        return await self._carry(self._probes_only(runs))

    async def _carry(self, runs: list[Run]) -> int:
        """Send the runs and settle them. Where the broker cannot hold back the rest of a run after a refusal,
        only one event per key is in flight at a time."""
        if self._broker.features.ordered_runs:
            return await self._settle(runs, await self._send(runs))
        settled = 0
        while runs:
            heads = [run[:1] for run in runs]
            outcomes = await self._send(heads)
            settled += await self._settle(heads, outcomes)
            runs = [run[1:] for run, (outcome,) in zip(runs, outcomes, strict=True) if isinstance(outcome, Confirmed)]
            runs = [run for run in runs if run]
        return settled

    async def _send(self, runs: Sequence[Run]) -> list[Sequence[Outcome]]:
        held = self.leases.epochs
        batch = [due.message for run in runs for due in run]
        if not batch:
            return []
        if not held:
            # We were away too long; whoever holds the shards now will send these.
            return [[Unavailable("lease ran out")] * len(run) for run in runs]
        try:
            outcomes = list(await self._clock.wait_for(self._broker.send(batch), self.options.publish_timeout))
        except TimeoutError:
            # They may have arrived all the same: at worst they are sent twice.
            outcomes = [Unavailable(f"no confirmation within {self.options.publish_timeout:g} s")] * len(batch)
        rest = iter(outcomes)
        return [[next(rest) for _ in run] for run in runs]

    async def _settle(self, runs: Sequence[Run], outcomes: Sequence[Sequence[Outcome]]) -> int:
        confirmed: list[Due] = []
        refused: list[tuple[Due, Refused]] = []
        for run, answers in zip(runs, outcomes, strict=True):
            for due, outcome in zip(run, answers, strict=True):
                if isinstance(outcome, Confirmed):
                    confirmed.append(due)
                    self.breaker.recovered(due.message.topic)
                    continue
                if isinstance(outcome, Refused):
                    refused.append((due, outcome))
                    self.breaker.recovered(due.message.topic)
                else:
                    self._outage(due.message.topic, outcome)
                # The rest of this key must not pass the one that did not get through.
                break
        if confirmed or refused:
            await self._mark(confirmed, refused)
        return len(confirmed) + len(refused)

    async def _mark(self, confirmed: Sequence[Due], refused: Sequence[tuple[Due, Refused]]) -> None:
        lease = {"outbox_name": self._outbox.name, "token": self.leases.token}
        async with self._store.transaction() as connection:
            if confirmed:
                await self._store.execute(
                    connection,
                    "mark_sent",
                    outbox=self._outbox,
                    ids=[self._id_text(due) for due in confirmed],
                    shards=[due.shard for due in confirmed],
                    epochs=[due.epoch for due in confirmed],
                    **lease,
                )
            for due, refusal in refused:
                wait = self.options.backoff.after(due.attempts + 1)
                await self._store.execute(
                    connection,
                    "mark_failed",
                    outbox=self._outbox,
                    event_id=self._id_text(due) if self._outbox.ids == "text" else due.message.id,
                    epoch=due.epoch,
                    state="FAILED" if wait is None else "RETRY",
                    error=refusal.reason,
                    wait=wait or 0.0,
                    **lease,
                )
        self.statistics.sent += len(confirmed)
        for due, refusal in refused:
            self._tell_refusal(due, refusal)

    def _id_text(self, due: Due) -> str:
        return str(due.message.id) if self._store.dialect != "mysql" or self._outbox.ids == "text" else due.message.id.hex

    def _tell_refusal(self, due: Due, refusal: Refused) -> None:
        attempt, limit = due.attempts + 1, self.options.backoff.attempts
        wait = self.options.backoff.after(attempt)
        self.statistics.refused += 1
        if wait is None:
            self.statistics.parked += 1
            log.error(
                "event %s (%s) is parked after %d attempts: %s. Its key %s waits. "
                "Free it with: postroad outbox retry %s (or skip)",
                due.message.id, due.message.type, attempt, refusal.reason, due.message.ordering_key, due.message.id,
            )  # fmt: skip
        else:
            log.warning(
                "event %s (%s) refused by the broker, attempt %d of %d, next try in %g s: %s",
                due.message.id, due.message.type, attempt, limit, wait, refusal.reason,
            )  # fmt: skip

    def _outage(self, topic: str, outcome: Unavailable) -> None:
        if not self.breaker.is_probing(topic):
            self.statistics.outages += 1
            log.warning("broker %s does not take %s: %s. Retrying; no attempts are counted.",
                        self._broker.address, topic, describe(Exception(outcome.reason)))  # fmt: skip
        self.breaker.tripped(topic)

    def _probes_only(self, runs: list[Run]) -> list[Run]:
        """To a destination that was out, one event goes ahead to see whether it is back."""
        probed: set[str] = set()
        chosen = []
        for run in runs:
            topic = _destination(run)
            if not self.breaker.is_probing(topic):
                chosen.append(run)
            elif topic not in probed:
                probed.add(topic)
                chosen.append(run[:1])
        return chosen

    async def _leave(self) -> None:
        try:
            await self.leases.release()
        except StoreError as error:
            log.info("leases were not handed back (%s); they run out by themselves", error)

    async def _wake_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.wakeup.set()


def _destination(run: Run) -> str:
    return run[0].message.topic


def _log_store_trouble(error: StoreError, failures: int) -> None:
    # At the 1st, 2nd, 4th, 8th … failure in a row: an outage must not fill the disk with its own story.
    if failures & (failures - 1) == 0 and not isinstance(error, StoreBusy):
        log.warning("%s Trying again (failure %d in a row).", error, failures)
