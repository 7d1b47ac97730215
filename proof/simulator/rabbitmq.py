"""RabbitMQ as a broker: the adapter is the real one, on a server that lives here.

Two things are exchanged beneath it: the thread in which it keeps its connections, and pika's connection.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from postroad.brokers.base import Broker, Topology
from postroad.brokers.rabbitmq import line
from postroad.brokers.rabbitmq.address import Address
from postroad.brokers.rabbitmq.broker import RabbitBroker
from postroad.brokers.rabbitmq.layout import routing_key
from postroad.brokers.rabbitmq.letter import Letter, write
from postroad.message import Message
from proof.simulator.adapters import AdapterPost, SameThread
from proof.simulator.process import Process
from proof.simulator.rabbitmq_server import Server
from proof.simulator.rabbitmq_wire import Route, Wire
from proof.simulator.time import LoopClock

if TYPE_CHECKING:
    from proof.simulator.world import World


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


class RabbitPost(AdapterPost):
    """It may be short of memory, too."""

    def __init__(self, world: "World") -> None:
        self.server = Server(world)
        super().__init__(world)
        self.taken = self.server.taken

    @property
    def away(self) -> bool:
        return self.server.away

    @away.setter
    def away(self, away: bool) -> None:
        self.server.away = away

    def adapter(self, process: Process) -> Broker:
        broker = RabbitBroker(_Simulated(route=Route(self.server, process)), process.clock)
        broker._thread = SameThread()  # type: ignore[assignment]
        return broker

    async def prepare(self, topology: Topology) -> None:
        for topic in topology.topics:
            self.server.declare_exchange(topic)
            self.server.declare_queue(f"{topic}.dlq", {})
        for subscription in topology.subscriptions:
            self.server.declare_queue(subscription.name, {}, subscription.topic)

    async def put(self, messages: Sequence[Message]) -> None:
        for message in messages:
            letter = write(message, message.topic, routing_key(message.type), LoopClock().now())
            assert isinstance(letter, Letter)
            self.server.route(letter.exchange, letter.routing_key, letter.properties, letter.body)

    async def left(self, subscription: str) -> int:
        return self.server.unsettled(subscription)
