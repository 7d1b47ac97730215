"""Pub/Sub as an outsider sees it: to break what the adapter relies on, and to look at what it did."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import uuid4

from google.protobuf.empty_pb2 import Empty

from postroad.brokers import connect_broker
from postroad.brokers.pubsub.address import Address, parse
from postroad.brokers.pubsub.broker import PubSubBroker
from postroad.brokers.pubsub.line import Line, connections_thread, raw
from postroad.clock import SystemClock


def fresh_project(url: str) -> str:
    """The emulator makes a project of any name."""
    return f"pubsub://test-{uuid4().hex[:16]}?emulator={parse(url).emulator}"


def through(url: str, port: int) -> str:
    """The same emulator by way of another port."""
    return f"pubsub://{parse(url).project}?emulator=127.0.0.1:{port}"


def connected(url: str, **options: object) -> PubSubBroker:
    """A broker; `options` are added to the URL's."""
    broker = connect_broker(
        "&".join([url, *(f"{name}={value}" for name, value in options.items())]), clock=SystemClock()
    )
    assert isinstance(broker, PubSubBroker)
    return broker


class Outsider:
    """A connection of its own, and the few calls that the tests need."""

    def __init__(self, address: Address) -> None:
        self.address, self.line = address, Line(address)

    async def _ask(self, method: str, request: Any, answer: Any, *, about: str) -> Any:
        return await connections_thread().run(partial(self.line.ask, about=about), method, request, answer)

    async def subscription(self, name: str) -> Any:
        request = raw("GetSubscriptionRequest")(subscription=self.address.subscription(name))
        return await self._ask("Subscriber/GetSubscription", request, raw("Subscription"), about="subscription")

    async def topic(self, name: str) -> Any:
        request = raw("GetTopicRequest")(topic=self.address.topic(name))
        return await self._ask("Publisher/GetTopic", request, raw("Topic"), about="topic")

    async def create(self, subscription: Any) -> None:
        await self._ask("Subscriber/CreateSubscription", subscription, raw("Subscription"), about="name")

    async def delete(self, subscription: str) -> None:
        request = raw("DeleteSubscriptionRequest")(subscription=self.address.subscription(subscription))
        await self._ask("Subscriber/DeleteSubscription", request, Empty, about="subscription")

    async def delete_schema(self, name: str) -> None:
        request = raw("DeleteSchemaRequest")(name=self.address.schema(name))
        await self._ask("SchemaService/DeleteSchema", request, Empty, about="name")

    async def detach_schema(self, topic: str) -> None:
        request = raw("UpdateTopicRequest")(topic=raw("Topic")(name=self.address.topic(topic)))
        request.update_mask.paths.append("schema_settings")
        await self._ask("Publisher/UpdateTopic", request, raw("Topic"), about="topic.name")

    async def pull(self, subscription: str) -> list[Any]:
        path = self.address.subscription(subscription)
        request = raw("PullRequest")(subscription=path, max_messages=1_000, return_immediately=True)
        answer = await self._ask("Subscriber/Pull", request, raw("PullResponse"), about="subscription")
        return list(answer.received_messages)

    async def nack(self, subscription: str, *ack_ids: str) -> None:
        await self.lease(subscription, 0, *ack_ids)

    async def lease(self, subscription: str, seconds: int, *ack_ids: str) -> None:
        """From now on."""
        path = self.address.subscription(subscription)
        request = raw("ModifyAckDeadlineRequest")(subscription=path, ack_ids=ack_ids, ack_deadline_seconds=seconds)
        await self._ask("Subscriber/ModifyAckDeadline", request, Empty, about="subscription")


@asynccontextmanager
async def outsider(url: str) -> AsyncIterator[Outsider]:
    one = Outsider(parse(url))
    yield one
    await connections_thread().run(one.line.aclose)


def overheard(broker: PubSubBroker, method: str, hear: Callable[[Any], Any]) -> None:
    """`hear` is awaited with each request of a method before it is sent; what it raises is the answer."""
    ask = broker._line.ask

    async def tell(asked: str, request: Any, *arguments: Any, **options: Any) -> Any:
        if asked == method:
            await hear(request)
        return await ask(asked, request, *arguments, **options)

    broker._line.ask = tell  # type: ignore[method-assign]


class Gate:
    """Requests of a method wait before it until it is opened."""

    def __init__(self, broker: PubSubBroker, method: str) -> None:
        self.waiting = 0
        self._loop, self._reached, self._opened = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        overheard(broker, method, self._wait)

    async def reached(self) -> None:
        await self._reached.wait()

    def open(self) -> None:
        connections_thread().post(self._opened.set)

    async def _wait(self, _: Any) -> None:
        self.waiting += 1
        self._loop.call_soon_threadsafe(self._reached.set)
        await self._opened.wait()
        self.waiting -= 1
