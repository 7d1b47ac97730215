"""A node of these tests' own, which runs out of memory, is restarted and is killed."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from postroad.brokers.base import Confirmed, Flow, Receiver, Unavailable
from postroad.errors import BrokerUnavailable
from postroad.testing.post import Post
from proof.chaos.servers import Server, installed
from tests.support.components import ROOT, missing
from tests.support.rabbitmq import confirmed, connected

PATIENCE = 60.0


class Node:
    def __init__(self, folder: Path) -> None:
        self.server, self._folder = Server("rabbitmq", folder), folder / "rabbitmq"

    def control(self, *arguments: str) -> None:
        command = [ROOT / "proof/chaos/server.sh", "rabbitmq", self._folder, str(self.server.port), "control"]
        subprocess.run(["bash", *command, *arguments], check=True, capture_output=True, timeout=PATIENCE)

    async def kill(self) -> None:
        os.kill(int((self._folder / "data" / "node.pid").read_text()), signal.SIGKILL)
        await self.server.stop()


@pytest.fixture(scope="module")
def rabbitmq_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    if not installed("rabbitmq"):
        missing("rabbitmq", "its programs are not installed, and these tests restart it")
    node = Node(tmp_path_factory.mktemp("node"))

    async def start() -> None:
        await node.server.create()
        await node.server.start()

    asyncio.run(start())
    yield node
    asyncio.run(node.kill())


@pytest.fixture
async def posts(rabbitmq_node: Node) -> AsyncIterator[list[Post]]:
    """One with classic queues and one with quorum queues: a restart takes long, and serves both."""
    found = []
    for queue_type in ("classic", "quorum"):
        broker = connected(rabbitmq_node.server.url, publish_timeout=3, queue_type=queue_type, prefetch=200)
        found.append(Post(broker, patience=PATIENCE))
        await broker.apply(found[-1].topology)
    yield found
    for post in found:
        await post.broker.aclose()


async def test_a_server_short_of_memory_takes_nothing_but_still_gives(posts: list[Post], rabbitmq_node: Node) -> None:
    own_post, _ = posts
    own = own_post.broker
    receiver = await own_post.subscribe()
    await own_post.send_texts("k", "a")
    rabbitmq_node.control("set_vm_memory_high_watermark", "0")
    try:
        message = own_post.message("k", "b")
        assert list(await own.send([message])) == [Unavailable("no confirmation within 3 s")]
        (outcome,) = await own.send([message])
        assert isinstance(outcome, Unavailable)
        assert "takes no messages at the moment: low on memory" in outcome.reason
        (delivery,) = await own_post.take(receiver, 1)
        await delivery.retry(1.0)
        (delivery,) = await own_post.take(receiver, 1)  # it could not be sent away, and has waited here
        assert (await own.depth(own_post.subscription.name)).messages == 1
        await delivery.ack()
    finally:
        rabbitmq_node.control("set_vm_memory_high_watermark", "0.4")
    assert await confirmed(own, message)
    # What was given up may have arrived in the end: then it comes twice.
    assert await everything(receiver, {"b"})


async def test_nothing_is_lost_when_the_node_is_restarted(posts: list[Post], rabbitmq_node: Node) -> None:
    receivers = [await post.subscribe(Flow(messages=10)) for post in posts]
    due = datetime.now(UTC) + timedelta(seconds=6)
    for post, receiver in zip(posts, receivers, strict=True):
        await post.send(*(post.message(f"k{n}", f"now {n}") for n in range(50)))
        await post.send(*(post.message(f"d{n}", f"later {n}", deliver_at=due) for n in range(20)))
        for delivery in await receiver.receive():
            await delivery.retry(1.0)
    await rabbitmq_node.server.restart()
    expected = {f"now {n}" for n in range(50)} | {f"later {n}" for n in range(20)}
    for receiver in receivers:
        assert await everything(receiver, expected)


async def test_nothing_confirmed_is_lost_when_the_node_is_killed(posts: list[Post], rabbitmq_node: Node) -> None:
    # Which quorum queues there are, a node writes to disk only now and then; here it is to lose no messages.
    rabbitmq_node.control("eval", "[dets:sync(Table) || Table <- dets:all()].")
    sendings = [Sending(post) for post in posts]
    tasks = [asyncio.create_task(sending.run()) for sending in sendings]
    async with asyncio.timeout(PATIENCE):
        for sending in sendings:
            await sending.enough.wait()
        await rabbitmq_node.kill()
        await asyncio.gather(*tasks)
    await rabbitmq_node.server.start()
    for sending in sendings:
        assert await everything(await until_there(sending.post), sending.taken)


class Sending:
    """Sends until the server is gone, and keeps what was confirmed."""

    def __init__(self, post: Post) -> None:
        self.post = post
        self.taken: set[str] = set()
        self.enough = asyncio.Event()

    async def run(self) -> None:
        number = 0
        while True:
            texts = [f"{number + n}" for n in range(50)]
            number += len(texts)
            outcomes = await self.post.broker.send([self.post.message(f"k{text}", text) for text in texts])
            self.taken.update(text for text, outcome in zip(texts, outcomes, strict=True) if outcome == Confirmed())
            if len(self.taken) >= 500:
                self.enough.set()
            if Unavailable in map(type, outcomes):
                return


async def until_there(post: Post) -> Receiver:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await post.subscribe()
            except BrokerUnavailable:
                await asyncio.sleep(0.1)


async def everything(receiver: Receiver, expected: set[str]) -> bool:
    """All that is expected comes, be it more than once."""
    seen: set[str] = set()
    async with asyncio.timeout(PATIENCE):
        while not expected <= seen:
            for delivery in await receiver.receive():
                seen.add(delivery.data.decode())
                await delivery.ack()
    return True
