"""Pub/Sub as a broker: the adapter is the real one, on a model of Google's rules."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import grpc
from google.protobuf.empty_pb2 import Empty

from postroad.brokers.base import Broker, Topology
from postroad.brokers.pubsub import broker as adapter
from postroad.brokers.pubsub.address import Address, short
from postroad.brokers.pubsub.letter import write
from postroad.brokers.pubsub.line import Line, Rejection, raw
from postroad.errors import BrokerUnavailable
from postroad.message import Message
from proof.simulator.adapters import AdapterPost, SameThread
from proof.simulator.faults import PUBSUB_REQUEST, PUBSUB_SERVER
from proof.simulator.process import Process
from proof.simulator.pubsub_model import Model, Stored, Stream
from proof.simulator.time import LoopClock

if TYPE_CHECKING:
    from proof.simulator.world import World


class PubSubPost(AdapterPost):
    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self.models: dict[str, Model] = {}
        self._topics: dict[str, list[Model]] = {}
        self._ids = count(1)
        self._chance = Random(world.seed + 4)

    def adapter(self, process: Process) -> Broker:
        with patch.object(adapter, "Line", partial(Wire, self, process)):
            broker: Any = adapter.PubSubBroker(Address("my-project", "model:1"), process.clock)
        broker._thread = SameThread()
        return broker  # type: ignore[no-any-return]

    async def prepare(self, topology: Topology) -> None:
        for subscription in topology.subscriptions:
            tell = partial(self.world.tell, subscription.name.rpartition(".")[2])
            model = self.models[subscription.name] = Model(self._chance, LoopClock().monotonic, tell)
            model.all_behind = 0.5
            self._topics.setdefault(subscription.topic, []).append(model)
        self.process.spawn(self._age())

    async def put(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.publish(message.topic, [write(message)])

    async def left(self, subscription: str) -> int:
        return self.models[subscription].open_ones()

    def publish(self, topic: str, letters: Sequence[Any]) -> None:
        for one in letters:
            for model in self._topics.get(topic, ()):
                id = str(next(self._ids))
                model.take(Stored(id, one.ordering_key or id, one.data, dict(one.attributes)))

    def lag(self) -> float:
        """Seconds: long enough that there is something on its way when a stream breaks."""
        return self._chance.random() * 0.4

    async def _age(self) -> None:
        while True:
            await self.process.clock.sleep(self._chance.random())
            for model in self.models.values():
                model.pass_time()
                self._trouble(model, self.world.fates.draw(PUBSUB_SERVER))

    def _trouble(self, model: Model, fault: str) -> None:
        held = [message for message in model.messages if message.stream]
        live = [stream for stream in model.streams if not stream.ended]
        if fault == "stream breaks" and live:
            stream = self._chance.choice(live)
            stream.breaks(self._chance.randint(0, stream.on_its_way.qsize()))
        elif fault == "deadline" and held:
            model.expire([self._chance.choice(held)])
        elif fault == "all deadlines":
            model.pass_deadlines()


class Wire(Line):
    def __init__(self, post: PubSubPost, process: Process, address: Address) -> None:
        super().__init__(address)
        self._post, self._process = post, process

    def pull(self, first: Any) -> "Call":
        self._process.require_life()
        if self._post.away:
            raise BrokerUnavailable("away")
        model = self._post.models[short(first.subscription)]
        return Call(self._post, self._process, model, model.open(first.client_id))

    async def ask(self, method: str, request: Any, answer: Any, **_: Any) -> Any:
        fates = self._post.world.fates
        fault = fates.draw(PUBSUB_REQUEST)
        await self._process.step_outside(fates.latency())
        if self._post.away or fault == "lost":
            raise BrokerUnavailable("lost on the way")
        answered = getattr(self, "_" + short(method))(request)
        await self._process.step_outside(fates.latency())
        if fault == "unanswered":
            raise BrokerUnavailable("no answer")
        if isinstance(answered, dict):
            raise Rejection(grpc.StatusCode.INVALID_ARGUMENT, "", "the model", answered)
        return answered

    def _GetSubscription(self, request: Any) -> Any:  # noqa: N802
        topic = request.subscription.rpartition(".")[0].replace("/subscriptions/", "/topics/")
        return raw("Subscription")(name=request.subscription, topic=topic, ack_deadline_seconds=10)

    def _Publish(self, request: Any) -> Any:  # noqa: N802
        topic = short(request.topic)
        if not topic.endswith(".dlq"):
            self._post.taken += [Message.from_wire(topic, dict(m.attributes), m.data) for m in request.messages]
        self._post.publish(topic, request.messages)
        return raw("PublishResponse")()

    def _Acknowledge(self, request: Any) -> Any:  # noqa: N802
        return self._post.models[short(request.subscription)].acknowledge(request.ack_ids) or Empty()

    def _ModifyAckDeadline(self, request: Any) -> Any:  # noqa: N802
        self._post.models[short(request.subscription)].extend(request.ack_ids, request.ack_deadline_seconds)
        return Empty()


class Call:
    def __init__(self, post: PubSubPost, process: Process, model: Model, stream: Stream) -> None:
        self._post, self._process, self._model, self._stream = post, process, model, stream
        process.at_death[self] = self.cancel

    async def write(self, _: Any) -> None:
        """Heartbeats change nothing."""

    async def read(self) -> Any:
        await self._process.step_outside(self._post.lag())
        sent = await self._stream.on_its_way.get()
        await self._process.step_outside()
        if sent is None:
            raise BrokerUnavailable("the stream has ended")
        return letter(sent)

    def cancel(self) -> None:
        self._process.at_death.pop(self, None)
        self._model.end(self._stream)


def letter(sent: Iterable[tuple[Stored, str]]) -> Any:
    """A StreamingPullResponse."""
    answer = raw("StreamingPullResponse")()
    for message, ack_id in sent:
        received = answer.received_messages.add(ack_id=ack_id)
        received.message.message_id, received.message.data = message.id, message.data
        received.message.attributes.update(message.attributes)
        received.message.ordering_key = message.key if message.key != message.id else ""
    return answer
