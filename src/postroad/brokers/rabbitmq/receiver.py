"""The consumer's side: deliveries in their keys' order, and the verdicts on them."""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Any, Final, Protocol
from uuid import uuid4

from postroad.brokers._thread import LoopThread
from postroad.brokers.base import Flow
from postroad.brokers.rabbitmq.consumer import Arrival, Consumer, Event, Interrupted
from postroad.brokers.rabbitmq.lanes import Entry, Lanes
from postroad.clock import Clock
from postroad.errors import BrokerError
from postroad.message import parse_rfc3339

_LONGEST_WAIT: Final = 10 * 365 * 86_400.0
_CERTAINLY_LOST: Final = 60.0
"""Seconds by which clocks may differ, or a message may be late that comes from a delay queue."""
_WITH_ANOTHER: Final = 10.0
"""Seconds after which a message that has not come back to us has gone to another consumer, if there may be others."""
_LONG: Final = 60.0
"""Seconds; what waits longer behind another waits elsewhere too."""
_ANOTHER_TRY: Final = 5.0
"""Seconds after which it is tried again to send away what could not be sent."""
_TOGETHER: Final = 0.005
"""Seconds that an acknowledgement may wait for others."""

log = logging.getLogger("postroad.rabbitmq")


class Elsewhere(Protocol):
    """Where copies of a delivery go; each returns when RabbitMQ has confirmed the copy."""

    async def put_off(self, delivery: "RabbitDelivery", wait: float, ticket: str) -> None: ...

    async def bury(self, delivery: "RabbitDelivery", reason: str) -> None: ...


class RabbitDelivery:
    __slots__ = ("_decided", "_receiver", "arrival", "entry")

    attempt: Final = 1
    """RabbitMQ keeps no count that survives a retry: the inbox counts."""

    def __init__(self, receiver: "RabbitReceiver", entry: Entry, arrival: Arrival) -> None:
        self._receiver, self.entry, self.arrival = receiver, entry, arrival
        self._decided = False

    @property
    def topic(self) -> str:
        return self._receiver.topic

    @property
    def subscription(self) -> str:
        return self._receiver.subscription

    @property
    def queue(self) -> str:
        return self._receiver.consumer.queue if self._receiver.consumer else self.subscription

    @property
    def key(self) -> str:
        return key_of(self.arrival.attributes)

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
        await self._decide(self._receiver.bury, reason.encode(errors="replace").decode())

    async def _decide(self, verdict: Callable[..., Coroutine[Any, Any, None]], *arguments: object) -> None:
        if self._decided:
            return
        self._decided = True
        try:
            await verdict(self, *arguments)
        except BaseException:
            self._decided = False  # it is still in hand: the verdict may be repeated
            raise


@dataclass(frozen=True, slots=True)
class Terms:
    topic: str
    subscription: str
    flow: Flow
    prefetch: int
    """What the server hands over at once."""
    shortest: float
    """Seconds; what waits less waits here."""
    exclusive: bool
    """Nobody else receives from this subscription at the same time."""


