"""As much of a RabbitMQ server as the adapter needs: exchanges, queues, and whom they deliver to."""

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from postroad.message import Message

if TYPE_CHECKING:
    from proof.simulator.rabbitmq_channel import RawChannel
    from proof.simulator.rabbitmq_wire import Wire
    from proof.simulator.world import World


@dataclass(slots=True, eq=False)
class Letter:
    place: int
    """In its queue, to which it returns when it was not acknowledged."""
    routing_key: str
    properties: Any
    body: bytes
    redelivered: bool = False


class Server:
    """Exchanges lead everything to all their queues; of the consumers of a queue, the first one receives."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.exchanges: dict[str, list[Queue]] = {}
        self.queues: dict[str, Queue] = {}
        self.wires: dict[Wire, None] = {}
        self.taken: list[Message] = []
        """Everything it ever took from a relay, in that order."""
        self._places = count()
        self._away = self._short_of_memory = False

    @property
    def away(self) -> bool:
        return self._away

    @away.setter
    def away(self, away: bool) -> None:
        self._away = away
        for wire in tuple(self.wires) if away else ():
            wire.cut()

    @property
    def short_of_memory(self) -> bool:
        return self._short_of_memory

    @short_of_memory.setter
    def short_of_memory(self, short: bool) -> None:
        """Then it reads nothing more from those that publish, and tells them so."""
        self._short_of_memory = short
        for wire in self.wires:
            if wire.publishes:
                wire.tell_blocked(short)

    def route(self, exchange: str, key: str, properties: Any, body: bytes) -> bool:
        """Whether any queue has taken it. The nameless exchange leads to any queue by its name."""
        named = [self.queues[key]] if not exchange and key in self.queues else []
        queues = self.exchanges[exchange] if exchange else named
        for queue in queues:
            queue.put(Letter(next(self._places), key, properties, body))
        return bool(queues)

    def declare_exchange(self, name: str) -> None:
        self.exchanges.setdefault(name, [])

    def declare_queue(self, name: str, arguments: dict[str, Any], exchange: str = "") -> None:
        queue = self.queues.setdefault(name, Queue(self, name, arguments))
        if exchange and queue not in self.exchanges[exchange]:
            self.exchanges[exchange].append(queue)

    def unsettled(self, name: str) -> int:
        """What is in a queue, in the hands of its consumers, or on its way there."""
        leading = [queue for queue in self.queues.values() if queue.leads_to == name]
        return self.queues[name].size + sum(queue.size for queue in leading)


class Queue:
    def __init__(self, server: Server, name: str, arguments: dict[str, Any]) -> None:
        self._server, self.name = server, name
        self.size = 0
        """Ready or not yet acknowledged."""
        self.leads_to: str | None = arguments.get("x-dead-letter-routing-key")
        self._seconds = arguments.get("x-message-ttl", 0) / 1_000
        self._ready: deque[Letter] = deque()
        self.consumers: list[RawChannel] = []

    @property
    def ready(self) -> int:
        return len(self._ready)

    def put(self, letter: Letter) -> None:
        self.size += 1
        if self._seconds:
            # All of a queue wait equally long, so none has to wait for the one in front of it.
            asyncio.get_running_loop().call_later(self._seconds, self._pass_on, letter)
            return
        self._ready.append(letter)
        self.hand_out()

    def _pass_on(self, letter: Letter) -> None:
        self.size -= 1
        self._server.route("", self.leads_to or letter.routing_key, letter.properties, letter.body)

    def hand_out(self) -> None:
        while self._ready and self.consumers and self.consumers[0].has_room:
            self.consumers[0].deliver(self, self._ready.popleft())

    def settled(self) -> None:
        self.size -= 1
        self.hand_out()

    def take_back(self, letters: list[Letter]) -> None:
        for letter in letters:
            letter.redelivered = True
        self._ready = deque(sorted((*letters, *self._ready), key=attrgetter("place")))

    def fail_over(self) -> None:
        """To another node: all consumers are dismissed, and what they hold is ready again."""
        consumers, self.consumers = self.consumers, []
        for consumer in consumers:
            consumer.dismiss(self)
