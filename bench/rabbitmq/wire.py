"""RabbitMQ by hand: what can be had of the Python clients without an outbox, an inbox or an order."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import aio_pika
import pika
from pika.adapters.asyncio_connection import AsyncioConnection

from bench.common import OrderPlaced
from postroad.brokers.rabbitmq.address import parse
from postroad.brokers.rabbitmq.letter import Letter, write
from postroad.codec import json
from postroad.events import event_type_of
from postroad.message import Message

TOPIC, ROUTING_KEY = "bench.order.events", "bench.order.placed"
KILOBYTE = "x" * 950
IN_FLIGHT = 1_000


def messages(number: int) -> list[Message]:
    """The first events of orders, of one kilobyte each."""
    kind, now = event_type_of(OrderPlaced), datetime.now(UTC)
    return [
        Message(
            id=uuid4(),
            type=kind.name,
            topic=kind.topic,
            aggregate_type="order",
            aggregate_id=(order_id := uuid4().hex),
            version=1,
            occurred_at=now,
            payload=json.encode(OrderPlaced(order_id=order_id, customer=KILOBYTE, cents=4200), kind),
            correlation_id=str(uuid4()),
        )
        for _ in range(number)
    ]


def letters(number: int) -> list[Letter]:
    """The same as RabbitMQ carries them for us, down to the headers."""
    written = [write(message, TOPIC, ROUTING_KEY, datetime.now(UTC)) for message in messages(number)]
    return [letter for letter in written if isinstance(letter, Letter)]


@asynccontextmanager
async def channel(url: str) -> AsyncIterator[Any]:
    """pika's own, on this event loop; the fastest of the clients."""
    loop = asyncio.get_running_loop()
    connected, opened, closed = loop.create_future(), loop.create_future(), loop.create_future()
    connection = AsyncioConnection(
        parse(url).parameters("bare"), on_open_callback=connected.set_result, custom_ioloop=loop
    )
    await connected
    connection.channel(on_open_callback=opened.set_result)
    try:
        yield await opened
    finally:
        connection.add_on_close_callback(lambda *_: closed.set_result(None))
        connection.close()
        await closed


async def confirming(channel: Any, on_confirm: Callable[[int, bool], None]) -> None:
    """Tells of each confirm: up to which number, and whether all before it are meant too."""
    ready = asyncio.get_running_loop().create_future()
    channel.confirm_delivery(
        lambda frame: on_confirm(frame.method.delivery_tag, frame.method.multiple), callback=ready.set_result
    )
    await ready


async def publish_with_pika(url: str, letters: Sequence[Letter]) -> float:
    """Letters per second, confirmed."""
    done = asyncio.get_running_loop().create_future()
    published = confirmed = 0

    def on_confirm(number: int, multiple: bool) -> None:
        nonlocal confirmed
        confirmed = max(confirmed, number) if multiple else confirmed + 1
        go_on()
        if confirmed >= len(letters) and not done.done():
            done.set_result(None)

    def go_on() -> None:
        nonlocal published
        while published < len(letters) and published - confirmed < IN_FLIGHT:
            letter = letters[published]
            opened.basic_publish(letter.exchange, letter.routing_key, letter.body, letter.properties)
            published += 1

    async with channel(url) as opened:
        await confirming(opened, on_confirm)
        begun = time.perf_counter()
        go_on()
        await done
        return len(letters) / (time.perf_counter() - begun)


async def publish_with_aio_pika(url: str, letters: Sequence[Letter]) -> float:
    address = parse(url)
    connection = await aio_pika.connect(
        host=address.host, port=address.port, login=address.user, password=address.password, virtualhost=address.vhost
    )
    async with connection:
        exchange = await (await connection.channel()).get_exchange(letters[0].exchange, ensure=False)
        messages = [
            aio_pika.Message(
                letter.body, headers=letter.properties.headers, delivery_mode=aio_pika.DeliveryMode.PERSISTENT
            )
            for letter in letters
        ]
        waiting = iter(zip(messages, letters, strict=True))

        async def publish() -> None:
            for message, letter in waiting:
                await exchange.publish(message, letter.routing_key, mandatory=False)

        begun = time.perf_counter()
        await asyncio.gather(*(publish() for _ in range(IN_FLIGHT)))
        return len(letters) / (time.perf_counter() - begun)


def purge(url: str, queue: str) -> None:
    with pika.BlockingConnection(parse(url).parameters("purge")) as connection:
        connection.channel().queue_purge(queue)
