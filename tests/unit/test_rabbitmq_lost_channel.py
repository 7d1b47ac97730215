"""Of a channel that is lost nothing more is handed out, even before anybody has said that it is lost."""

from types import SimpleNamespace
from typing import Any

from postroad.brokers._thread import LoopThread
from postroad.brokers.base import Flow
from postroad.brokers.rabbitmq.consumer import Arrival, Interrupted
from postroad.brokers.rabbitmq.receiver import RabbitReceiver, Terms
from postroad.clock import SystemClock


def arrival(generation: int, version: int) -> Arrival:
    attributes = {"aggregate_type": "order", "aggregate_id": "a", "version": str(version)}
    return Arrival(generation, version, attributes, b"", "", "", None, False)


async def test_nothing_goes_past_what_was_given_back_to_a_channel_that_is_lost() -> None:
    terms = Terms("t", "t.g", Flow(), prefetch=20, shortest=1.0, exclusive=True)
    receiver = RabbitReceiver(LoopThread("never begun"), SystemClock(), None, terms)  # type: ignore[arg-type]
    consumer: Any = SimpleNamespace(generation=1)
    receiver.consumer = consumer
    receiver.tell(arrival(1, 1))
    (first,) = await receiver.receive()
    consumer.generation = 0  # the channel is closed, and the word of it still on its way
    await first.retry(0.1)
    receiver.tell(arrival(1, 2))
    receiver._listen()
    assert receiver._hand_out() == []
    consumer.generation = 2
    for told in (Interrupted(1), arrival(2, 1), arrival(2, 2)):
        receiver.tell(told)
    assert [delivery.attributes["version"] for delivery in await receiver.receive()] == ["1", "2"]
