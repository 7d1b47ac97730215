"""Healthy installations, with the embedded broker on each store and with RabbitMQ: staffed, and nothing to find."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from postroad import Postroad
from postroad.stores import open_store
from tests.support.clinic import TOPIC, Clinic, handle_parcels
from tests.support.outbox import Recycled, emptied
from tests.support.rabbitmq import fresh_vhost

Open = Callable[..., Postroad]


@pytest.fixture
async def store_url(store_url: str) -> str:
    """Of its store's lasting database, emptied: for faults that leave the schema as it is."""
    store = open_store(store_url)
    await emptied(store)
    await store.aclose()
    return store_url


@pytest.fixture
async def open_road(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    """Makes a Postroad that is closed in the end; it knows no events but its own."""
    monkeypatch.setattr("postroad.app.known_topics", lambda: {TOPIC})
    made: list[Postroad] = []

    def make(database_url: str, broker_url: str = "", **options: Any) -> Postroad:
        broker = broker_url or f"embedded:{tmp_path / 'broker.db'}"
        made.append(handle_parcels(Postroad("post", database_url, broker, **options)))
        return made[-1]

    yield make
    for road in made:
        await road.aclose()


@pytest.fixture
async def unstaffed(store_url: str, open_road: Open) -> Clinic:
    return await Clinic(open_road(store_url)).prepare()


@pytest.fixture
async def clinic(unstaffed: Clinic) -> Clinic:
    return await unstaffed.staff()


@pytest.fixture
async def fresh_clinic(database_url: str, open_road: Open) -> Clinic:
    """In a database that nobody uses afterwards."""
    return await (await Clinic(open_road(database_url)).prepare()).staff()


@pytest.fixture
async def postgresql_clinic(fresh_postgresql_url: str, open_road: Open) -> Clinic:
    return await (await Clinic(open_road(fresh_postgresql_url)).prepare()).staff()


@pytest.fixture
async def pubsub_clinic(store_url: str, pubsub_url: str, open_road: Open) -> Clinic:
    road = open_road(store_url, pubsub_url)
    return await (await Clinic(road).prepare()).staff()


@pytest.fixture
async def rabbit_clinic(recycled: Recycled, rabbitmq_url: str, open_road: Open) -> AsyncIterator[Clinic]:
    """With PostgreSQL and a virtual host of its own."""
    with fresh_vhost(rabbitmq_url) as url:
        road = open_road(recycled.url("postgresql"), url)
        await emptied(road.store)
        yield await (await Clinic(road).prepare()).staff()
        await road.aclose()
