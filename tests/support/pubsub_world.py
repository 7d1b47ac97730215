"""Workers of one group on the model of Google's rules, on virtual time: the adapter's own receivers, without a network.

What breaks: streams (with or without what was on its way, noticed by the server at once or later), requests and
answers, all connections of a worker for longer than its leases last, leases, handlers, and workers.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty

from postroad.brokers.base import Delivery, Flow
from postroad.brokers.pubsub.address import Address
from postroad.brokers.pubsub.consumer import Consumer
from postroad.brokers.pubsub.line import Line, Rejection
from postroad.brokers.pubsub.receiver import PubSubReceiver
from postroad.errors import BrokerUnavailable
from postroad.subscriber.lanes import Lanes
from proof.simulator.adapters import SameThread
from proof.simulator.pubsub import letter
from proof.simulator.pubsub_model import Model, Stream
from proof.simulator.time import LoopClock, VirtualLoop
from tests.support.pubsub_server import PATH, SUBSCRIPTION

KEYS = "xyz"
STEPS = 60
LONGEST_CALM = 200.0


class Call:
    def __init__(self, world: "World", stream: Stream) -> None:
        self._world, self._stream = world, stream

    async def write(self, _: Any) -> None:
        """Heartbeats change nothing."""

    async def read(self) -> Any:
        await self._world.lag()
        if (sent := await self._stream.on_its_way.get()) is None:
            raise BrokerUnavailable("the stream has ended")
        return letter(sent)

    def cancel(self) -> None:
        self._world.notice_later(self._stream)


class Wire(Line):
    def __init__(self, world: "World") -> None:
        super().__init__(Address("my-project", "model:1"))
        self._world = world
        self._stream: Stream | None = None
        self._away = False

    def pull(self, first: Any) -> Call:
        if self._away:
            raise BrokerUnavailable("away")
        self._stream = self._world.model.open(first.client_id)
        return Call(self._world, self._stream)

    def leave(self, seconds: float) -> None:
        self._away = True
        if self._stream is not None:
            self._stream.breaks()
        asyncio.get_running_loop().call_later(seconds, self._come_back)

    def _come_back(self) -> None:
        self._away = False

    async def ask(self, method: str, request: Any, answer: Any, **_: Any) -> Any:
        await self._world.lag()
        self._may_be_lost()
        causes: dict[str, str] = {}
        if method == "Subscriber/Acknowledge":
            causes = self._world.model.acknowledge(request.ack_ids)
        else:
            self._world.model.extend(request.ack_ids, request.ack_deadline_seconds)
        await self._world.lag()
        self._may_be_lost()
        if causes:
            raise Rejection(grpc.StatusCode.INVALID_ARGUMENT, "", "the model", causes)
        return Empty()

    def _may_be_lost(self) -> None:
        if self._away or self._world.happens(0.15):
            raise BrokerUnavailable("lost on the way")


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    delivery: Delivery
    together: None = None

    @property
    def lane(self) -> str:
        return self.delivery.key


class Worker:
    """As a subscriber does it: of each key one at a time, and with what goes back, all that is behind it."""

    def __init__(self, world: "World", name: str) -> None:
        self._world, self.name = world, name
        self._lanes: Lanes[Item] = Lanes()
        self._tasks: list[asyncio.Task[None]] = []
        thread: Any = SameThread()
        graves: Any = None
        self.receiver = PubSubReceiver(thread, LoopClock(), graves, "shop.order.events", SUBSCRIPTION, Flow(messages=4))
        self.wire = Wire(world)
        self.consumer = Consumer(
            self.wire, PATH, SUBSCRIPTION, round(world.model.deadline), self.receiver.most, self.receiver.tell
        )
        self.receiver.consumer = self.consumer

    async def start(self) -> None:
        await self.consumer.start()
        self._tasks.append(asyncio.create_task(self._receive()))

    async def kill(self) -> None:
        tasks = [*self.consumer._tasks, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def stop(self) -> None:
        await self.receiver.aclose()
        await self.kill()

    async def _receive(self) -> None:
        while True:
            for delivery in await self.receiver.receive():
                self._lanes.put(Item(delivery))
            self._hand_out()

    def _hand_out(self) -> None:
        while items := self._lanes.take():
            self._tasks.append(asyncio.create_task(self._work(items[0].delivery)))

    async def _work(self, delivery: Delivery) -> None:
        if (wait := await self._world.handle(self.name, delivery)) is None:
            await delivery.ack()
        else:
            for item in (Item(delivery), *self._lanes.drop(delivery.key)):
                await item.delivery.retry(wait)
        self._lanes.done(delivery.key)
        self._hand_out()


class World:
    """One at a time: they would share their clock."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.story: list[str] = []
        self.violations: list[str] = []
        self.calm = False
        self.effects: dict[str, list[int]] = {key: [] for key in KEYS}
        self._in_progress: set[tuple[str, int]] = set()
        self._sent = dict.fromkeys(KEYS, 0)
        self._loop = VirtualLoop(lambda task, context: None)
        self.model = Model(self.chance, self._loop.time, self.tell)
        self._workers: list[Worker] = []

    def run(self, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            self._loop.run_until_complete(act())
            self._loop.run_until_complete(self._calm())
        finally:
            self._loop.close()

    def told(self) -> str:
        """The story of the first key that went wrong."""
        whom = (f"  {self.violations[0][0]} ", "  stream ", "  north ", "  south ")
        return "\n".join(line for line in self.story if any(who in line for who in whom))

    def tell(self, what: str) -> None:
        self.story.append(f"{self._loop.time():8.3f}  {what}")

    def happens(self, probability: float) -> bool:
        return not self.calm and self.chance.random() < probability

    async def lag(self) -> None:
        await asyncio.sleep(self.chance.random() * self.chance.choice((0.01, 0.2)))

    def notice_later(self, stream: Stream) -> None:
        self._loop.call_later(self.chance.choice((0.0, 5.0)), self.model.end, stream)

    # -- the handler and its inbox -----------------------------------------------------------------------

    async def handle(self, worker: str, delivery: Delivery) -> float | None:
        """None when it is done; else how long it shall wait."""
        key, number = place = delivery.key, int(delivery.data)
        if number in self.effects[key]:
            return None
        if place in self._in_progress:
            return 0.1
        self._in_progress.add(place)
        try:
            await asyncio.sleep(self.chance.random() * self.chance.choice((0.01, 0.2, 5.0)))
            if self.happens(0.15):
                self.tell(f"{key} {number} fails at {worker}")
                return self.chance.choice((0.0, 0.1, 3.0))
            self._take_effect(worker, key, number)
            return None
        finally:
            self._in_progress.discard(place)

    def _take_effect(self, worker: str, key: str, number: int) -> None:
        self.tell(f"{key} {number} is handled by {worker}")
        if number != len(self.effects[key]):
            self.violations.append(f"{key}: {number} is handled before {len(self.effects[key])}")
        self.effects[key].append(number)

    # -- what happens ------------------------------------------------------------------------------------

    async def storm(self) -> None:
        self.model.all_behind = 0.5
        for name in ("north", "south"):
            await self.begin(name)
        acts = [self._publish, self._break] * 2
        acts += [self._expire, self._expire_all, self._leave, self._replace]
        for _ in range(STEPS):
            await asyncio.sleep(self.chance.random())
            self.model.pass_time()
            await self.chance.choice(acts)()

    async def _calm(self) -> None:
        """Nothing more goes wrong, so everything is settled before long."""
        self.calm, until = True, self._loop.time() + LONGEST_CALM
        while self.model.open_ones() and self._loop.time() < until:
            await asyncio.sleep(0.5)
            self.model.pass_time()
        for key in KEYS:
            if left := len(self.model.unacknowledged(key)):
                self.violations.append(f"{key}: {left} are never acknowledged")
            elif len(self.effects[key]) != self._sent[key]:
                self.violations.append(f"{key}: {self._sent[key]} were sent, {len(self.effects[key])} are handled")
        for worker in self._workers:
            await worker.stop()

    async def begin(self, name: str) -> None:
        worker = Worker(self, name)
        self._workers.append(worker)
        await worker.start()
        await self.lag()

    async def _publish(self) -> None:
        for key in KEYS:
            self.publish(key, self.chance.randrange(3))

    def publish(self, key: str, count: int) -> None:
        numbers = range(self._sent[key], self._sent[key] + count)
        self.tell(f"{key} {list(numbers)} is published")
        self.model.publish(key, *map(str, numbers))
        self._sent[key] += count

    async def _break(self) -> None:
        for stream in self.model.streams:
            if not stream.ended and self.chance.random() < 0.7:
                arriving = self.chance.randint(0, stream.on_its_way.qsize())
                self.tell(f"stream {stream.number} breaks, {stream.on_its_way.qsize() - arriving} answers are lost")
                stream.breaks(arriving)
                self.notice_later(stream)

    async def _expire(self) -> None:
        if held := [message for message in self.model.messages if message.stream]:
            self.model.expire([self.chance.choice(held)])

    async def _expire_all(self) -> None:
        self.model.pass_deadlines()

    async def _leave(self) -> None:
        worker = self.chance.choice(self._workers)
        self.tell(f"{worker.name} is cut off for a while")
        worker.wire.leave(self.chance.random() * 2 * self.model.deadline)

    async def _replace(self) -> None:
        worker = self._workers.pop(self.chance.randrange(2))
        if self.chance.random() < 0.5:
            self.tell(f"{worker.name} is killed")
            await worker.kill()
        else:
            self.tell(f"{worker.name} stops")
            await worker.stop()
        await self.begin(worker.name)
