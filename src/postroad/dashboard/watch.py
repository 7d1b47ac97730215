"""How it stands, sampled while somebody looks; the last half hour is kept in memory."""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

from postroad import operations
from postroad.app import Postroad
from postroad.errors import PostroadError

INTERVAL: Final = 2.0
_KEPT: Final = 900
_MOST_COUNTED: Final = 200_000
_UNWATCHED: Final = 600.0
"""Seconds after the last look until sampling ends: nobody should pay for what nobody sees."""


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    """Seconds since 1970."""
    waiting: int
    failing: int
    """Parked, being retried or failed in a group, and dead letters."""
    sent_per_second: float
    oldest_age: float
    """Seconds that the oldest unsent event has waited."""
    backlog: int


class Watch:
    def __init__(self, road: Postroad, interval: float = INTERVAL) -> None:
        self._road, self.interval = road, interval
        self.samples: deque[Sample] = deque(maxlen=_KEPT)
        self.trouble = ""
        self._latest: operations.Status | None = None
        self._looked_at = self._taken_at = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._took = 0.0
        self._turn = asyncio.Lock()

    async def status(self, *, fresh: bool = False) -> operations.Status:
        """At most one interval old, unless `fresh`."""
        self._looked_at = self._road.clock.monotonic()
        async with self._turn:
            if fresh or self._latest is None or self._looked_at - self._taken_at > self.interval:
                await self._take()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep_sampling())
        assert self._latest is not None
        return self._latest

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_sampling(self) -> None:
        clock = self._road.clock
        while clock.monotonic() - self._looked_at < _UNWATCHED:
            # A database with a long backlog takes its time to count; it has other work than us.
            await clock.sleep(max(self.interval, 5 * self._took))
            async with self._turn:
                try:
                    await self._take()
                    self.trouble = ""
                except PostroadError as error:
                    self.trouble = str(error)

    async def _take(self) -> None:
        road, began = self._road, self._road.clock.monotonic()
        status = await operations.status(road.store, road.outboxes, road.broker, groups=road.groups)
        sent = 0
        for outbox in road.outboxes:
            counted = await road.store.read("outbox_sent_count", outbox, seconds=self.interval, most=_MOST_COUNTED)
            sent += int(counted.rows[0].events)
        self._latest, self._taken_at = status, road.clock.monotonic()
        self._took = self._taken_at - began
        self.samples.append(_sample(status, road.clock.now().timestamp(), sent / self.interval))


def _sample(status: operations.Status, at: float, rate: float) -> Sample:
    outboxes, groups = status.outboxes, status.groups
    return Sample(
        at=at,
        waiting=sum(one.waiting for one in outboxes),
        failing=sum(one.parked + one.retrying for one in outboxes)
        + sum(one.failed + one.waiting + (one.dead_letters or 0) for one in groups),
        sent_per_second=rate,
        oldest_age=max((one.oldest_unsent_age or 0.0 for one in outboxes), default=0.0),
        backlog=sum(one.backlog or 0 for one in groups),
    )
