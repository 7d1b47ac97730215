"""A broker that fails as real ones do: connections break, confirms and acks get lost, messages come twice."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Final

from postroad.brokers.base import (
    Broker,
    Change,
    DeadLetter,
    Delivery,
    Depth,
    Flow,
    Outcome,
    Receiver,
    Refused,
    Subscription,
    Topology,
    Unavailable,
)
from postroad.clock import Clock, SystemClock
from postroad.errors import BrokerUnavailable
from postroad.message import Message


@dataclass(frozen=True, slots=True)
class Faults:
    """How likely each fault is, from 0 to 1."""

    unavailable: float = 0.0
    """A send breaks somewhere in the batch; from there on the broker took nothing."""
    lost_confirm: float = 0.0
    """The broker took the whole batch, but from somewhere on its answers never came."""
    lost_ack: float = 0.0
    """An ack never arrives: the message comes again."""
    duplicate: float = 0.0
    """A delivery is handed out twice."""
    late: float = 0.0
    """A delivery batch is held up for `lateness` seconds."""
    lateness: float = 1.0


SEND_FAULTS: Final = ("none", "unavailable", "lost_confirm")


class FaultyBroker:
    """Wraps any broker. Chance comes from the given source of randomness, so that a seed repeats it."""

    def __init__(
        self,
        broker: Broker,
        faults: Faults = Faults(),
        *,
        random: Random | None = None,
        clock: Clock | None = None,
        refuse: Callable[[Message], str | None] = lambda message: None,
    ) -> None:
        self.broker = broker
        self.features = broker.features
        self.faults = faults
        self.down = False
        """The outage switch: while True, nothing reaches the broker and nothing comes from it."""
        self.refuse = refuse
        """The reason to refuse a message, or None."""
        self._random = random or Random(0)
        self._clock = clock or SystemClock()
        self._script: deque[str] = deque()

    @property
    def address(self) -> str:
        return self.broker.address

    def script(self, *fates: str) -> None:
        """What happens to the next sends, whole batches, one after another; afterwards chance rules again."""
        for fate in fates:
            if fate not in SEND_FAULTS:
                raise ValueError(f"{fate!r} is no fate of a send; there are {', '.join(SEND_FAULTS)}")
        self._script.extend(fates)

    async def send(self, batch: Sequence[Message]) -> Sequence[Outcome]:
        if self.down:
            return [Unavailable("outage")] * len(batch)
        fate, cut = self._fate(len(batch))
        sent = batch[:cut] if fate == "unavailable" else batch
        answered = batch[:cut] if fate != "none" else batch
        outcomes = await self._send_unrefused(sent)
        return [*outcomes[: len(answered)], *[Unavailable(fate)] * (len(batch) - len(answered))]

    async def subscribe(self, subscription: str, flow: Flow) -> "FaultyReceiver":
        self.reach()
        return FaultyReceiver(self, await self.broker.subscribe(subscription, flow))

    async def plan(self, topology: Topology) -> Sequence[Change]:
        self.reach()
        return await self.broker.plan(topology)

    async def apply(self, topology: Topology) -> Sequence[Change]:
        self.reach()
        return await self.broker.apply(topology)

    async def subscriptions(self) -> Sequence[Subscription]:
        self.reach()
        return await self.broker.subscriptions()

    async def depth(self, subscription: str) -> Depth:
        self.reach()
        return await self.broker.depth(subscription)

    async def seek(self, subscription: str, to: datetime | str) -> int:
        self.reach()
        return await self.broker.seek(subscription, to)

    async def snapshot(self, subscription: str, name: str) -> None:
        self.reach()
        await self.broker.snapshot(subscription, name)

    async def dead_letters(self, topic: str, limit: int = 100, after: str = "") -> Sequence[DeadLetter]:
        self.reach()
        return await self.broker.dead_letters(topic, limit, after)

    async def revive(self, topic: str, ids: Sequence[str]) -> int:
        self.reach()
        return await self.broker.revive(topic, ids)

    async def discard(self, topic: str, ids: Sequence[str]) -> int:
        self.reach()
        return await self.broker.discard(topic, ids)

    async def aclose(self) -> None:
        await self.broker.aclose()

    def reach(self) -> None:
        if self.down:
            raise BrokerUnavailable("outage")

    def happens(self, probability: float) -> bool:
        return self._random.random() < probability

    async def hold_up(self) -> None:
        if self.happens(self.faults.late):
            await self._clock.sleep(self.faults.lateness)

    def _fate(self, size: int) -> tuple[str, int]:
        """What becomes of a batch, and from which message on."""
        if self._script:
            return self._script.popleft(), 0
        for fate, probability in (
            ("unavailable", self.faults.unavailable),
            ("lost_confirm", self.faults.lost_confirm),
        ):
            if self.happens(probability):
                return fate, self._random.randrange(size) if size else 0
        return "none", size

    async def _send_unrefused(self, batch: Sequence[Message]) -> Sequence[Outcome]:
        """Refuses what is to be refused; later messages of the same key are held back, as brokers do."""
        decided: dict[int, Outcome] = {}
        stopped: set[tuple[str, str]] = set()
        for position, message in enumerate(batch):
            lane = (message.topic, message.wire_key)
            if lane in stopped:
                decided[position] = Unavailable("held back by a refused predecessor")
            elif reason := self.refuse(message):
                decided[position] = Refused(reason)
                if message.wire_key:
                    stopped.add(lane)
        rest = [message for position, message in enumerate(batch) if position not in decided]
        outcomes = iter(await self.broker.send(rest) if rest else ())
        return [decided[position] if position in decided else next(outcomes) for position in range(len(batch))]


class FaultyReceiver:
    def __init__(self, faulty: FaultyBroker, receiver: Receiver) -> None:
        self._faulty = faulty
        self.receiver = receiver
        self._arrived: list[Delivery] = []

    async def receive(self) -> Sequence[Delivery]:
        self._faulty.reach()
        if not self._arrived:
            self._arrived = self._with_duplicates(await self.receiver.receive())
        # Kept until it is really handed over: an outage or a cancellation meanwhile must not lose it.
        await self._faulty.hold_up()
        self._faulty.reach()
        arrived, self._arrived = self._arrived, []
        return arrived

    async def aclose(self) -> None:
        await self.receiver.aclose()

    def _with_duplicates(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Each once or twice; of two, the verdict on the second does nothing, as the contract has it."""
        arrived: list[Delivery] = []
        for delivery in deliveries:
            faulty = FaultyDelivery(self._faulty, delivery)
            arrived.append(faulty)
            if self._faulty.happens(self._faulty.faults.duplicate):
                arrived.append(faulty)
        return arrived


class FaultyDelivery:
    def __init__(self, faulty: FaultyBroker, delivery: Delivery) -> None:
        self._faulty = faulty
        self.delivery = delivery

    @property
    def topic(self) -> str:
        return self.delivery.topic

    @property
    def subscription(self) -> str:
        return self.delivery.subscription

    @property
    def key(self) -> str:
        return self.delivery.key

    @property
    def attributes(self) -> Mapping[str, str]:
        return self.delivery.attributes

    @property
    def data(self) -> bytes:
        return self.delivery.data

    @property
    def attempt(self) -> int:
        return self.delivery.attempt

    async def ack(self) -> None:
        self._faulty.reach()
        if self._faulty.happens(self._faulty.faults.lost_ack):
            await self.delivery.retry(0)
        else:
            await self.delivery.ack()

    async def retry(self, after: float) -> None:
        self._faulty.reach()
        await self.delivery.retry(after)

    async def dead(self, reason: str) -> None:
        self._faulty.reach()
        await self.delivery.dead(reason)
