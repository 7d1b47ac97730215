"""RabbitMQ as an outsider sees it: to break what the adapter relies on, and to look at what it did."""

import asyncio
import base64
import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import uuid4

import pika

from postroad.brokers import connect_broker
from postroad.brokers.base import Broker, Confirmed
from postroad.brokers.rabbitmq.address import parse
from postroad.brokers.rabbitmq.broker import RabbitBroker
from postroad.clock import SystemClock
from postroad.message import Message


def connected(url: str, **options: object) -> RabbitBroker:
    """A broker; `options` are added to the URL's."""
    broker: Broker = connect_broker(with_options(url, **options), clock=SystemClock())
    assert isinstance(broker, RabbitBroker)
    return broker


def with_options(url: str, **options: object) -> str:
    return "&".join([url, *(f"{name}={value}" for name, value in options.items())])


def through(url: str, port: int) -> str:
    """The same server by way of another port."""
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{port}"))


@contextmanager
def fresh_vhost(url: str) -> Iterator[str]:
    """A virtual host of one's own, removed afterwards with all that is in it."""
    name = f"test_{uuid4().hex[:12]}"
    api(url, f"/api/vhosts/{name}", "PUT", {})
    api(url, f"/api/permissions/{name}/{parse(url).user}", "PUT", {"configure": ".*", "write": ".*", "read": ".*"})
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    finally:
        api(url, f"/api/vhosts/{name}", "DELETE")


def api(url: str, path: str, method: str = "GET", body: object = None) -> Any:
    address = parse(url)
    login = base64.b64encode(f"{address.user}:{address.password}".encode()).decode()
    request = urllib.request.Request(
        address.management_url + path.replace("{vhost}", quote(address.vhost, safe="")),
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Basic {login}", "Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        text = response.read()
        return json.loads(text) if text else None


@contextmanager
def outsider(url: str) -> Iterator[Any]:
    """pika's blocking channel."""
    connection = pika.BlockingConnection(parse(url).parameters("look on"))
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()


async def confirmed(broker: Broker, message: Message) -> bool:
    """As a relay does it: again and again, until it is."""
    async with asyncio.timeout(30.0):
        for pause in count(1):
            if (await broker.send([message]))[0] == Confirmed():
                return True
            await asyncio.sleep(0.01 * pause)
    return False
