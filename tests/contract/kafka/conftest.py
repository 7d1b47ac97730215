"""A broker on a real Kafka."""

from collections.abc import AsyncIterator

import pytest

from postroad.brokers.kafka.broker import KafkaBroker
from postroad.testing.post import Post
from tests.support.kafka import connected


@pytest.fixture
async def broker(kafka_url: str) -> AsyncIterator[KafkaBroker]:
    broker = connected(kafka_url)
    yield broker
    await broker.aclose()


@pytest.fixture
async def post(broker: KafkaBroker) -> Post:
    post = Post(broker)
    await broker.apply(post.topology)
    return post
