"""PostgreSQL → Pub/Sub, each event under its aggregate's ordering key."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import wait
from functools import partial
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import grpc
from google.cloud import pubsub_v1
from google.pubsub_v1 import PublisherAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.types import PubsubMessage

from bench.common import Figure, Scale, Target, fresh_road, side_by_side
from bench.pubsub.emulator import clear, start_afresh
from bench.rabbitmq.relaying import run_until_sent
from bench.rabbitmq.wire import KILOBYTE, TOPIC, messages
from bench.rows import refill
from postroad import Postroad
from postroad.brokers.pubsub.address import Address, parse
from postroad.brokers.pubsub.letter import write
from postroad.brokers.pubsub.line import connections_thread, raw
from postroad.relay import Relay

IN_FLIGHT = 128
_PublishRequest = raw("PublishRequest")


async def measure(scale: Scale, server: str, url: str) -> list[Figure]:
    events, address = scale.of(100, 10_000), parse(url)
    letters = [write(message) for message in messages(events)]
    figures = []
    async with fresh_road(server, broker_url=url) as road:
        relay = Relay(road.store, road.broker)

        async def ours() -> float:
            await refill(road, events, keys=events, customer=KILOBYTE)
            return await run_until_sent(relay, events)

        # In the thread of our own connections: gRPC serves every loop from one queue.
        by_hand = partial(connections_thread().run, _publish_by_hand, address, letters)
        against: tuple[tuple[str, Callable[[], Awaitable[float]], Target | None], ...] = (
            ("PublisherAsyncClient", partial(by_hand, _publish), Target(0.7)),
            ("plain requests", partial(by_hand, _publish_plainly), None),
            ("PublisherClient", partial(asyncio.to_thread, _publish_with_futures, address, letters), Target(5)),
        )
        for name, bare, target in against:
            rates = await side_by_side(scale.of(1, 5), partial(_afresh, road, ours), partial(_afresh, road, bare))
            note = f"1 KB, {events:,} keys, a key per request"
            figures.append(Figure(f"Pub/Sub, relay / {name}", *rates, "events/s", target, note))
    return figures


async def _afresh(road: Postroad, work: Callable[[], Awaitable[float]]) -> float:
    await start_afresh(road)
    try:
        return await work()
    finally:
        await clear(road)


Publish = Callable[[PublisherAsyncClient, str, Any], Awaitable[Any]]


async def _publish_by_hand(address: Address, letters: Sequence[Any], publish: Publish) -> float:
    """Requests made by hand, many on their way at once."""
    channel = grpc.aio.insecure_channel(address.emulator)
    client = PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))
    topic, waiting = address.topic(TOPIC), iter(letters)

    async def walk() -> int:
        return sum([len((await publish(client, topic, letter)).message_ids) for letter in waiting])

    begun = time.perf_counter()
    assert sum(await asyncio.gather(*(walk() for _ in range(IN_FLIGHT)))) == len(letters)
    seconds = time.perf_counter() - begun
    await channel.close()
    return len(letters) / seconds


async def _publish(client: PublisherAsyncClient, topic: str, letter: Any) -> Any:
    """As Google's reference has it."""
    message = PubsubMessage(data=letter.data, ordering_key=letter.ordering_key, attributes=dict(letter.attributes))
    return await client.publish(topic=topic, messages=[message], timeout=20)


async def _publish_plainly(client: PublisherAsyncClient, topic: str, letter: Any) -> Any:
    """Beneath that client's interface, with the protobuf classes that it wraps."""
    route = (("x-goog-request-params", f"topic={quote(topic, safe='')}"),)
    return await client.transport.publish(_PublishRequest(topic=topic, messages=[letter]), timeout=20, metadata=route)


def _publish_with_futures(address: Address, letters: Sequence[Any]) -> float:
    """As Google's guide has it: its batches, its threads, and a future for each message."""
    options = pubsub_v1.types.PublisherOptions(enable_message_ordering=True)
    with patch.dict(os.environ, {"PUBSUB_EMULATOR_HOST": address.emulator}):
        client = pubsub_v1.PublisherClient(publisher_options=options)
    topic, begun = address.topic(TOPIC), time.perf_counter()
    futures = [
        client.publish(topic, letter.data, ordering_key=letter.ordering_key, **letter.attributes) for letter in letters
    ]
    assert not wait(futures, timeout=300).not_done
    seconds = time.perf_counter() - begun
    client.stop()
    return len(letters) / seconds
