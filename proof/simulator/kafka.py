"""Kafka as a broker: the adapter is the real one, on clients and a server that live here.

Beneath it are exchanged confluent_kafka's clients and, because those block, the threads in which they do.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from postroad.brokers.base import Broker, Delivery, Topology
from postroad.brokers.kafka import client, consumer, known, publisher, reader
from postroad.brokers.kafka.address import Address
from postroad.brokers.kafka.broker import KafkaBroker
from postroad.brokers.kafka.record import Letter, write
from postroad.message import Message
from proof.simulator.faults import KAFKA_SERVER
from proof.simulator.kafka_client import Administrator, Member, Producer, Route
from proof.simulator.kafka_server import PARTITIONS, SESSION, Server
from proof.simulator.process import Process
from proof.simulator.rabbitmq import RabbitLine
from proof.simulator.threads import THREADING, TIME, in_a_thread
from proof.simulator.time import LoopClock

if TYPE_CHECKING:
    from proof.simulator.world import World

_PUBLISH = 2.0
_AHEAD = 4
"""So few that partitions have to wait."""
_LOOK, _BETWEEN_COMMITS = 0.3, 0.3
_BETWEEN_BEATS = 0.5


@contextmanager
def simulated_clients() -> Iterator[None]:
    """The adapter speaks to the server that its address leads to."""
    with ExitStack() as stack:
        for module, name, stand_in in (
            (client, "AdminClient", Administrator),
            (publisher, "Producer", Producer),
            (consumer, "Member", Member),
            (reader, "Consumer", Member),
            (publisher, "threading", THREADING),
            (consumer, "threading", THREADING),
            (consumer, "time", TIME),
            (client, "time", TIME),
            (known, "time", TIME),
            (consumer, "_LOOK", _LOOK),
            (consumer, "_BETWEEN_COMMITS", _BETWEEN_COMMITS),
            (asyncio, "to_thread", in_a_thread),
        ):
            stack.enter_context(patch.object(module, name, stand_in))
        yield


@dataclass(frozen=True)
class _Simulated(Address):
    route: Route | None = None

    def client(self) -> dict[str, Any]:
        return {"route": self.route}


class KafkaPost:
    """The server: it is never killed, but it may be out of reach."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.chance = Random(world.seed + 4)
        self.server = Server(self.chance, lambda what: world.tell("kafka", what))
        self.process = Process("broker")
        self.taken: list[Message] = []
        self.given_up: list[tuple[str, bytes]] = []
        """Subscription and data of what was given up, as far as its subscriber knows."""
        self._lines: dict[Process, KafkaLine] = {}

    @property
    def away(self) -> bool:
        return self.server.away

    @away.setter
    def away(self, away: bool) -> None:
        self.server.away = away

    def line(self, process: Process) -> Broker:
        if process not in self._lines:
            self._lines[process] = KafkaLine(self, process)
        return self._lines[process]

    async def prepare(self, topology: Topology) -> None:
        for topic in topology.topics:
            self.server.create(topic)
            self.server.create(f"{topic}.dlq")
        for subscription in topology.subscriptions:
            self.server.found(subscription.name)
        self.process.spawn(self._beat())

    def take(self, letter: Letter) -> None:
        if not letter.topic.endswith(".dlq"):
            attributes = {name: value.decode() for name, value in letter.headers}
            self.taken.append(Message.from_wire(letter.topic, attributes, letter.value or b""))
        self.server.write(letter)

    async def put(self, messages: Sequence[Message]) -> None:
        """Of somebody who needs no connection."""
        for message in messages:
            letter = write(message)
            assert isinstance(letter, Letter)
            self.server.write(letter)

    async def left(self, subscription: str) -> int:
        return self.server.left(subscription)

    def violations(self) -> list[str]:
        graves = {
            (dict(letter.headers)["postroad.subscription"].decode(), letter.value)
            for (topic, _), log in self.server.logs.items()
            if topic.endswith(".dlq")
            for letter in (record.letter for record in log)
        }
        missing = [
            f"{data!r} of {subscription}" for subscription, data in self.given_up if (subscription, data) not in graves
        ]
        return [f"lost: {message} was given up, and no letter is there" for message in missing]

    def clear(self) -> None:
        client._open.clear()  # all else goes with the world

    async def _beat(self) -> None:
        while True:
            await self.process.clock.sleep(self.chance.random() * _BETWEEN_BEATS)
            self.server.listen(LoopClock().monotonic())
            group, fault = self.chance.choice(list(self.server.groups.values())), self.world.fates.draw(KAFKA_SERVER)
            if fault == "dismissed":
                group.dismiss()
            elif fault == "shared out anew":
                group.stir()


class KafkaLine(RabbitLine):
    """One process's adapter; here, the process itself may come to grief. The rest happens beneath."""

    def __init__(self, post: KafkaPost, process: Process) -> None:
        self.world, self.post, self.process = post.world, post, process
        address = _Simulated(
            partitions=PARTITIONS,
            publish_timeout=_PUBLISH,
            session_timeout=SESSION,
            ahead=_AHEAD,
            route=Route(post, process),
        )
        broker: Any = KafkaBroker(address, process.clock)
        self.broker, self.features, self.address = broker, broker.features, broker.address

    def given_up(self, delivery: Delivery) -> None:
        self.post.given_up.append((delivery.subscription, delivery.data))
