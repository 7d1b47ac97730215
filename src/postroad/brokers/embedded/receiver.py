"""The consumer's side: deliveries, their verdicts, and waiting for more."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from postroad.brokers.base import Flow
from postroad.brokers.embedded.database import Database, micros, nobody, of_subscriptions
from postroad.brokers.embedded.handout import Room, Taken, anything, register, take
from postroad.brokers.embedded.leases import Leases
from postroad.brokers.embedded.publish import read_attributes
from postroad.brokers.embedded.settle import Verdict, release, settle
from postroad.brokers.embedded.structure import Found
from postroad.errors import BrokerError, BrokerUnavailable
from postroad.retry import Ack, Dead, Decision, Retry

_LONGEST_WAIT: Final = 10 * 365 * 86_400.0


class Settler:
    """Puts the verdicts of one loop turn into one transaction, those that come meanwhile into another."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[tuple[Verdict, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    def settle(self, verdict: Verdict) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        settled: asyncio.Future[None] = loop.create_future()
        self._waiting.append((verdict, settled))
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            self._task = loop.create_task(self._drain())
        return settled

    async def aclose(self) -> None:
        # A task of an event loop that has ended will never end itself.
        if self._task and self._task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait((self._task,))

    async def _drain(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            failure: Exception | None = None
            try:
                verdicts = [verdict for verdict, _ in batch]
                concerned = of_subscriptions({verdict.subscription for verdict in verdicts})
                await self._database.write(partial(settle, verdicts=verdicts), durable=False, wakes=concerned)
            except Exception as error:
                failure = error
            for _, settled in batch:
                if settled.done():  # whoever asked has been cancelled; the verdict was given all the same
                    continue
                if failure:
                    settled.set_exception(failure)
                else:
                    settled.set_result(None)


class EmbeddedDelivery:
    __slots__ = ("_decided", "_receiver", "attempt", "attributes", "data", "holder", "key", "message", "size")

    def __init__(self, receiver: "EmbeddedReceiver", holder: int, taken: Taken) -> None:
        self._receiver = receiver
        self._decided = False
        self.holder, self.message, self.size = holder, taken.message, taken.size
        self.key, self.attempt, self.data = taken.key, taken.attempt, taken.data
        self.attributes: Mapping[str, str] = read_attributes(taken.attributes)

    @property
    def topic(self) -> str:
        return self._receiver.found.subscription.topic

    @property
    def subscription(self) -> str:
        return self._receiver.found.subscription.name

    async def ack(self) -> None:
        await self._decide(Ack(""))

    async def retry(self, after: float) -> None:
        await self._decide(Retry(min(max(0.0, after), _LONGEST_WAIT)))

    async def dead(self, reason: str) -> None:
        # Verdicts share a transaction: a text that cannot be stored would fail its neighbours too.
        await self._decide(Dead(reason.encode(errors="replace").decode()))

    async def _decide(self, decision: Decision) -> None:
        if self._decided:
            return
        self._decided = True
        try:
            await self._receiver.settle(self, decision)
        except BrokerError:
            self._decided = False  # nothing has happened: the verdict may be repeated
            raise


class EmbeddedReceiver:
    def __init__(self, database: Database, settler: Settler, leases: Leases, found: Found, flow: Flow) -> None:
        self.found = found
        self._wake = asyncio.Event()
        """Set whenever something may have become deliverable, or there is room again."""
        self._database, self._settler, self._leases = database, settler, leases
        self._flow = flow
        self._id = 0
        self._messages = self._bytes = 0
        self._fetching: asyncio.Task[tuple[list[EmbeddedDelivery], int | None]] | None = None
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    async def register(self) -> None:
        work = partial(register, subscription=self.found.id)
        self._become(await self._database.write(work, durable=False, wakes=nobody))
        self._database.listen(self._wake, self.found.topic, self.found.id)

    async def receive(self) -> Sequence[EmbeddedDelivery]:
        while not self._closed:
            wake_at = None
            if self._has_room():
                deliveries, wake_at = await self._fetched()
                if deliveries and not self._closed:
                    return deliveries
            else:
                self._wake.clear()
            if not self._closed:
                await self._doze(wake_at)
        raise BrokerError(f"The receiver of {self.found.subscription.name!r} is closed. Subscribe again.")

    async def settle(self, delivery: EmbeddedDelivery, decision: Decision) -> None:
        settled = self._settler.settle(
            Verdict(self.found.id, delivery.message, delivery.key, delivery.holder, delivery.attempt, decision)
        )
        settled.add_done_callback(partial(self._make_room, delivery))
        await settled

    async def aclose(self) -> None:
        if self._closed:
            return
        self._stop()
        if self._fetching:
            await asyncio.wait((self._fetching,))
        try:
            work = partial(release, holder=self._id, counted=False)
            await self._database.write(work, durable=False, wakes=of_subscriptions({self.found.id}))
        except BrokerUnavailable:
            pass  # nobody extends the lease any more, so it all goes back when that has run out

    def abandon(self) -> None:
        """Stop as a killed process stops: nothing is given back until the lease has run out. For tests."""
        self._stop()

    def _stop(self) -> None:
        self._closed = True
        self._database.listeners.pop(self._wake, None)
        self._leases.drop(self._id)
        self._wake.set()

    def _become(self, id: int) -> None:
        """A new identity: at first, and whenever the lease was lost and with it all that was held."""
        self._leases.drop(self._id)
        self._id = id
        self._messages = self._bytes = 0
        if not self._closed:
            self._leases.keep(id, self.found.subscription.ack_deadline)

    async def _fetched(self) -> tuple[list[EmbeddedDelivery], int | None]:
        if self._fetching is None:
            self._wake.clear()
            look = partial(anything, subscription=self.found.id, receiver=self._id)
            nothing = await self._database.read(look)
            if nothing is not None:
                return [], nothing.wake_at
            if self._closed:
                return [], None
        # A task of its own, because what it fetches is leased to us: if the caller is cancelled meanwhile,
        # the next call must return it.
        fetching = self._fetching = self._fetching or asyncio.create_task(self._fetch())
        await asyncio.wait((fetching,))
        self._fetching = None
        return fetching.result()

    async def _fetch(self) -> tuple[list[EmbeddedDelivery], int | None]:
        room = Room(
            messages=self._flow.messages - self._messages,
            bytes=self._flow.bytes - self._bytes,
            empty_handed=not self._messages,
        )
        work = partial(take, subscription=self.found.id, receiver=self._id, room=room)
        handed = await self._database.write(work, durable=False, wakes=nobody)
        if handed.receiver != self._id:
            self._become(handed.receiver)
        deliveries = [EmbeddedDelivery(self, self._id, taken) for taken in handed.taken]
        self._messages += len(deliveries)
        self._bytes += sum(delivery.size for delivery in deliveries)
        return deliveries, handed.wake_at

    def _has_room(self) -> bool:
        return self._messages < self._flow.messages and (self._bytes < self._flow.bytes or not self._messages)

    async def _doze(self, wake_at: int | None) -> None:
        if wake_at is None:
            await self._wake.wait()
            return
        seconds = (wake_at - micros(self._database.clock.now())) / 1_000_000
        try:
            await self._database.clock.wait_for(self._wake.wait(), max(0.0, seconds))
        except TimeoutError:
            pass  # time itself has made something deliverable

    def _make_room(self, delivery: EmbeddedDelivery, settled: asyncio.Future[None]) -> None:
        failed = not settled.cancelled() and settled.exception() is not None
        if not failed and delivery.holder == self._id:
            self._messages -= 1
            self._bytes -= delivery.size
        self._wake.set()
