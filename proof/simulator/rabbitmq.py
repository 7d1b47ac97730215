"""RabbitMQ as a broker: the adapter is the real one, on a server that lives here.

Two things are exchanged beneath it: the thread in which it keeps its connections, and pika's connection.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from unittest.mock import patch

from postroad.brokers.base import Broker, Delivery, Flow, Outcome, Receiver, Topology
from postroad.brokers.rabbitmq import line
from postroad.brokers.rabbitmq.address import Address
from postroad.brokers.rabbitmq.broker import RabbitBroker
from postroad.brokers.rabbitmq.layout import routing_key
from postroad.brokers.rabbitmq.letter import Letter, write
from postroad.message import Message
from proof.simulator.faults import RABBIT_RECEIVE, RABBIT_SEND, RABBIT_VERDICT
from proof.simulator.process import Process
from proof.simulator.rabbitmq_server import Server
from proof.simulator.rabbitmq_wire import Route, Wire
from proof.simulator.time import LoopClock

if TYPE_CHECKING:
    from proof.simulator.world import World

T = TypeVar("T")


@contextmanager
def simulated_wires() -> Iterator[None]:
    """The adapter connects to the server that its address leads to."""
    with patch.object(line, "_Gathering", Wire):
        yield


@dataclass(frozen=True)
class _Simulated(Address):
    route: Route | None = None

    def parameters(self, purpose: str) -> Any:
        return self.route


class _SameThread:
    """In place of the connections' own thread: here, everything has its turn in one."""

    started = True

    async def run(self, work: Callable[..., Coroutine[Any, Any, T]], *arguments: object) -> T:
        return await work(*arguments)

    def spawn(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        asyncio.get_running_loop().create_task(work())

    def post(self, work: Callable[..., object], *arguments: object) -> None:
        asyncio.get_running_loop().call_soon(work, *arguments)

    async def aclose(self) -> None:
        pass


class RabbitPost:
    """The server: it is never killed, but it may be out of reach, or short of memory."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.server = Server(world)
        self.process = Process("broker")
        self._lines: dict[Process, RabbitLine] = {}

    @property
    def away(self) -> bool:
        return self.server.away

    @away.setter
    def away(self, away: bool) -> None:
        self.server.away = away

    @property
    def taken(self) -> list[Message]:
        return self.server.taken

    def line(self, process: Process) -> Broker:
        if process not in self._lines:
            self._lines[process] = RabbitLine(self, process)
        return self._lines[process]

    async def prepare(self, topology: Topology) -> None:
        for topic in topology.topics:
            self.server.declare_exchange(topic)
            self.server.declare_queue(f"{topic}.dlq", {})
        for subscription in topology.subscriptions:
            self.server.declare_queue(subscription.name, {}, subscription.topic)

    async def put(self, messages: Sequence[Message]) -> None:
        """Of somebody who needs no connection."""
        for message in messages:
            letter = write(message, message.topic, routing_key(message.type), LoopClock().now())
            assert isinstance(letter, Letter)
            self.server.route(letter.exchange, letter.routing_key, letter.properties, letter.body)

    async def left(self, subscription: str) -> int:
        return self.server.unsettled(subscription)

    def violations(self) -> list[str]:
        """What can be seen here alone."""
        return []

    def clear(self) -> None:
        """All of it goes with the world."""


class RabbitLine:
    """One process's adapter; here, the process itself may come to grief. The rest happens on the wire."""

    def __init__(self, post: RabbitPost, process: Process) -> None:
        self.world, self.process = post.world, process
        self.broker = RabbitBroker(_Simulated(route=Route(post.server, process)), process.clock)
        self.broker._thread = _SameThread()  # type: ignore[assignment]
        self.features, self.address = self.broker.features, self.broker.address

    async def send(self, batch: Sequence[Message]) -> Sequence[Outcome]:
        async def give() -> Sequence[Outcome]:
            if fault == "fails":
                raise RuntimeError("an adapter should not, but may")
            return await self.broker.send(batch)

        self.process.require_life()
        fault = self.world.fates.draw(RABBIT_SEND)
        return await self.survive(f"send {len(batch)}", fault, give)

    async def subscribe(self, subscription: str, flow: Flow) -> "RabbitIntake":
        await self.process.step_outside()
        return RabbitIntake(self, await self.broker.subscribe(subscription, flow))

    async def survive(self, what: str, fault: str, give: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with self.world.reaching(self.process, what, fault):
            await self.process.step_outside()
            if fault == "killed before":
                self.process.die()
            if fault == "frozen":
                self.process.freeze(self.world.freeze_seconds())
                await self.process.step_outside()
            result = await give()
        with self.world.reaching(self.process, what, fault, done=True):
            await self.process.step_outside()
            if fault == "killed after":
                self.process.die()
        return result

    def given_up(self, delivery: Delivery) -> None:
        """Somebody may want to look for its letter."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.broker, name)


class RabbitIntake:
    def __init__(self, line: RabbitLine, receiver: Receiver) -> None:
        self._line, self._receiver = line, receiver

    async def receive(self) -> Sequence[Delivery]:
        line = self._line
        arrived = await self._receiver.receive()
        fault = line.world.fates.draw(RABBIT_RECEIVE)
        with line.world.reaching(line.process, f"receive {len(arrived)}", fault, done=True):
            await line.process.step_outside()
            if fault == "killed after":
                line.process.die()
        return [RabbitParcel(line, delivery) for delivery in arrived]

    async def aclose(self) -> None:
        await self._line.process.step_outside()
        await self._receiver.aclose()


class RabbitParcel:
    def __init__(self, line: RabbitLine, delivery: Delivery) -> None:
        self._line, self._delivery = line, delivery
        self.topic, self.subscription, self.key = delivery.topic, delivery.subscription, delivery.key
        self.attributes: Mapping[str, str] = delivery.attributes
        self.data, self.attempt = delivery.data, delivery.attempt

    async def ack(self) -> None:
        await self._decide("ack", self._delivery.ack)

    async def retry(self, after: float) -> None:
        await self._decide("retry", lambda: self._delivery.retry(after))

    async def dead(self, reason: str) -> None:
        await self._decide("dead", lambda: self._delivery.dead(reason))
        self._line.given_up(self._delivery)

    async def _decide(self, verdict: str, give: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._line.process.require_life()
        await self._line.survive(verdict, self._line.world.fates.draw(RABBIT_VERDICT), give)
