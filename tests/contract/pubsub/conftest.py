"""A broker on the emulator, one behind a proxy, and somebody who knows nothing of either."""

from collections.abc import AsyncIterator

import pytest

from postroad.brokers.pubsub.address import parse
from postroad.brokers.pubsub.broker import PubSubBroker
from postroad.testing.post import Post
from proof.chaos.proxy import Proxy
from tests.support.pubsub import Outsider, connected, outsider, through


@pytest.fixture
async def broker(pubsub_url: str) -> AsyncIterator[PubSubBroker]:
    broker = connected(pubsub_url)
    yield broker
    await broker.aclose()


@pytest.fixture
async def post(broker: PubSubBroker) -> Post:
    post = Post(broker)
    await broker.apply(post.topology)
    return post


@pytest.fixture
async def proxy(pubsub_url: str) -> AsyncIterator[Proxy]:
    host, _, port = parse(pubsub_url).emulator.rpartition(":")
    proxy = Proxy(host, int(port))
    await proxy.start()
    yield proxy
    await proxy.aclose()


@pytest.fixture
async def distant(pubsub_url: str, proxy: Proxy) -> AsyncIterator[PubSubBroker]:
    """A broker behind a proxy that can cut and stall."""
    broker = connected(through(pubsub_url, proxy.port), publish_timeout=1)
    yield broker
    proxy.resume()
    await broker.aclose()


@pytest.fixture
async def visitor(pubsub_url: str) -> AsyncIterator[Outsider]:
    async with outsider(pubsub_url) as one:
        yield one
