"""One consumer group at work: receive, sort into lanes, hand out, and give back what is not finished."""

import asyncio
import logging
import random
from collections.abc import Collection, Hashable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from postroad.brokers.base import Broker, Delivery, Receiver
from postroad.clock import Clock, SystemClock
from postroad.codec.upcast import Upcasters
from postroad.errors import BrokerUnavailable, PostroadError, StoreError
from postroad.handlers import Registry
from postroad.inbox import Inbox
from postroad.retry import describe
from postroad.subscriber.handling import Handling, Tell
from postroad.subscriber.intake import Foreign, Intake, Item
from postroad.subscriber.lanes import Lanes
from postroad.subscriber.options import Statistics, SubscriberOptions
from postroad.subscriber.report import Occasionally
from postroad.telemetry import tracing
from postroad.telemetry.lag import VersionLag
from postroad.telemetry.meter import Meter

_SHORTEST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 1.0
_AFTER_A_SURPRISE: Final = 30.0
_log = logging.getLogger("postroad")


class Subscriber:
    def __init__(
        self,
        broker: Broker,
        inbox: Inbox,
        registry: Registry,
        upcasters: Upcasters,
        group: str,
        *,
        options: SubscriberOptions | None = None,
        clock: Clock | None = None,
        randomness: random.Random | None = None,
        road: object = None,
        meter: Meter | None = None,
    ) -> None:
        self.group, self.options = group, options or SubscriberOptions()
        self.topics = registry.topics(group)
        self._broker, self._clock = broker, clock or SystemClock()
        self.began_at = self._clock.now()
        self._intake = Intake(inbox, registry, upcasters, group, self._clock)
        self._handling = Handling(
            inbox,
            group,
            self.options,
            self._clock,
            randomness or random.SystemRandom(),
            road,
            broker.features.keeps_place,
            meter,
        )
        # With one writer at a time, more would only wait for its lock.
        self._slots = 1 if inbox.store.one_writer else self.options.concurrency
        self._lanes: Lanes[Item] = Lanes()
        self._working: dict[asyncio.Task[None], float] = {}
        """With the moment at which each began."""
        self._receivers: list[Receiver] = []
        self._occasionally = Occasionally(self._clock)

    @property
    def statistics(self) -> Statistics:
        return self._handling.statistics

    @property
    def canaries(self) -> Mapping[tuple[str, str], datetime]:
        """By topic and source: when the newest that has arrived was written."""
        return self._handling.canaries

    @property
    def lanes(self) -> Lanes[Item]:
        return self._lanes

    @property
    def running_for(self) -> float:
        """How many seconds the longest of what runs has taken so far."""
        now = self._clock.monotonic()
        return now - min(self._working.values(), default=now)

    @property
    def lag(self) -> VersionLag:
        return self._handling.lag

    def tell(self, handled: Tell) -> None:
        """Whom to tell of each event that was handled."""
        self._handling.tell = handled

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event | None = None) -> None:
        """Until `stop` is set; then what runs may finish, and the rest goes back to the broker.

        What runs has the grace to finish; with `hurry`, for a pause, as long as it takes until that is set.
        """
        stopping = asyncio.create_task(stop.wait())
        receiving = [asyncio.create_task(self._receive(topic)) for topic in self.topics]
        try:
            ended, _ = await asyncio.wait({stopping, *receiving}, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            await _cancel([stopping, *receiving])
            if hurry is not None and stop.is_set() and not hurry.is_set():
                await self._rest(hurry)
            await self._drain()
            for receiver in self._receivers:
                await receiver.aclose()
            self._receivers.clear()

    async def handle(self, deliveries: Sequence[Delivery]) -> None:
        """Settles some deliveries; returns when nothing is left to do."""
        await self._intake.prepare()
        self._accept(deliveries)
        while self._working:
            await asyncio.wait(self._working)

    # -- receiving ---------------------------------------------------------------------------------------

    async def _receive(self, topic: str) -> None:
        receiver: Receiver | None = None
        pause = _SHORTEST_PAUSE
        while True:
            try:
                await self._intake.prepare()
                receiver = receiver or await self._subscribe(topic)
                self._accept(await receiver.receive())
                pause = _SHORTEST_PAUSE
            except (BrokerUnavailable, StoreError) as error:
                # Whatever the database says: the messages are still there, and giving up would help nobody.
                if self._occasionally(topic):
                    told = error if isinstance(error, PostroadError) else describe(error)
                    _log.warning("group %s cannot receive from %s: %s", self.group, topic, told)
                await self._clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def _subscribe(self, topic: str) -> Receiver:
        receiver = await self._broker.subscribe(f"{topic}.{self.group}", self.options.flow)
        self._receivers.append(receiver)
        return receiver

    # -- working -----------------------------------------------------------------------------------------

    def _accept(self, deliveries: Sequence[Delivery]) -> None:
        items = [self._intake.read(delivery) for delivery in deliveries]
        if items and tracing.tracer() is not None:
            messages = [item.message for item in items if not isinstance(item, Foreign) and item.message]
            tracing.received(deliveries[0].subscription, messages)
        for item in items:
            self._lanes.put(item)
        self._hand_out()

    def _hand_out(self) -> None:
        while len(self._working) < self._slots and (items := self._lanes.take()):
            task = asyncio.create_task(self._work(items))
            self._working[task] = self._clock.monotonic()
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        del self._working[task]
        self._hand_out()

    async def _work(self, items: Sequence[Item]) -> None:
        try:
            for lane, wait in (await self._settle(items)).items():
                # What waits behind something that went back must go back too, or it would be handled first: also what
                # comes in the meantime, handed out before the broker heard of it.
                while behind := self._lanes.drop(lane):
                    await self._handling.give_all_back(behind, wait)
        finally:
            for lane in dict.fromkeys(item.lane for item in items):
                self._lanes.done(lane)

    async def _settle(self, items: Sequence[Item]) -> dict[Hashable, float]:
        try:
            return await self._handling.handle(items)
        except Exception as error:
            if self._occasionally(describe(error)):
                _log.exception("group %s could not settle %d deliveries", self.group, len(items))
            wait = min(_AFTER_A_SURPRISE, self._handling.longest_unrecorded)
            # Those that have their verdict already are not touched by a second one.
            await self._handling.give_all_back(items, wait)
            return {item.lane: wait for item in items}

    async def _rest(self, hurry: asyncio.Event) -> None:
        """What waits here is not given back one by one, for that counts as an attempt where the broker counts them:
        the receivers, which are closed next, give it back as if it had never been taken."""
        self._lanes.drop_all()
        hurrying = asyncio.create_task(hurry.wait())
        while self._working and not hurry.is_set():
            await asyncio.wait({hurrying, *self._working}, return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()

    async def _drain(self) -> None:
        returning = asyncio.create_task(self._handling.give_all_back(self._lanes.drop_all(), 0.0))
        ending = {returning, *self._working}
        try:
            await self._clock.wait_for(asyncio.wait(ending), self.options.grace)
        except TimeoutError:
            # Rolled back, or out of the broker's reach; the receiver, which is closed next, gives them back.
            await _cancel(ending)


async def _cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