class RabbitReceiver:
    def __init__(self, thread: LoopThread, clock: Clock, elsewhere: Elsewhere, terms: Terms) -> None:
        self.topic, self.subscription = terms.topic, terms.subscription
        self.consumer: Consumer | None = None
        self.closed = False
        self._thread, self._clock, self._elsewhere, self._terms = thread, clock, elsewhere, terms
        self._lanes = Lanes()
        self._last_arrival = self._now()
        self._name, self._numbers = uuid4().hex, count()
        self._bytes = self._messages = 0
        """In the consumer's hand."""
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._told: deque[Event] = deque()
        self._given_up = 0
        """The generation of the last channel that was lost or left."""
        self._ringing = False
        self._settled: deque[tuple[int, int]] = deque()
        self._errands: set[asyncio.Task[None]] = set()
        self._no_errands_before = -math.inf
        self._trouble = ""
        """Why nothing could be sent away when it was last tried."""

    # -- from the connections' thread --------------------------------------------------------------------

    def tell(self, event: Event) -> None:
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

    async def receive(self) -> Sequence[RabbitDelivery]:
        # Verdicts may return at once and so may this: without a pause here, nobody else would have a turn.
        await asyncio.sleep(0)
        while not self.closed:
            self._wake.clear()
            self._listen()
            self._give_up_what_is_lost()
            self._make_room()
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
                    if arrival.generation > self._given_up:
                        # Else its channel would not close in time, and still delivers what will come again.
                        self._sort_in(arrival)
                case Interrupted(generation):
                    self._given_up = generation
                    self._lanes.forget_what_is_here()
                    self._bytes = self._messages = 0
                case error:
                    trouble = error
        if trouble is not None:
            # Once, however often it was told: whoever hears of it waits, and what is told meanwhile waits too.
            raise trouble

    def _sort_in(self, arrival: Arrival) -> None:
        ticket = arrival.ticket or f"{self._name}-{next(self._numbers)}"
        # One without a key is alone in its lane, and comes back to it by its ticket.
        ordering_key = key_of(arrival.attributes)
        key = (arrival.attributes.get("aggregate_type"), ordering_key) if ordering_key else (None, ticket)
        self._last_arrival = self._now()
        if self._terms.exclusive and arrival.published and not (arrival.ticket or arrival.redelivered):
            # Queues keep their order: what was due long before this was published has come by now, or never will.
            self._give_up(min(self._moment(arrival.published), self._now()) - _CERTAINLY_LOST)
        size = len(arrival.data) + sum(len(name) + len(value) for name, value in arrival.attributes.items())
        self._lanes.arrive(Entry(key, ticket, _version(arrival), size, self._due(arrival), arrival))

    def _give_up_what_is_lost(self) -> None:
        """So that nothing waits for ever for a message that somebody has removed, or that another consumer has."""
        if (moment := self._moment_of_loss()) is not None and moment <= self._now():
            self._give_up(self._now() - (_CERTAINLY_LOST if self._terms.exclusive else _WITH_ANOTHER))

    def _moment_of_loss(self) -> float | None:
        """When what is away counts as lost. The server hands over all it has while there is room: if nothing has come
        for long, there is nothing."""
        if not self._terms.exclusive:
            return self._lanes.earliest_away + _WITH_ANOTHER
        if self._lanes.here >= self._terms.prefetch:
            return None
        return max(self._lanes.earliest_away, self._last_arrival) + _CERTAINLY_LOST

    def _give_up(self, due_before: float) -> None:
        for entry in self._lanes.overdue(due_before):
            if self._terms.exclusive:
                log.warning("a message of %r did not come back from its delay: its key goes on", entry.key)

    def _hand_out(self) -> list[RabbitDelivery]:
        handed = []
        for entry in self._lanes.ready(self._now()):
            room = self._messages < self._terms.flow.messages and self._bytes + entry.size <= self._terms.flow.bytes
            assert entry.arrival is not None
            if (self._messages and not room) or not self._is_current(entry.arrival):
                # Of a channel that is lost, an earlier one may have been given back in vain: this would go first.
                break
            handed.append(RabbitDelivery(self, entry, entry.arrival))
            self._messages += 1
            self._bytes += entry.size
        for delivery in handed:
            self._lanes.hand_out(delivery.entry)
        return handed

    async def _doze(self) -> None:
        now = self._now()
        moments = [
            self._lanes.next_due(now),
            self._moment_of_loss() if self._lanes.here else None,
            self._no_errands_before if self._no_errands_before > now else None,
        ]
        until = min((moment for moment in moments if moment is not None), default=math.inf)
        if until == math.inf:
            await self._wake.wait()
            return
        try:
            await self._clock.wait_for(self._wake.wait(), max(0.0, until - now))
        except TimeoutError:
            pass  # time itself has made something ready

    def _now(self) -> float:
        # Nobody sets this one: a correction of the wall clock would let all that waits go at once, or wait for hours.
        return self._clock.monotonic()

    def _moment(self, told: datetime) -> float:
        """By our clock, of what somebody has told by his."""
        return self._now() + (told - self._clock.now()).total_seconds()

    def _due(self, arrival: Arrival) -> float:
        """When it may be handed out: after what is left of its wait, or at the time its sender wished for."""
        try:
            if arrival.left:
                return self._now() + float(arrival.left)
            if wished := arrival.attributes.get("deliver_at"):
                return self._moment(parse_rfc3339(wished))
        except ValueError:
            pass  # not ours: no reason to keep it
        return 0.0

    # -- verdicts ----------------------------------------------------------------------------------------

    async def acknowledge(self, delivery: RabbitDelivery) -> None:
        if self._holds(delivery):
            self._settle(delivery)
            self._lanes.remove(delivery.entry)

    async def give_back(self, delivery: RabbitDelivery, after: float) -> None:
        if not self._holds(delivery):
            return
        entry, due = delivery.entry, self._now() + after
        if after >= self._terms.shortest and not self._lanes.is_behind_another(entry):
            self._depart(entry, due)
            await self._send_away(delivery)
            return
        # Short waits, and those behind another, are waited out here: unacknowledged, so that a crash keeps the order.
        self._release(entry)
        self._lanes.give_back(entry, due)
        self._make_room()
        self._wake.set()

    async def bury(self, delivery: RabbitDelivery, reason: str) -> None:
        if not self._holds(delivery):
            return
        try:
            await self._elsewhere.bury(delivery, reason)
        except BrokerError as error:
            if self._holds(delivery):
                # Its verdict is known, so it is not handed out again; and it must not keep a place from the others:
                # where nothing can be published because the queues are full, only handling more of them helps.
                self._postpone(error)
                self._release(delivery.entry)
                self._run_errand(self._bury_later(delivery, reason))
            return
        await self.acknowledge(delivery)

    async def _bury_later(self, delivery: RabbitDelivery, reason: str) -> None:
        while True:
            await self._clock.sleep(_ANOTHER_TRY)
            if not self._holds(delivery):
                return
            try:
                await self._elsewhere.bury(delivery, reason)
                break
            except BrokerError as error:
                self._postpone(error)
        if self._holds(delivery):
            self._lanes.remove(delivery.entry)
            self._acknowledge_later(delivery.arrival)
            self._wake.set()

    def _holds(self, delivery: RabbitDelivery) -> bool:
        """Not if the server has taken it back with the channel, or we have."""
        entry = delivery.entry
        return (
            not self.closed
            and entry.in_hand
            and entry.arrival is delivery.arrival
            and self._is_current(delivery.arrival)
        )

    def _is_current(self, arrival: Arrival) -> bool:
        # An interruption may have been told and not yet heard.
        return self.consumer is not None and arrival.generation == self.consumer.generation

    def _depart(self, entry: Entry, due: float) -> None:
        """Its place is kept. Beforehand, because it may be back before we hear that it arrived elsewhere."""
        if entry.in_hand:
            self._release(entry)
        entry.due = due
        self._lanes.leave(entry)

    async def _send_away(self, delivery: RabbitDelivery) -> None:
        """To a delay queue and, once it is there, out of this one. In between it may be in both, never in none. If it
        cannot be sent, it waits here."""
        entry = delivery.entry
        try:
            await self._elsewhere.put_off(delivery, entry.due - self._now(), entry.ticket)
            self._trouble = ""
        except BaseException as error:
            if entry.arrival is None:
                self._keep(delivery)
            if not isinstance(error, BrokerError):
                raise
            if entry.arrival is delivery.arrival or not self._is_current(delivery.arrival):
                self._postpone(error)
                return
            # No answer came, but the message did: it has been there and is back.
        self._acknowledge_later(delivery.arrival)
        self._wake.set()

    def _keep(self, delivery: RabbitDelivery) -> None:
        """It could not be sent away."""
        if self._is_current(delivery.arrival):
            self._lanes.come_back(delivery.entry, delivery.arrival)
        else:
            self._lanes.remove(delivery.entry)  # the server will deliver it again

    def _postpone(self, error: BrokerError) -> None:
        """Not at once again, and not without a word."""
        self._no_errands_before = self._now() + _ANOTHER_TRY
        self._wake.set()
        if self._trouble != str(error):
            self._trouble = str(error)
            log.warning("%s keeps what it cannot send away: %s", self.subscription, error)

    def _settle(self, delivery: RabbitDelivery) -> None:
        self._release(delivery.entry)
        self._acknowledge_later(delivery.arrival)
        self._wake.set()

    def _release(self, entry: Entry) -> None:
        self._messages -= 1
        self._bytes -= entry.size

    def _acknowledge_later(self, arrival: Arrival) -> None:
        """Several go over to the other thread together: a visit there costs more than an acknowledgement.
        Never so many that the server would wait for them."""
        self._settled.append((arrival.generation, arrival.tag))
        if len(self._settled) >= self._terms.prefetch // 4:
            self._pass_on()
        elif len(self._settled) == 1:
            self._loop.call_later(_TOGETHER, self._pass_on)

    def _pass_on(self) -> None:
        if self._settled and self.consumer is not None:
            verdicts, self._settled = self._settled, deque()
            self._thread.post(self.consumer.settle, verdicts)

    # -- room for other keys -----------------------------------------------------------------------------

    def _make_room(self) -> None:
        """The server hands over only so many at a time. What must wait long waits elsewhere; and so does what waits
        behind it, if that is more than half of what may be here, or would be here for so long that the server took it
        for forgotten and closed the channel."""
        now = self._now()
        if now < self._no_errands_before:
            return
        waits = self._lanes.idle(now, self._terms.shortest)
        idle, spare = list(waits), max(0, len(waits) - self._terms.prefetch // 2)
        excess = idle[:spare] + [entry for entry in idle[spare:] if waits[entry] > now + _LONG]
        for entry in {id(entry): entry for entry in (*self._lanes.far(now, self._terms.shortest), *excess)}.values():
            assert entry.arrival is not None
            delivery = RabbitDelivery(self, entry, entry.arrival)
            self._depart(entry, max(waits[entry], now + self._terms.shortest))
            self._run_errand(self._send_away(delivery))

    def _run_errand(self, errand: Coroutine[Any, Any, None]) -> None:
        """Something that keeps nobody waiting."""
        task = asyncio.get_running_loop().create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    # -- the end -----------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._wake.set()
        for task in self._errands:
            task.cancel()
        if self._errands:
            await asyncio.wait(self._errands)
        self._pass_on()
        if self.consumer is not None and self._thread.started:
            await self._thread.run(self.consumer.aclose)

    # -- for those who count -----------------------------------------------------------------------------

    def unsettled(self) -> tuple[int, int, datetime | None]:
        """How many are here, how many away, and when the oldest of those here was published."""
        # A copy, because the connections' thread goes on telling.
        arrived = [event for event in tuple(self._told) if isinstance(event, Arrival)]
        held = [entry.arrival.published for entry in self._lanes.held() if entry.arrival is not None]
        known = [published for published in (*held, *(a.published for a in arrived)) if published is not None]
        return self._lanes.here + len(arrived), self._lanes.away, min(known, default=None)


def key_of(attributes: Mapping[str, str]) -> str:
    """The ordering key; a delayed message has none."""
    return "" if "deliver_at" in attributes else attributes.get("aggregate_id", "")


def _version(arrival: Arrival) -> int:
    text = arrival.attributes.get("version", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0
