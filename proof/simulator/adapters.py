"""Brokers whose adapter is the real one, each on a server that lives here: what they have in common."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from postroad.brokers.base import Broker, Delivery, Flow, Outcome, Receiver, Topology
from postroad.message import Message
from proof.simulator.faults import ADAPTER_RECEIVE, ADAPTER_SEND, ADAPTER_VERDICT
from proof.simulator.process import Process

if TYPE_CHECKING:
    from proof.simulator.world import World

T = TypeVar("T")


class SameThread:
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


class AdapterPost(ABC):
    """The server: it is never killed, but it may be out of reach."""

    flow = Flow()

    def __init__(self, world: "World") -> None:
        self.world = world
        self.away = False
        self.process = Process("broker")
        self.taken: list[Message] = []
        self.given_up: list[tuple[str, bytes]] = []
        """Subscription and data of what was given up, as far as its subscriber knows."""
        self._lines: dict[Process, AdapterLine] = {}

    def line(self, process: Process) -> "AdapterLine":
        if process not in self._lines:
            self._lines[process] = AdapterLine(self, process, self.adapter(process))
        return self._lines[process]

    @abstractmethod
    def adapter(self, process: Process) -> Broker: ...

    @abstractmethod
    async def prepare(self, topology: Topology) -> None: ...

    @abstractmethod
    async def put(self, messages: Sequence[Message]) -> None:
        """Of somebody who needs no connection."""

    @abstractmethod
    async def left(self, subscription: str) -> int: ...

    def violations(self) -> list[str]:
        """What can be seen here alone."""
        return []

    def clear(self) -> None:
        self._lines.clear()  # all else goes with the world


class AdapterLine:
    """One process's adapter; here, the process itself may come to grief. The rest happens on the wire."""

    def __init__(self, post: AdapterPost, process: Process, broker: Broker) -> None:
        self.world, self.process = post.world, process
        self.broker, self.features, self.address = broker, broker.features, broker.address
        self._post = post

    async def send(self, batch: Sequence[Message]) -> Sequence[Outcome]:
        async def give() -> Sequence[Outcome]:
            if fault == "fails":
                raise RuntimeError("an adapter should not, but may")
            return await self.broker.send(batch)

        self.process.require_life()
        fault = self.world.fates.draw(ADAPTER_SEND)
        return await self.survive(f"send {len(batch)}", fault, give)

    async def subscribe(self, subscription: str, flow: Flow) -> "Intake":
        await self.process.step_outside()
        return Intake(self, await self.broker.subscribe(subscription, flow))

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
        self._post.given_up.append((delivery.subscription, delivery.data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.broker, name)


class Intake:
    def __init__(self, line: AdapterLine, receiver: Receiver) -> None:
        self._line, self._receiver = line, receiver

    async def receive(self) -> Sequence[Delivery]:
        line = self._line
        arrived = await self._receiver.receive()
        fault = line.world.fates.draw(ADAPTER_RECEIVE)
        with line.world.reaching(line.process, f"receive {len(arrived)}", fault, done=True):
            await line.process.step_outside()
            if fault == "killed after":
                line.process.die()
        return [Parcel(line, delivery) for delivery in arrived]

    async def aclose(self) -> None:
        await self._line.process.step_outside()
        await self._receiver.aclose()


class Parcel:
    def __init__(self, line: AdapterLine, delivery: Delivery) -> None:
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
        await self._line.survive(verdict, self._line.world.fates.draw(ADAPTER_VERDICT), give)
