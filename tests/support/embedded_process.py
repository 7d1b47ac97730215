"""A publisher or a consumer of the embedded broker as a process of its own.

    python -m tests.support.embedded_process publish FILE NAME COUNT
    python -m tests.support.embedded_process consume FILE LOG
    python -m tests.support.embedded_process hold FILE LOG      (takes one batch and never settles it)

A consumer creates its log when it has subscribed, and appends a line per delivery: nanoseconds of the
machine's monotonic clock, key, number, attempt.
"""

import asyncio
import os
import sys
import time
from datetime import UTC, datetime
from uuid import uuid4

from postroad.brokers.base import Broker, Confirmed, Delivery, Flow, Subscription, Topology
from postroad.brokers.embedded import connect
from postroad.clock import SystemClock
from postroad.message import Message

TOPIC = "shop.order.events"
SUBSCRIPTION = Subscription(f"{TOPIC}.shop-receipts", TOPIC, ack_deadline=0.6)
TOPOLOGY = Topology((TOPIC,), (SUBSCRIPTION,))
KEYS = 10


def message(key: str, number: int) -> Message:
    return Message(
        id=uuid4(),
        type="order.placed",
        topic=TOPIC,
        aggregate_type="order",
        aggregate_id=key,
        version=number,
        occurred_at=datetime.now(UTC),
        payload=b"",
    )


async def publish(broker: Broker, name: str, count: int) -> None:
    for first in range(0, count, 20):
        batch = [message(f"{name}-{n % KEYS}", n) for n in range(first, min(first + 20, count))]
        outcomes = await broker.send(batch)
        assert all(outcome == Confirmed() for outcome in outcomes), outcomes


async def consume(broker: Broker, log: str, *, settle: bool) -> None:
    receiver = await broker.subscribe(SUBSCRIPTION.name, Flow(messages=25))
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        for delivery in await receiver.receive():
            os.write(file, line(delivery))
            if settle:
                await delivery.ack()


def line(delivery: Delivery) -> bytes:
    version = delivery.attributes["version"]
    return f"{time.monotonic_ns()} {delivery.key} {version} {delivery.attempt}\n".encode()


async def main(role: str, path: str, *arguments: str) -> None:
    broker = connect(f"embedded:{path}", clock=SystemClock())
    await broker.apply(TOPOLOGY)
    match role, arguments:
        case "publish", (name, count):
            await publish(broker, name, int(count))
        case (("consume" | "hold"), (log,)):
            await consume(broker, log, settle=role == "consume")
    await broker.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
