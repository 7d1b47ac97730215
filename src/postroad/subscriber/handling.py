"""One piece of work after the other: handle, record, give the verdict."""

import asyncio
import logging
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from postroad.clock import Clock
from postroad.errors import (
    BrokerError,
    BrokerUnavailable,
    LeaseLost,
    PostroadError,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    UnknownEventType,
)
from postroad.inbox import Acquired, AcquireState, Inbox, Lease, Status
from postroad.inbox.inbox import conflict
from postroad.inbox.record import RECHECK
from postroad.inbox.transaction import handling
from postroad.message import Message
from postroad.retry import Ack, Dead, Decision, Retry, decide, describe
from postroad.subscriber.intake import Chirp, Foreign, Item, Poison, Ready
from postroad.subscriber.options import Statistics, SubscriberOptions
from postroad.subscriber.report import Occasionally, failure, identity
from postroad.telemetry.lag import VersionLag
from postroad.telemetry.meter import MOST_SERIES, Meter

_OUTAGE_WAIT: Final = 0.5
_LONGEST_OUTAGE_WAIT: Final = 1.0
_SHORTEST_PART: Final = 0.5
_log = logging.getLogger("postroad")


Tell = Callable[[Message, float], None]
"""Is told of an event that was handled, and how many seconds that took."""


class _NotFreshError(PostroadError):
    """Rolls back: there is a record already, or an earlier event of the key must come first."""


