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

from postroad.brokers.base import Broker, Flow, Topology
from postroad.brokers.kafka import client, consumer, known, publisher, reader
from postroad.brokers.kafka.address import Address
from postroad.brokers.kafka.broker import KafkaBroker
from postroad.brokers.kafka.record import Letter, write
from postroad.message import Message
from proof.simulator.adapters import AdapterPost
from proof.simulator.faults import KAFKA_SERVER
from proof.simulator.kafka_client import Administrator, Member, Producer, Route
from proof.simulator.kafka_server import PARTITIONS, SESSION, Server
from proof.simulator.process import Process
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


class KafkaPost(AdapterPost):
    flow = Flow(messages=8)
    """So that workers get there to have their hands full."""

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self.chance = Random(world.seed + 4)
        self.server = Server(self.chance, lambda what: world.tell("kafka", what))

    def adapter(self, process: Process) -> Broker:
        address = _Simulated(
            partitions=PARTITIONS,
            publish_timeout=_PUBLISH,
            session_timeout=SESSION,
            ahead=_AHEAD,
            route=Route(self, process),
        )
        return KafkaBroker(address, process.clock)

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
        super().clear()
        client._open.clear()

    async def _beat(self) -> None:
        while True:
            await self.process.clock.sleep(self.chance.random() * _BETWEEN_BEATS)
            self.server.listen(LoopClock().monotonic(), away=self.away)
            group, fault = self.chance.choice(list(self.server.groups.values())), self.world.fates.draw(KAFKA_SERVER)
            if fault == "dismissed":
                group.dismiss()
            elif fault == "shared out anew":
                group.stir()
