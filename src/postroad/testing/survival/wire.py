"""The broker in memory, with somebody on the line: counting, and letting one fault happen."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from postroad.brokers.base import Delivery, Outcome
from postroad.brokers.embedded import EmbeddedBroker
from postroad.brokers.embedded.receiver import EmbeddedReceiver
from postroad.message import Message, ordering_key
from postroad.testing.clock import VirtualClock
from postroad.testing.faulty_broker import FaultyBroker, FaultyDelivery
from postroad.testing.survival.calls import label

if TYPE_CHECKING:
    from postroad.testing.survival.run import Run

_TURNS: Final = 40
"""Loop turns after which a receiver in memory, which waits for nothing outside, has found what is there."""


class Wire(FaultyBroker):
    """What the scenario sends through it comes from other services; it is not disturbed."""

    def __init__(self, run: "Run") -> None:
        self.time = VirtualClock(run.began)
        super().__init__(EmbeddedBroker(None, self.time))
        self._run = run

    async def send(self, batch: Sequence[Message]) -> Sequence[Outcome]:
        run = self._run
        run.breathe()
        if run.actor == "scenario":
            run.foreign.update({message.id: message for message in batch})
            return await self.broker.send(batch)
        if run.reach("send", "; ".join(map(label, batch))) == "relay-stalls":
            await run.take_over()
        for position, message in enumerate(batch):
            fate = run.reach("publish", label(message))
            if fate:
                taken = batch[: position + (fate == "publish-after")]
                if taken:
                    await self.broker.send(taken)
                run.die()
        return await self.broker.send(batch)

    async def listen(self, subscription: str) -> "Line":
        receiver = await self.broker.subscribe(subscription, self._run.flow)
        assert isinstance(receiver, EmbeddedReceiver)
        return Line(self._run, self, receiver, subscription)


class Line:
    """One subscription in one process, asked without waiting."""

    def __init__(self, run: "Run", wire: Wire, receiver: EmbeddedReceiver, subscription: str) -> None:
        self._run, self._wire, self._receiver, self._subscription = run, wire, receiver, subscription
        self._asking: asyncio.Task[Sequence[Delivery]] | None = None
        self._held: list[WatchedDelivery] = []

    async def poll(self) -> list[Delivery]:
        arrived: list[Delivery] = []
        for delivery in [*self._release(), *await self._receive()]:
            if delivery.ordering_key == self._run.late_key:
                self._held.append(delivery)
                continue
            arrived.append(delivery)
            if self._run.reach("delivery", delivery.told) == "duplicate":
                arrived.append(delivery)
        return arrived

    def abandon(self) -> None:
        """As a killed process leaves: nothing is given back."""
        self._receiver.abandon()
        if self._asking:
            self._asking.cancel()

    def _release(self) -> list["WatchedDelivery"]:
        released, self._held = self._held, []
        return released

    async def _receive(self) -> list["WatchedDelivery"]:
        if self._asking is None:
            self._asking = asyncio.create_task(self._receiver.receive())
        asking = self._asking
        for _ in range(_TURNS):
            if asking.done():
                self._asking = None
                return [WatchedDelivery(self._run, self._wire, delivery) for delivery in asking.result()]
            await asyncio.sleep(0)
        return []


class WatchedDelivery(FaultyDelivery):
    def __init__(self, run: "Run", wire: Wire, delivery: Delivery) -> None:
        super().__init__(wire, delivery)
        self._run = run
        kind, key = (delivery.attributes.get(name, "") for name in ("aggregate_type", "aggregate_id"))
        self.ordering_key = ordering_key(kind, key)
        run.met_key(self.ordering_key)
        group = delivery.subscription.removeprefix(f"{delivery.topic}.")
        self.told = f"{delivery.attributes.get('event_type', 'an event')} {key} to group {group}"

    async def ack(self) -> None:
        await self._settle(self.told, self.delivery.ack)

    async def retry(self, after: float) -> None:
        self._run.breathe()
        await self.delivery.retry(after)

    async def dead(self, reason: str) -> None:
        await self._settle(f"{self.told}, as a dead letter", partial(self.delivery.dead, reason))

    async def _settle(self, told: str, give: Callable[[], Awaitable[None]]) -> None:
        self._run.breathe()
        fate = self._run.reach("ack", told)
        if fate == "ack-before":
            self._run.die()
        if fate == "ack-lost":
            await self.delivery.retry(0)
            return
        await give()
        if fate == "ack-after":
            self._run.die()