class Handling:
    def __init__(
        self,
        inbox: Inbox,
        group: str,
        options: SubscriberOptions,
        clock: Clock,
        randomness: random.Random,
        road: object,
        keeps_place: float = math.inf,
        meter: Meter | None = None,
    ) -> None:
        self._inbox, self._group, self._options, self._meter = inbox, group, options, meter
        self._clock, self._randomness, self._road = clock, randomness, road
        self.longest_unrecorded = 0.9 * keeps_place
        """Seconds that an event may wait if nobody could record that it does: else, if this worker died, later ones of
        its key might go first."""
        self._outages = 0
        self._same_outage_until = -math.inf
        self._away = False
        self._occasionally = Occasionally(clock)
        self.statistics = Statistics()
        self.tell: Tell | None = None
        self.lag = VersionLag()
        self.canaries: dict[tuple[str, str], datetime] = {}
        """By topic and source: when the newest that has arrived was written."""

    async def handle(self, items: Sequence[Item]) -> dict[Hashable, float]:
        """Settles every item. What is returned: the lanes that must wait now, and for how many seconds."""
        if self._away and self._clock.monotonic() < self._same_outage_until:
            # The database is still away: if each event asked for itself, it would be kept busy with refusals.
            return await self._wait_for_the_database(items)
        left: deque[Item] = deque(items)
        waits: dict[Hashable, float] = {}
        try:
            ready = [item for item in items if isinstance(item, Ready)]
            if len(ready) == len(items) > 1:
                left = deque(await self._together(ready))
            while left:
                if left[0].lane in waits:
                    await self.give_back(left[0], waits[left[0].lane])
                elif (wait := await self._alone(left[0])) is not None:
                    waits[left[0].lane] = wait
                left.popleft()
        except StoreError as error:
            self._outage(error)
            waits |= await self._wait_for_the_database(left)
        return waits

    async def give_back(self, item: Item, after: float) -> float:
        self.statistics.given_back += 1
        await self._settle(partial(item.delivery.retry, after))
        return after

    async def give_all_back(self, items: Iterable[Item], after: float) -> None:
        # Begun in order, awaited together, so that a broker can settle them in one go.
        await asyncio.gather(*(self.give_back(item, after) for item in items))

    # -- several in one transaction ----------------------------------------------------------------------

    async def _together(self, items: Sequence[Ready]) -> Sequence[Ready]:
        """What is left, to be handled one by one, which finds the culprit: nothing, if all could share a commit.

        After a crash many are delivered again, some of them twice in one batch. These must not keep the others from
        sharing a commit.
        """
        first: dict[tuple[UUID, str], Ready] = {}
        for item in items:
            first.setdefault(item.identity, item)  # also in its place: the order of its key is that of the first
        fresh = list(first.values())
        known: set[tuple[UUID, str]] = set()
        shared = await self._share_commit(fresh)
        if not shared:
            known = await self._inbox.succeeded(self._group, [item.message for item in fresh])
            fresh = [item for item in fresh if item.identity not in known]
            shared = bool(known) and await self._share_commit(fresh)
        handled = set(fresh) if shared else set()
        done = known | {item.identity for item in handled}
        duplicates = [item for item in items if item.identity in done and item not in handled]
        await asyncio.gather(*(self._duplicate(item) for item in duplicates))
        return [item for item in items if item.identity not in done]

    async def _share_commit(self, items: Sequence[Ready]) -> bool:
        """All of them, or none."""
        if len(items) < 2:
            return False
        began = self._clock.monotonic()
        try:
            await self._first_attempt(items)
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, StoreBusy):
                raise
            _log.debug("%d events could not share a commit: %s", len(items), describe(error))
            return False
        # At once, so that a broker can settle them in one go.
        await asyncio.gather(*(self._handled(item, began) for item in items))
        return True

    async def _first_attempt(self, items: Sequence[Ready]) -> None:
        """Records, effects and follow-up events in one transaction. Raises _NotFreshError if one is known."""
        async with handling(self._inbox.store) as (session, connection):
            messages = [item.message for item in items]
            if not await self._inbox.claim(connection, self._group, messages):
                raise _NotFreshError
            await self._run(items, session)

    async def _run(self, items: Sequence[Ready], session: AsyncSession) -> None:
        if items[0].handler.batch is not None:
            events, messages = [item.event for item in items], [item.message for item in items]
            await items[0].handler(events, messages, session, self._road)
            return
        for item in items:
            await item.handler([item.event], [item.message], session, self._road)

    # -- one by one --------------------------------------------------------------------------------------

    async def _alone(self, item: Item) -> float | None:
        """None: settled, and its key goes on. Else given back, and its key waits as long."""
        match item:
            case Foreign():
                self.statistics.skipped += 1
                await self._ack(item)
            case Chirp():
                self._hear(item.message)
                await self._settle(item.delivery.ack)
            case Poison():
                await self._bury(item)
            case Ready():
                return await self._attempt(item)
        return None

    async def _attempt(self, item: Ready) -> float | None:
        began = self._clock.monotonic()
        try:
            await self._first_attempt([item])
        except _NotFreshError:
            return await self._known_before(item)
        except StoreError:
            raise
        except Exception as error:
            return await self._failed(item, error, 1, None)
        await self._handled(item, began)
        return None

    async def _known_before(self, item: Ready) -> float | None:
        if await self._inbox.succeeded(self._group, [item.message]):
            # Most often; and seen without a transaction that writes.
            await self._duplicate(item)
            return None
        acquired = await self._inbox.try_acquire(self._group, item.message, self._options.lock_ttl)
        match acquired.state:
            case AcquireState.REPLAY_SUCCEEDED:
                await self._duplicate(item)
            case AcquireState.STOPPED:
                await self._stopped_before(item, acquired)
            case AcquireState.CONFLICT:
                await self._contradicted(item, acquired)
            case AcquireState.IN_PROGRESS:
                # Never acknowledged: the attempt that is under way may still fail. And if it is an earlier event of its
                # key that waits, this one has no record of its own.
                return await self.give_back(item, min(acquired.wait or RECHECK, self.longest_unrecorded))
            case AcquireState.ACQUIRED | AcquireState.RETRYABLE_FAILED:
                return await self._again(item, acquired)
        return None

    async def _again(self, item: Ready, acquired: Acquired) -> float | None:
        assert acquired.lease is not None
        began = self._clock.monotonic()
        try:
            await self._inbox.attempt(
                acquired.lease, lambda session: self._run([item], session), self._options.lock_ttl
            )
        except LeaseLost as error:
            _log.warning("%s", error, extra=identity(item, self._group))
            return await self.give_back(item, RECHECK)
        except StoreError:
            raise
        except Exception as error:
            return await self._failed(item, error, acquired.retry_count + 1, acquired.lease)
        await self._handled(item, began)
        return None

    # -- verdicts ----------------------------------------------------------------------------------------

    async def _handled(self, item: Ready, began: float) -> None:
        self._outages, self._same_outage_until, self._away = 0, -math.inf, False
        self.statistics.handled += 1
        if self.tell is not None:
            self.tell(item.message, self._clock.monotonic() - began)
        if self._meter is not None:
            self._meter.add("projection_process_success_total", 1, self._group, item.message.type)
            self._meter.observe("projection_process_latency", (self._clock.monotonic() - began,), self._group)
            self.lag.handled(item.message)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("Event processed successfully", extra=identity(item, self._group, "handled"))
        await self._ack(item)

    async def _duplicate(self, item: Ready | Poison) -> None:
        self.statistics.duplicates += 1
        if item.message is not None:
            told = "%s %s is settled in group %s already, and only acknowledged"
            about = identity(item, self._group, "duplicate")
            _log.info(told, item.message.type, item.message.id, self._group, extra=about)
        await self._ack(item)

    async def _failed(self, item: Ready, error: Exception, failures: int, lease: Lease | None) -> float | None:
        """Recorded before the verdict, so that a crash in between costs a delivery and not the count."""
        self.statistics.failed += 1
        if self._meter is not None:
            self._meter.add("projection_process_error_total", 1, self._group, item.message.type)
        decision = decide(error, failures, self._options.backoff)
        recorded = await self._inbox.mark_failed(
            self._group, item.message, error, decision, lease=lease, failures=failures
        )
        self._tell(item, error, failures, decision)
        if not recorded:
            # Somebody else is at it, or done with it: the next delivery will see.
            return await self.give_back(item, RECHECK)
        match decision:
            case Retry(after=after):
                return await self.give_back(item, after)
            case Ack():
                await self._ack(item)
            case Dead(reason=reason):
                await self._dead(item, reason)
        return None

    def _tell(self, item: Ready, error: Exception, failures: int, decision: Decision) -> None:
        level, text = failure(
            item.message, item.handler, error, failures, self._options.backoff, decision, self._clock.now()
        )
        _log.log(level, "%s", text, extra=identity(item, self._group, "failed", attempt=failures))
        _log.debug("traceback of %s", item.message.id, exc_info=error)

    async def _stopped_before(self, item: Ready, acquired: Acquired) -> None:
        record = acquired.record
        assert record is not None
        if record.refused:
            await self._duplicate(item)
            return
        # Not only acknowledged: whoever recorded the failure may have died before there was a dead letter of it. And
        # not tried: nobody asked for this copy, and what came after the event may have taken effect since.
        told = "%s %s has failed for good in group %s before, and goes to the dead letters untried"
        about = identity(item, self._group, "duplicate")
        _log.warning(told, item.message.type, item.message.id, self._group, extra=about)
        await self._dead(item, record.error_msg or "failed for good before")

    async def _contradicted(self, item: Ready, acquired: Acquired) -> None:
        error = conflict(item.message, acquired.record)
        _log.error("%s", error, extra=identity(item, self._group, "conflict"))
        await self._dead(item, describe(error))

    async def _bury(self, item: Poison) -> None:
        reason = describe(item.error)
        if item.message is not None:
            verdict = Dead(reason)
            recorded = await self._inbox.mark_failed(self._group, item.message, item.error, verdict)
            record = None if recorded else await self._inbox.find(self._group, item.message.id)
            if record and record.status is Status.SUCCEEDED:
                await self._duplicate(item)
                return
        missing = isinstance(item.error, UnknownEventType)
        if not missing or self._occasionally(reason):
            which = item.message.id if item.message else "a message without an id"
            text = "%s goes from group %s to the dead letters: %s"
            about = identity(item, self._group, "unknown_type" if missing else "unreadable")
            _log.error(text, which, self._group, reason, extra=about)
        await self._dead(item, reason)

    def _hear(self, message: Message) -> None:
        route = message.topic, message.source_service or ""
        if route in self.canaries or len(self.canaries) < MOST_SERIES:
            self.canaries[route] = max(message.occurred_at, self.canaries.get(route, message.occurred_at))

    async def _ack(self, item: Item) -> None:
        self.statistics.acked += 1
        await self._settle(item.delivery.ack)

    async def _dead(self, item: Item, reason: str) -> None:
        self.statistics.dead += 1
        await self._settle(partial(item.delivery.dead, reason))

    def _outage(self, error: StoreError) -> None:
        """The event's transaction failed through no fault of its own: a blip, a deadlock, or the database is away."""
        now = self._clock.monotonic()
        # All that run side by side fail together: counted one by one, a blip would cost the longest wait.
        if now >= self._same_outage_until:
            self._outages += 1
            self._away = self._outages > 1 and isinstance(error, StoreUnavailable)
            self._same_outage_until = now + self._outage_wait() * _SHORTEST_PART
        if self._occasionally("store"):
            _log.warning("group %s waits for its database: %s", self._group, error)

    def _outage_wait(self) -> float:
        return min(_LONGEST_OUTAGE_WAIT, _OUTAGE_WAIT * 2.0 ** min(self._outages - 1, 16))

    async def _wait_for_the_database(self, items: Collection[Item]) -> dict[Hashable, float]:
        """Not the messages' fault: no attempt is burnt, and the wait grows while the trouble lasts."""
        # Spread out, so that all that were given back do not come again in the same moment.
        spread = self._randomness.uniform(_SHORTEST_PART, 1.0)
        wait = min(self._outage_wait(), self.longest_unrecorded) * spread
        await self.give_all_back(items, wait)
        return {item.lane: wait for item in items}

    async def _settle(self, give: Callable[[], Awaitable[None]]) -> None:
        """Gives the verdict until the broker has it: for as long as we live, the message is ours, and its key waits."""
        wait = _OUTAGE_WAIT
        while True:
            try:
                return await give()
            except BrokerUnavailable as error:
                if self._occasionally("broker"):
                    _log.warning("group %s could not give its verdict, and tries again: %s", self._group, error)
                await self._clock.sleep(wait * self._randomness.uniform(0.5, 1.0))
                wait = min(wait * 2, _LONGEST_OUTAGE_WAIT)
            except BrokerError as error:
                # The receiver is closed: the broker will deliver it to another, and the record will tell.
                _log.debug("group %s could not give its verdict: %s", self._group, error)
                return None
