"""What was read goes to the broker, and what the broker said goes into the rows."""

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.brokers.base import Broker, Confirmed, Outcome, Refused, Unavailable
from postroad.clock import Clock
from postroad.errors import BrokerError
from postroad.logs import about
from postroad.relay.breaker import Breaker
from postroad.relay.leases import ShardLeases
from postroad.relay.options import RelayOptions
from postroad.relay.reader import Due, Run, Unreadable
from postroad.relay.wakeup import Wakeup
from postroad.retry import describe, fitting
from postroad.stores.base import Store, id_text
from postroad.stores.tables import OutboxTable
from postroad.telemetry.canary import is_canary
from postroad.telemetry.meter import Meter
from postroad.telemetry.tracing import Publishing

log = logging.getLogger("postroad.relay")

_LONGEST_ERROR = 255


@dataclass(slots=True)
class RelayStatistics:
    sent: int = 0
    refused: int = 0
    parked: int = 0
    outages: int = 0


class Carrier:
    """Several rounds may be on their way at once, as long as no key is in two of them."""

    def __init__(
        self,
        store: Store,
        broker: Broker,
        outbox: OutboxTable,
        *,
        leases: ShardLeases,
        breaker: Breaker,
        wakeup: Wakeup,
        options: RelayOptions,
        clock: Clock,
        meter: Meter | None = None,
    ) -> None:
        self._store, self._broker, self._outbox, self._meter = store, broker, outbox, meter
        self._leases, self._breaker, self._wakeup = leases, breaker, wakeup
        self._options, self._clock = options, clock
        self.statistics = RelayStatistics()

    async def carry(self, runs: list[Run]) -> int:
        """Send the runs and settle them. Where the broker cannot hold back the rest of a run after a refusal,
        only one event per key is in flight at a time."""
        settled = 0
        # Not once the leases may have run out: whoever holds the shards now will send these.
        while runs and self._leases.epochs:
            in_flight = runs if self._broker.features.ordered_runs else [run[:1] for run in runs]
            outcomes = await self._send(in_flight)
            few = in_flight == runs and sum(map(len, runs)) < self._options.batch
            if few and isinstance(outcomes[0][0], Confirmed):
                await self._wakeup.breath()
            settled += await self._settle(in_flight, outcomes)
            runs = [
                run[len(sent) :]
                for run, sent, answers in zip(runs, in_flight, outcomes, strict=True)
                if len(sent) < len(run) and isinstance(answers[-1], Confirmed)
            ]
        return settled

    async def _send(self, runs: Sequence[Run]) -> list[Sequence[Outcome]]:
        batch = [due.message for run in runs for due in run]
        spans = Publishing(batch)
        try:
            outcomes = list(await self._clock.wait_for(self._broker.send(batch), self._options.publish_timeout))
        except TimeoutError:
            # They may have arrived all the same: at worst they are sent twice.
            outcomes = [Unavailable(f"no confirmation within {self._options.publish_timeout:g} s")] * len(batch)
        except Exception as error:
            # An adapter shall not raise. If it does, the events are still here, and other topics must go on.
            if len({destination(run) for run in runs}) > 1:
                return await self._send_apart(runs)
            if not isinstance(error, BrokerError):
                log.exception("the adapter of %s failed", self._broker.address)
            outcomes = [Unavailable(describe(error))] * len(batch)
        spans.end("" if isinstance(outcome, Confirmed) else outcome.reason for outcome in outcomes)
        rest = iter(outcomes)
        return [[next(rest) for _ in run] for run in runs]

    async def _send_apart(self, runs: Sequence[Run]) -> list[Sequence[Outcome]]:
        """Each topic by itself: then only the one at fault goes without."""
        answers: dict[str, list[Sequence[Outcome]]] = {}
        for topic in {destination(run): None for run in runs}:
            answers[topic] = await self._send([run for run in runs if destination(run) == topic])
        rest = {topic: iter(of_topic) for topic, of_topic in answers.items()}
        return [next(rest[destination(run)]) for run in runs]

    async def _settle(self, runs: Sequence[Run], outcomes: Sequence[Sequence[Outcome]]) -> int:
        confirmed: list[Due] = []
        refused: list[tuple[Due, Refused]] = []
        out: dict[str, Unavailable] = {}
        for run, answers in zip(runs, outcomes, strict=True):
            for due, outcome in zip(run, answers, strict=True):
                if isinstance(outcome, Confirmed):
                    confirmed.append(due)
                    self._breaker.recovered(due.message.topic)
                    continue
                if isinstance(outcome, Refused):
                    refused.append((due, outcome))
                    self._breaker.recovered(due.message.topic)
                else:
                    out[due.message.topic] = outcome
                if self._meter is not None:
                    self._meter.add("outbox_publish_error_total", 1, due.message.topic)
                    self._meter.add("outbox_publish_attempts_total", 1, due.message.topic)
                # The rest of this key must not pass the one that did not get through.
                break
        for topic, outcome in out.items():
            self._outage(topic, outcome)
        if confirmed or refused:
            await self.mark(confirmed, refused)
        if self._meter is not None and confirmed:
            self._count(self._meter, confirmed)
        return len(confirmed) + len(refused)

    def _count(self, meter: Meter, confirmed: Sequence[Due]) -> None:
        """A batch at a time."""
        now = self._clock.now()
        waited: dict[str, list[float]] = defaultdict(list)
        types: dict[str, int] = defaultdict(int)
        for due in confirmed:
            if not is_canary(due.message.type):
                # Other hosts' clocks may be a little ahead of ours.
                waited[due.message.topic].append(max(0.0, (now - due.message.occurred_at).total_seconds()))
                types[due.message.type] += 1
        for topic, seconds in waited.items():
            meter.add("outbox_publish_success_total", len(seconds), topic)
            meter.add("outbox_publish_attempts_total", len(seconds), topic)
            meter.observe("outbox_publish_latency", seconds, topic)
        for event_type, events in types.items():
            meter.add("events_by_type", events, event_type)

    async def mark(self, confirmed: Sequence[Due], refused: Sequence[tuple[Due, Refused]]) -> None:
        marked = 0
        if confirmed:
            sent = await self._store.change(
                "mark_sent",
                self._outbox,
                outbox_name=self._outbox.name,
                token=self._leases.token,
                ids=[id_text(due.row_id) for due in confirmed],
                shards=[due.shard for due in confirmed],
                epochs=[due.epoch for due in confirmed],
            )
            marked += sent.rowcount
        if refused:
            async with self._store.transaction() as connection:
                for due, refusal in refused:
                    wait = self._options.backoff.after(due.attempts + 1)
                    marked += await self._mark_failed(connection, due, refusal.reason, wait)
        self.statistics.sent += len(confirmed)
        for due, refusal in refused:
            self._tell_refusal(due, refusal)
        if marked < len(confirmed) + len(refused):
            # Without this, the same rows would be read and sent again and again until the next renewal.
            self._leases.doubt()

    async def _mark_failed(
        self, connection: AsyncConnection, due: Due | Unreadable, reason: str, wait: float | None
    ) -> int:
        failed = await self._store.execute(
            connection,
            "mark_failed",
            outbox=self._outbox,
            outbox_name=self._outbox.name,
            token=self._leases.token,
            event_id=due.row_id,
            epoch=due.epoch,
            state="FAILED" if wait is None else "RETRY",
            error=fitting(reason, _LONGEST_ERROR),
            wait=wait or 0.0,
        )
        return failed.rowcount

    async def park(self, rows: Sequence[Unreadable]) -> None:
        """At once and not after some attempts: trying again cannot make them readable."""
        parked = []
        async with self._store.transaction() as connection:
            for row in rows:
                if await self._mark_failed(connection, row, row.reason, None):
                    parked.append(row)
        for row in parked:
            self.statistics.parked += 1
            log.error("row %s of %s is parked: %s. Its key %s waits.",
                      id_text(row.row_id), self._outbox.name, row.reason, row.key)  # fmt: skip
        if len(parked) < len(rows):
            self._leases.doubt()

    def _tell_refusal(self, due: Due, refusal: Refused) -> None:
        attempt, limit = due.attempts + 1, self._options.backoff.attempts
        wait = self._options.backoff.after(attempt)
        self.statistics.refused += 1
        told = about(due.message, attempt=attempt, outcome="refused" if wait is not None else "parked")
        if wait is not None and self._meter is not None:
            self._meter.observe("outbox_retry_interval", (wait,), due.message.topic)
        if wait is None:
            self.statistics.parked += 1
            log.error(
                "event %s (%s) is parked after %d attempts: %s. Its key %s waits. "
                "Free it with: postroad outbox retry %s (or skip)",
                due.message.id, due.message.type, attempt, fitting(refusal.reason), due.message.ordering_key,
                _row_told(due),
                extra=told,
            )  # fmt: skip
        else:
            log.warning(
                "event %s (%s) refused by the broker, attempt %d of %d, next try in %g s: %s",
                due.message.id, due.message.type, attempt, limit, wait, fitting(refusal.reason),
                extra=told,
            )  # fmt: skip

    def _outage(self, topic: str, outcome: Unavailable) -> None:
        if not self._breaker.is_probing(topic):
            self.statistics.outages += 1
            log.warning("broker %s does not take %s; it is tried again, and no attempts are counted: %s",
                        self._broker.address, topic, fitting(outcome.reason))  # fmt: skip
        self._breaker.tripped(topic)


def _row_told(due: Due) -> str:
    """As people write it in a command. Of a fact in several schema versions, each row has an id of its own."""
    return due.row_id if isinstance(due.row_id, str) else str(UUID(id_text(due.row_id)))


def destination(run: Run) -> str:
    return run[0].message.topic
