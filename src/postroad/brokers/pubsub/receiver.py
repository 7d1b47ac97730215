"""The consumer's side: deliveries in their keys' order, and the verdicts on them."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol

from postroad.brokers._thread import LoopThread
from postroad.brokers.base import Flow
from postroad.brokers.pubsub.consumer import Arrival, Consumer
from postroad.brokers.pubsub.lanes import Entry, Lanes
from postroad.clock import Clock
from postroad.errors import BrokerError

_LONGEST_WAIT: Final = 10 * 365 * 86_400.0
_BEHIND: Final = 10
"""How many times the flow's messages may be here, if most wait behind a retry of their key."""
_AHEAD: Final = 2
"""How many times the flow's bytes."""


class Graves(Protocol):
    async def bury(self, delivery: "PubSubDelivery", reason: str) -> None:
        """Returns when Pub/Sub has it."""


class PubSubDelivery:
    __slots__ = ("_decided", "_receiver", "arrival", "entry")

    attempt: Final = 1
    """Pub/Sub counts only deliveries of its own, and not the retries that wait here: the inbox counts."""

    def __init__(self, receiver: "PubSubReceiver", entry: Entry) -> None:
        self._receiver, self.entry, self.arrival = receiver, entry, entry.arrival
        self._decided = False

    @property
    def message_id(self) -> str:
        return self.arrival.id

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
        await self._decide(self._receiver.bury, reason)

    async def _decide(self, verdict: Callable[..., Coroutine[Any, Any, None]], *arguments: object) -> None:
        if self._decided:
            return
        self._decided = True
        try:
            await verdict(self, *arguments)
        except BaseException:
            self._decided = False  # it is still in hand: the verdict may be repeated
            raise


class PubSubReceiver:
    def __init__(
        self, thread: LoopThread, clock: Clock, graves: Graves, topic: str, subscription: str, flow: Flow
    ) -> None:
        self.topic, self.subscription = topic, subscription
        self.consumer: Consumer | None = None
        self.closed = False
        self._thread, self._clock, self._graves, self._flow = thread, clock, graves, flow
        self._lanes = Lanes()
        self._messages = self._bytes = 0
        """In the consumer's hand."""
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._told: deque[Sequence[Arrival]] = deque()
        self._settled: list[str] = []
        self._paused = False

    @property
    def most(self) -> Flow:
        """What may be here, with all that waits for a retry."""
        return Flow(messages=_BEHIND * self._flow.messages, bytes=_AHEAD * self._flow.bytes)

    # -- from the connection's thread --------------------------------------------------------------------

    def tell(self, arrivals: Sequence[Arrival]) -> None:
        self._told.append(arrivals)
        try:
            self._loop.call_soon_threadsafe(self._heard)
        except RuntimeError:
            pass  # the loop that was receiving has ended

    def _heard(self) -> None:
        self._listen()
        self._wake.set()

    # -- receiving ---------------------------------------------------------------------------------------

    async def receive(self) -> Sequence[PubSubDelivery]:
        # Verdicts return at once and so may this: without a pause here, nobody else would have a turn.
        await asyncio.sleep(0)
        while not self.closed:
            self._wake.clear()
            self._listen()
            if deliveries := self._hand_out():
                return deliveries
            await self._doze()
        raise BrokerError(f"The receiver of {self.subscription!r} is closed. Subscribe again.")

    def _listen(self) -> None:
        while self._told:
            for arrival in self._told.popleft():
                # Without a key it follows nobody.
                key = arrival.key or arrival.id, bool(arrival.key)
                size = len(arrival.data) + sum(map(len, arrival.attributes.values()))
                self._lanes.arrive(Entry(key, arrival, size))
        self._regulate()

    def _hand_out(self) -> list[PubSubDelivery]:
        deliveries = []
        for entry in self._lanes.ready(self._clock.monotonic()):
            full = self._messages >= self._flow.messages or self._bytes + entry.size > self._flow.bytes
            if full and self._messages:
                break
            self._lanes.hand_out(entry)
            self._messages += 1
            self._bytes += entry.size
            deliveries.append(PubSubDelivery(self, entry))
        return deliveries

    async def _doze(self) -> None:
        now = self._clock.monotonic()
        due = self._lanes.next_due(now)
        if due is None:
            await self._wake.wait()
            return
        try:
            await self._clock.wait_for(self._wake.wait(), due - now)
        except TimeoutError:
            pass  # time itself has made something ready

    def _regulate(self) -> None:
        """The server would hand over all it has. What waits for a retry of its key must not keep out other keys."""
        crowded = self._lanes.bytes >= self.most.bytes or self._lanes.here >= self.most.messages
        if not crowded and self._lanes.here >= self._flow.messages:
            crowded = self._lanes.here - self._lanes.waiting(self._clock.monotonic()) >= self._flow.messages
        if crowded != self._paused and self.consumer is not None:
            self._paused = crowded
            self._thread.post(self.consumer.pause if crowded else self.consumer.resume)

    # -- verdicts ----------------------------------------------------------------------------------------

    async def acknowledge(self, delivery: PubSubDelivery) -> None:
        if not self._holds(delivery):
            return
        self._release(delivery.entry)
        self._lanes.remove(delivery.entry)
        self._regulate()
        self._settled.append(delivery.arrival.id)
        if len(self._settled) == 1:
            # Several go over to the other thread together: a visit there costs more than an acknowledgement.
            self._loop.call_soon(self._pass_on)
        self._wake.set()

    async def give_back(self, delivery: PubSubDelivery, after: float) -> None:
        """It waits here, its lease extended: so nothing of its key goes past it, and a crash keeps the order."""
        if not self._holds(delivery):
            return
        self._release(delivery.entry)
        self._lanes.give_back(delivery.entry, self._clock.monotonic() + after)
        self._regulate()
        self._wake.set()

    async def bury(self, delivery: PubSubDelivery, reason: str) -> None:
        """First there, then gone from here: in between it is in both, never in none."""
        if self._holds(delivery):
            await self._graves.bury(delivery, reason)
            await self.acknowledge(delivery)

    def _holds(self, delivery: PubSubDelivery) -> bool:
        return not self.closed and delivery.entry.in_hand

    def _release(self, entry: Entry) -> None:
        self._messages -= 1
        self._bytes -= entry.size

    def _pass_on(self) -> None:
        if self._settled and self.consumer is not None:
            settled, self._settled = self._settled, []
            self._thread.post(self.consumer.settle, settled)

    # -- the end -----------------------------------------------------------------------------------------

    async def everything_settled(self) -> None:
        """Waits until every verdict so far has arrived."""
        self._pass_on()
        if self.consumer is not None and not self.closed:
            await self._thread.run(self.consumer.everything_settled)

    async def aclose(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._wake.set()
        self._pass_on()
        if self.consumer is not None and self._thread.started:
            await self._thread.run(self.consumer.aclose)
