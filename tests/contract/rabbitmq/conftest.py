"""A broker on a real RabbitMQ, one behind a proxy, and a channel that knows nothing of either."""

from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from postroad.brokers.rabbitmq.broker import RabbitBroker
from postroad.testing.post import Post
from proof.chaos.proxy import Proxy
from tests.support.rabbitmq import connected, outsider, through


@pytest.fixture
async def broker(rabbitmq_url: str) -> AsyncIterator[RabbitBroker]:
    broker = connected(rabbitmq_url)
    yield broker
    await broker.aclose()


@pytest.fixture
async def post(broker: RabbitBroker) -> Post:
    post = Post(broker)
    await broker.apply(post.topology)
    return post


@pytest.fixture
async def proxy(rabbitmq_url: str) -> AsyncIterator[Proxy]:
    proxy = Proxy("127.0.0.1", urlsplit(rabbitmq_url).port or 0)
    await proxy.start()
    yield proxy
    await proxy.aclose()


@pytest.fixture
async def distant(rabbitmq_url: str, proxy: Proxy) -> AsyncIterator[RabbitBroker]:
    """A broker behind a proxy that can cut and stall."""
    broker = connected(through(rabbitmq_url, proxy.port), publish_timeout=2)
    yield broker
    proxy.resume()
    await broker.aclose()


@pytest.fixture
def channel(rabbitmq_url: str) -> Iterator[Any]:
    with outsider(rabbitmq_url) as channel:
        yield channel
