"""Lease shards → read → send → settle, again and again."""

import asyncio
import logging
import math
import os
import random
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.brokers.base import Broker, Confirmed, Outcome, Refused, Unavailable
from postroad.clock import Clock, SystemClock
from postroad.errors import BrokerError, ConfigurationError, StoreBusy, StoreError
from postroad.relay.adoption import Adoption
from postroad.relay.breaker import Breaker
from postroad.relay.leases import ShardLeases
from postroad.relay.reader import Due, DueReader, Run, Unreadable
from postroad.relay.wakeup import Wakeup
from postroad.retry import EXPONENTIAL, Backoff, describe, fitting
from postroad.stores.base import Store, id_text
from postroad.stores.tables import DEFAULT_OUTBOX, OutboxTable

if TYPE_CHECKING:
    from postroad.outbox.wake import Wake

log = logging.getLogger("postroad.relay")

_LONGEST_ERROR = 255
_WATCH_AGAIN = 1.0
_PAGES_IN_OUTAGE = 8
_LONGEST_STORE_PAUSE = 5.0


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
        self._wake = wake
        self._reader = DueReader(store, outbox, self.options.batch, runs=broker.features.ordered_runs)
        self._adoption = Adoption(store, outbox) if outbox.adopted else None

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop; then the batch in hand is settled and the leases are handed back."""
        unlisten = self._wake.listen(self.wakeup.set) if self._wake else None
        watching = asyncio.create_task(self._watch())
        stopping = asyncio.create_task(self._wake_on(stop))
        failures = 0
        try:
            while not stop.is_set():
                self.wakeup.looking()
                try:
                    progress = await self.run_once()
                    failures = 0
                except StoreError as error:
                    # Whatever the database says: the events are still there, and giving up would help nobody.
                    failures += 1
                    _log_store_trouble(error, failures)
                    # Not the wake-up's wait: busy writers would end it at once, and this would be a hot loop.
                    await self._pause(stop, min(0.05 * 2 ** min(failures, 16), _LONGEST_STORE_PAUSE))
                    continue
                await self.wakeup.wait_after(progress)
        finally:
            if unlisten:
                unlisten()
            for task in (watching, stopping):
                task.cancel()
            await asyncio.gather(watching, stopping, return_exceptions=True)
            await self._leave()

    async def run_once(self) -> int:
        """One round; how many rows it settled."""
        if self.leases.due():
            await self.leases.keep()
        if self._adoption is not None and 0 in self.leases.epochs:
            await self._adoption.run_once(self.leases.token)
        # While a topic is out, its whole backlog must not be read again and again; the cursor goes on next time.
        pages = _PAGES_IN_OUTAGE if self.breaker.open_destinations else math.inf
        look = await self._reader.read(self.leases.epochs, self.breaker.allows, pages)
        if not look:
            return 0
        await self._park(look.unreadable)
        async with self.leases.kept_alive():
            return len(look.unreadable) + await self._carry(self._probes_only(look.runs))

    async def _carry(self, runs: list[Run]) -> int:
        """Send the runs and settle them. Where the broker cannot hold back the rest of a run after a refusal,
        only one event per key is in flight at a time."""
        settled = 0
        # Not once the leases may have run out: whoever holds the shards now will send these.
        while runs and self.leases.epochs:
            in_flight = runs if self._broker.features.ordered_runs else [run[:1] for run in runs]
            outcomes = await self._send(in_flight)
            if in_flight == runs and sum(map(len, runs)) < self.options.batch:
                await self.wakeup.breath()
            settled += await self._settle(in_flight, outcomes)
            runs = [
                run[len(sent) :]
                for run, sent, answers in zip(runs, in_flight, outcomes, strict=True)
                if len(sent) < len(run) and isinstance(answers[-1], Confirmed)
            ]
        return settled

    async def _send(self, runs: Sequence[Run]) -> list[Sequence[Outcome]]:
        batch = [due.message for run in runs for due in run]
        try:
            outcomes = list(await self._clock.wait_for(self._broker.send(batch), self.options.publish_timeout))
        except TimeoutError:
            # They may have arrived all the same: at worst they are sent twice.
            outcomes = [Unavailable(f"no confirmation within {self.options.publish_timeout:g} s")] * len(batch)
        except Exception as error:
            # An adapter shall not raise. If it does, the events are still here, and other topics must go on.
            if len({_destination(run) for run in runs}) > 1:
                return await self._send_apart(runs)
            if not isinstance(error, BrokerError):
                log.exception("the adapter of %s failed", self._broker.address)
            outcomes = [Unavailable(describe(error))] * len(batch)
        rest = iter(outcomes)
        return [[next(rest) for _ in run] for run in runs]

    async def _send_apart(self, runs: Sequence[Run]) -> list[Sequence[Outcome]]:
        """Each topic by itself: then only the one at fault goes without."""
        answers: dict[str, list[Sequence[Outcome]]] = {}
        for topic in {_destination(run): None for run in runs}:
            answers[topic] = await self._send([run for run in runs if _destination(run) == topic])
        rest = {topic: iter(of_topic) for topic, of_topic in answers.items()}
        return [next(rest[_destination(run)]) for run in runs]

    async def _settle(self, runs: Sequence[Run], outcomes: Sequence[Sequence[Outcome]]) -> int:
        confirmed: list[Due] = []
        refused: list[tuple[Due, Refused]] = []
        out: dict[str, Unavailable] = {}
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
                    out[due.message.topic] = outcome
                # The rest of this key must not pass the one that did not get through.
                break
        for topic, outcome in out.items():
            self._outage(topic, outcome)
        if confirmed or refused:
            await self._mark(confirmed, refused)
        return len(confirmed) + len(refused)

    async def _mark(self, confirmed: Sequence[Due], refused: Sequence[tuple[Due, Refused]]) -> None:
        marked = 0
        if confirmed:
            sent = await self._store.change(
                "mark_sent",
                self._outbox,
                outbox_name=self._outbox.name,
                token=self.leases.token,
                ids=[id_text(due.row_id) for due in confirmed],
                shards=[due.shard for due in confirmed],
                epochs=[due.epoch for due in confirmed],
            )
            marked += sent.rowcount
        if refused:
            async with self._store.transaction() as connection:
                for due, refusal in refused:
                    wait = self.options.backoff.after(due.attempts + 1)
                    marked += await self._mark_failed(connection, due, refusal.reason, wait)
        self.statistics.sent += len(confirmed)
        for due, refusal in refused:
            self._tell_refusal(due, refusal)
        if marked < len(confirmed) + len(refused):
            # Without this, the same rows would be read and sent again and again until the next renewal.
            self.leases.doubt()

    async def _mark_failed(
        self, connection: AsyncConnection, due: Due | Unreadable, reason: str, wait: float | None
    ) -> int:
        failed = await self._store.execute(
            connection,
            "mark_failed",
            outbox=self._outbox,
            outbox_name=self._outbox.name,
            token=self.leases.token,
            event_id=due.row_id,
            epoch=due.epoch,
            state="FAILED" if wait is None else "RETRY",
            error=fitting(reason, _LONGEST_ERROR),
            wait=wait or 0.0,
        )
        return failed.rowcount

    async def _park(self, rows: Sequence[Unreadable]) -> None:
        """At once and not after some attempts: trying again cannot make them readable."""
        if not rows:
            return
        async with self._store.transaction() as connection:
            for row in rows:
                await self._mark_failed(connection, row, row.reason, None)
        for row in rows:
            self.statistics.parked += 1
            log.error("row %s of %s is parked: %s. Its key %s waits.",
                      id_text(row.row_id), self._outbox.name, row.reason, row.key)  # fmt: skip

    def _tell_refusal(self, due: Due, refusal: Refused) -> None:
        attempt, limit = due.attempts + 1, self.options.backoff.attempts
        wait = self.options.backoff.after(attempt)
        self.statistics.refused += 1
        about = {
            "event_id": str(due.message.id),
            "event_type": due.message.type,
            "correlation_id": due.message.correlation_id,
            "outcome": "refused" if wait is not None else "parked",
        }
        if wait is None:
            self.statistics.parked += 1
            log.error(
                "event %s (%s) is parked after %d attempts: %s. Its key %s waits. "
                "Free it with: postroad outbox retry %s (or skip)",
                due.message.id, due.message.type, attempt, fitting(refusal.reason), due.message.ordering_key,
                due.row_id if isinstance(due.row_id, str) else due.message.id,
                extra=about,
            )  # fmt: skip
        else:
            log.warning(
                "event %s (%s) refused by the broker, attempt %d of %d, next try in %g s: %s",
                due.message.id, due.message.type, attempt, limit, wait, fitting(refusal.reason),
                extra=about,
            )  # fmt: skip

    def _outage(self, topic: str, outcome: Unavailable) -> None:
        if not self.breaker.is_probing(topic):
            self.statistics.outages += 1
            log.warning("broker %s does not take %s: %s. Retrying; no attempts are counted.",
                        self._broker.address, topic, fitting(outcome.reason))  # fmt: skip
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


def _destination(run: Run) -> str:
    return run[0].message.topic


def _log_store_trouble(error: StoreError, failures: int) -> None:
    # At the 1st, 2nd, 4th, 8th … failure in a row: an outage must not fill the disk with its own story.
    # That others were busy is worth a line only if it lasts.
    if failures & (failures - 1) == 0 and not (isinstance(error, StoreBusy) and failures < 8):
        log.warning("%s Trying again (failure %d in a row).", error, failures)
