"""A shop for each test: `open_shop(pending_minutes=…)` on the database and the broker that the test is run with."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.marketplace import wording
from examples.marketplace.settings import Settings
from examples.marketplace.shop import Shop
from postroad.retry import Backoff
from tests.support.components import address
from tests.support.rabbitmq import fresh_vhost

OpenShop = Callable[..., Awaitable[Shop]]
QUICK = Backoff(attempts=3, base=0.01)


@pytest.fixture
def store_kind() -> str:
    return "sqlite"


@pytest.fixture
def broker_kind() -> str:
    return "embedded"


@pytest.fixture
def broker_address(broker_kind: str, tmp_path: Path) -> Iterator[str]:
    """The names on RabbitMQ are frozen, so every test has a virtual host of its own."""
    if broker_kind == "embedded":
        yield f"embedded:{tmp_path / 'broker.db'}"
        return
    with fresh_vhost(address("rabbitmq")) as url:
        yield url


@pytest.fixture
async def open_shop(database_url: str, broker_address: str) -> AsyncIterator[OpenShop]:
    opened: list[Shop] = []

    async def open(**settings: Any) -> Shop:
        given = {"database_url": database_url, "broker_url": broker_address, "consumer_backoff": QUICK, **settings}
        shop = Shop(Settings(**given))
        opened.append(shop)
        await shop.prepare()
        return shop

    yield open
    for shop in opened:
        await shop.aclose()


@pytest.fixture
async def shop(open_shop: OpenShop) -> Shop:
    return await open_shop()


@pytest.fixture
def words(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The log as the shop writes it."""
    caplog.set_level(logging.INFO)
    wording.install()
    yield caplog
    wording.remove()
