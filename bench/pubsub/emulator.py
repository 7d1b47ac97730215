"""What the emulator keeps: every message, for as long as its topic is there, until its memory is full."""

from google.protobuf.empty_pb2 import Empty

from bench.rabbitmq.wire import TOPIC
from postroad import Postroad
from postroad.brokers.base import Subscription, Topology
from postroad.brokers.pubsub.address import parse
from postroad.brokers.pubsub.line import Line, Rejection, connections_thread, raw


async def start_afresh(road: Postroad, *subscriptions: str) -> None:
    """A new topic with these subscriptions, and nothing in it."""
    await clear(road, *subscriptions)
    await road.broker.apply(Topology((TOPIC,), tuple(Subscription(name, TOPIC) for name in subscriptions)))


async def clear(road: Postroad, *subscriptions: str) -> None:
    for name in subscriptions:
        await road.broker.drop(name)
    await connections_thread().run(_delete_topic, road.broker_url)


async def _delete_topic(url: str) -> None:
    address = parse(url)
    line, request = Line(address), raw("DeleteTopicRequest")(topic=address.topic(TOPIC))
    try:
        await line.ask("Publisher/DeleteTopic", request, Empty, about="topic")
    except Rejection:
        pass  # there was none
    finally:
        await line.aclose()
