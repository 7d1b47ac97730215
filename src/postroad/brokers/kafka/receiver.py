"""The consumer's side: deliveries in their keys' order, and the verdicts on them."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from itertools import count
from typing import Any, Final, TypeVar

from postroad.brokers.base import Flow
from postroad.brokers.kafka.address import Address
from postroad.brokers.kafka.consumer import Consumer, Event
from postroad.brokers.kafka.lanes import Entry, Lanes
from postroad.brokers.kafka.partition import Arrival, Gone
from postroad.clock import Clock
from postroad.errors import BrokerError

_LONGEST_WAIT: Final = 10 * 365 * 86_400.0
T = TypeVar("T")

Bury = Callable[["KafkaDelivery", str], Awaitable[None]]
"""Returns when Kafka has confirmed the copy among the dead letters."""


class KafkaDelivery:
    __slots__ = ("_decided", "_entry", "_receiver", "arrival")

    attempt: Final = 1
    """Kafka counts no deliveries: the inbox does."""

    def __init__(self, receiver: "KafkaReceiver", entry: Entry) -> None:
        self._receiver, self._entry, self.arrival = receiver, entry, entry.arrival
        self._decided = False

    @property
    def topic(self) -> str:
        return self._receiver.topic

    @property
    def subscription(self) -> str:
        return self._receiver.subscription

    @property
    def key(self) -> str:
        return self.arrival.key

    @property
    def attributes(self) -> Mapping[str, str]:
        return self.arrival.attributes

    @property
    def data(self) -> bytes:
        return self.arrival.data

    async def ack(self) -> None:
        await self._decide(self._receiver.acknowledge)

    async def retry(self, after: float) -> None:
        await self._decide(self._receiver.give_back, min(max(0.0, after), _LONGEST_WAIT))

    async def dead(self, reason: str) -> None:
        await self._decide(self._receiver.bury, self, reason)

    async def _decide(self, verdict: Callable[..., Coroutine[Any, Any, None]], *arguments: object) -> None:
        if self._decided:
            return
        self._decided = True
        try:
            await verdict(self._entry, *arguments)
        except BaseException:
            self._decided = False  # it is still in hand: the verdict may be repeated
            raise


class KafkaReceiver:
    def __init__(self, address: Address, subscription: str, flow: Flow, clock: Clock, bury: Bury) -> None:
        self.topic, self.subscription = subscription.rpartition(".")[0], subscription
        self.closed = False
        self._flow, self._clock, self._bury = flow, clock, bury
        self._lanes, self._places = Lanes(), count()
        self._messages = self._bytes = 0
        """In the consumer's hand."""
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        self._told: deque[Event] = deque()
        self._ringing = False
        # As much again as may be in hand: what waits its turn, or for another try of its key.
        self._consumer = Consumer(address, subscription, self.topic, 2 * flow.bytes, self._tell)
        self._consumer.start()

    # -- from the consumer's thread ----------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        self._told.append(event)
        if not self._ringing:
            self._ringing = True
            try:
                self._loop.call_soon_threadsafe(self._heard)
            except RuntimeError:
                pass  # the loop that was receiving has ended

    def _heard(self) -> None:
        self._ringing = False
        self._wake.set()

    # -- receiving ---------------------------------------------------------------------------------------

    async def receive(self) -> Sequence[KafkaDelivery]:
        # Verdicts may return at once and so may this: without a pause here, nobody else would have a turn.
        await asyncio.sleep(0)
        while not self.closed:
            self._wake.clear()
            self._listen()
            if deliveries := self._hand_out():
                return deliveries
            await self._doze()
        raise BrokerError(f"The receiver of {self.subscription!r} is closed. Subscribe again.")

    def _listen(self) -> None:
        trouble: BrokerError | None = None
        while self._told:
            match self._told.popleft():
                case Arrival() as arrival:
                    trouble = None
                    self._sort_in(arrival)
                case Gone():
                    self._forget()
                case error:
                    trouble = error
        if trouble is not None:
            # Once, however often it was told: whoever hears of it waits, and what is told meanwhile waits too.
            raise trouble

    def _sort_in(self, arrival: Arrival) -> None:
        if arrival.recipient not in ("", self.subscription):
            self._consumer.settle(arrival)  # revived, and for another subscription
            return
        place = next(self._places)
        # One without a key is alone in its lane.
        key = (arrival.attributes.get("aggregate_type"), arrival.key) if arrival.key else (None, place)
        self._lanes.arrive(Entry(key, arrival, place))

    def _forget(self) -> None:
        for entry in self._lanes.forget(lambda entry: not entry.arrival.partition.alive):
            self._release(entry)

    def _hand_out(self) -> list[KafkaDelivery]:
        handed = []
        for entry in self._lanes.ready(self._clock.monotonic()):
            size = entry.arrival.size
            if self._messages and (self._messages >= self._flow.messages or self._bytes + size > self._flow.bytes):
                break
            handed.append(entry)
            self._messages += 1
            self._bytes += size
        for entry in handed:
            self._lanes.hand_out(entry)
        return [KafkaDelivery(self, entry) for entry in handed]

    async def _doze(self) -> None:
        now = self._clock.monotonic()
        until = self._lanes.next_due(now)
        if until is None:
            await self._wake.wait()
            return
        try:
            await self._clock.wait_for(self._wake.wait(), until - now)
        except TimeoutError:
            pass  # time itself has made something ready

    # -- verdicts ----------------------------------------------------------------------------------------

    async def acknowledge(self, entry: Entry) -> None:
        if self._holds(entry) and self._consumer.settle(entry.arrival):
            self._release(entry)
            self._lanes.settle(entry)
            self._wake.set()

    async def give_back(self, entry: Entry, after: float) -> None:
        """It waits here, however long: its offset is not committed, so it keeps its place even if we die."""
        if self._holds(entry):
            self._release(entry)
            self._lanes.give_back(entry, self._clock.monotonic() + after)
            self._wake.set()

    async def bury(self, entry: Entry, delivery: KafkaDelivery, reason: str) -> None:
        if self._holds(entry):
            await self._bury(delivery, reason)
            await self.acknowledge(entry)

    def _holds(self, entry: Entry) -> bool:
        """Not if its partition has gone to another; we may not have heard of that yet."""
        return not self.closed and self._consumer.is_ours(entry.arrival) and self._lanes.is_in_hand(entry)

    def _release(self, entry: Entry) -> None:
        self._messages -= 1
        self._bytes -= entry.arrival.size

    # -- for those who look after it ---------------------------------------------------------------------

    async def identity(self) -> str:
        return str(await self._run(self._consumer.identity))

    def positions(self) -> dict[int, int]:
        return self._consumer.positions()

    async def set_back(self, targets: Mapping[int, int]) -> int:
        return await self._run(lambda: self._consumer.set_back(targets))

    async def _run(self, errand: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self._consumer.run(errand))

    async def aclose(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._wake.set()
        self._consumer.stop()
        await asyncio.to_thread(self._consumer.join)
