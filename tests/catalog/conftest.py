"""A catalog for each test: both services on SQLite with the embedded broker, or on PostgreSQL with Pub/Sub."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg
import pytest
from fastapi import FastAPI

from examples.catalog import events
from examples.catalog.__main__ import UPLOADER
from examples.catalog.api import create_app
from examples.catalog.reader import Reader
from examples.catalog.writer import Writer
from tests.support.catalog_roles import Services, fresh_roles


@dataclass(frozen=True)
class Places:
    writes: str
    reads: str
    broker: str


@pytest.fixture(autouse=True)
def declared() -> None:
    """Anew for each test: others of this process may read these events as classes of their own."""
    events.declare()


@pytest.fixture
def roles(fresh_postgresql_url: str) -> Iterator[Services]:
    with fresh_roles(fresh_postgresql_url) as services:
        yield services


@pytest.fixture(params=["sqlite", "postgresql"])
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def places(store_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Places:
    if store_kind == "sqlite":
        here = (f"sqlite:///{tmp_path / 'write.db'}", f"sqlite:///{tmp_path / 'read.db'}")
        return Places(*here, f"embedded:{tmp_path / 'broker.db'}")
    services: Services = request.getfixturevalue("roles")
    return Places(services.writes, services.reads, str(request.getfixturevalue("pubsub_url")))


@pytest.fixture
def writer(places: Places) -> Writer:
    return Writer(places.writes, places.broker)


@pytest.fixture
def reader(places: Places) -> Reader:
    return Reader(places.reads, places.broker)


@pytest.fixture
async def app(writer: Writer, reader: Reader) -> AsyncIterator[FastAPI]:
    made = create_app(writer, reader)
    async with made.router.lifespan_context(made):
        yield made


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://catalog") as client:
        yield client


@pytest.fixture
def rain() -> dict[str, object]:
    return {"uploader_id": UPLOADER, "title": "Rain", "description": "On a tin roof", "duration_micros": 5}


def refused(url: str, sql: str) -> bool:
    """Whether the role of this address has no right to do it."""
    with psycopg.connect(url) as connection:
        try:
            connection.execute(sql)
        except psycopg.errors.InsufficientPrivilege:
            return True
    return False
