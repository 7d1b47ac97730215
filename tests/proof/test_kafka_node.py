"""A Kafka of our own, stopped and started while messages are on their way."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroad.brokers.base import Confirmed, Receiver
from postroad.errors import BrokerUnavailable
from postroad.testing.post import Post
from proof.chaos.servers import Server, installed
from tests.support.components import missing
from tests.support.kafka import awake, connected


@pytest.fixture
async def kafka_node(tmp_path: Path) -> AsyncIterator[Server]:
    if not installed("kafka"):
        missing("kafka", "neither mvn nor java is installed")
    server = Server("kafka", tmp_path)
    await server.create()
    await server.start()
    yield server
    await server.stop()


@pytest.mark.timeout(600)
@pytest.mark.spec("P6")
async def test_a_server_that_restarts_costs_duplicates_at_most(kafka_node: Server) -> None:
    broker = connected(awake(kafka_node.url), publish_timeout=2)
    post = Post(broker)
    await broker.apply(post.topology)
    receiver, steps, keys = await post.subscribe(), 60, [f"k{n}" for n in range(5)]
    seen: dict[str, list[int]] = {key: [] for key in keys}
    sending = asyncio.create_task(send_all(post, keys, steps))
    receiving = asyncio.create_task(receive_all(receiver, seen))
    for so_far in (10, 30):
        await until_seen(so_far, seen, sending, receiving)
        await kafka_node.restart()
    await until_seen(steps, seen, sending, receiving)
    await sending
    assert seen == {key: list(range(steps)) for key in keys}
    # Of the last ones too there may be duplicates, and they are still being received.
    assert await post.has_depth(0)
    receiving.cancel()
    await asyncio.wait([receiving])

    # And while it is away, that is said, and nobody has to wait for it to come back before he may go.
    await kafka_node.stop()
    async with asyncio.timeout(120):
        await until_said_to_be_away(receiver, f"127.0.0.1:{kafka_node.port}")
        await broker.aclose()


async def until_seen(steps: int, seen: dict[str, list[int]], *working: asyncio.Task[None]) -> None:
    while min(map(len, seen.values())) < steps:
        for task in working:
            if task.done():
                task.result()
        await asyncio.sleep(0.01)


async def send_all(post: Post, keys: list[str], steps: int) -> None:
    """As a relay does it: of each key the next one when the one before it is confirmed."""
    left = dict.fromkeys(keys, 0)
    while left:
        heads = list(left.items())
        outcomes = await post.broker.send([post.message(key, str(step)) for key, step in heads])
        for (key, step), outcome in zip(heads, outcomes, strict=True):
            if outcome == Confirmed():
                left[key] = step + 1
                if left[key] == steps:
                    del left[key]
        await asyncio.sleep(0.01)


async def receive_all(receiver: Receiver, seen: dict[str, list[int]]) -> None:
    while True:
        try:
            deliveries = await receiver.receive()
        except BrokerUnavailable:
            continue
        for delivery in deliveries:
            if (step := int(delivery.data)) not in seen[delivery.key]:
                seen[delivery.key].append(step)
            await delivery.ack()


async def until_said_to_be_away(receiver: Receiver, address: str) -> None:
    """Something else may be said before: a group's trouble of the moment, or what came again."""
    while True:
        try:
            await receiver.receive()
        except BrokerUnavailable as error:
            if address in str(error):
                return
