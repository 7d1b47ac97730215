"""A topic, a subscription and the few steps that nearly every test of a broker consists of."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from postroad.brokers.base import Broker, Confirmed, Delivery, Flow, Receiver, Subscription, Topology
from postroad.message import Message


class Post:
    """One topic with one subscription, and what a test does with them."""

    def __init__(self, broker: Broker, *, patience: float = 30.0, silence: float = 0.15, **settings: Any) -> None:
        """`settings` are those of the subscription."""
        self.broker = broker
        self.topic = f"contract.t{uuid4().hex[:12]}.events"
        self.subscription = Subscription(f"{self.topic}.readers", self.topic, **settings)
        self.patience, self.silence = patience, silence

    @property
    def topology(self) -> Topology:
        return Topology((self.topic,), (self.subscription,))

    def message(self, key: str = "k", text: str = "", **changes: object) -> Message:
        values: dict[str, object] = {
            "id": uuid4(),
            "type": "thing.happened",
            "topic": self.topic,
            "aggregate_type": "thing",
            "aggregate_id": key,
            "version": 1,
            "occurred_at": datetime.now(UTC),
            "payload": text.encode(),
        }
        return Message(**(values | changes))  # type: ignore[arg-type]

    async def send(self, *messages: Message) -> None:
        outcomes = await self.broker.send(messages)
        assert list(outcomes) == [Confirmed()] * len(messages)

    async def send_texts(self, key: str, texts: str) -> None:
        """One message per letter."""
        await self.send(*(self.message(key, text) for text in texts))

    async def subscribe(self, flow: Flow | None = None) -> Receiver:
        return await self.broker.subscribe(self.subscription.name, flow or Flow())

    async def take(self, receiver: Receiver, count: int) -> list[Delivery]:
        """The next `count` deliveries, unsettled."""
        taken: list[Delivery] = []
        async with asyncio.timeout(self.patience):
            while len(taken) < count:
                taken += await receiver.receive()
        assert len(taken) == count
        return taken

    async def take_texts(self, receiver: Receiver, count: int) -> str:
        """The texts of the next `count` deliveries, each acknowledged before the next is asked for."""
        texts = ""
        async with asyncio.timeout(self.patience):
            while len(texts) < count:
                for delivery in await receiver.receive():
                    texts += delivery.data.decode()
                    await delivery.ack()
        assert len(texts) == count
        return texts

    async def nothing_comes(self, receiver: Receiver) -> bool:
        try:
            async with asyncio.timeout(self.silence):
                return not await receiver.receive()
        except TimeoutError:
            return True

    async def eventually(self, condition: Callable[[], Awaitable[bool]]) -> bool:
        """Some brokers count with a delay."""
        deadline = time.monotonic() + self.patience
        while not await condition():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.05)
        return True

    async def has_depth(self, messages: int) -> bool:
        async def reached() -> bool:
            return (await self.broker.depth(self.subscription.name)).messages == messages

        return await self.eventually(reached)
