"""Handlers that share a commit, against one commit per message: one connection, deliveries at hand."""

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from bench.common import Figure, OrderPlaced, Scale, Target, fresh_road, side_by_side
from postroad import Postroad
from postroad.codec import json
from postroad.events import event_type_of
from postroad.message import Message, new_id
from postroad.subscriber import Subscriber, SubscriberOptions

KEYS = 500
TABLE = "CREATE TABLE totals (order_id text PRIMARY KEY, cents bigint)"
ADD = text(
    "INSERT INTO totals VALUES (:order_id, :cents) "
    "ON CONFLICT (order_id) DO UPDATE SET cents = totals.cents + excluded.cents"
)
ADD_ALL = text(
    "INSERT INTO totals SELECT order_id, sum(cents) "
    "FROM unnest(CAST(:ids AS text[]), CAST(:cents AS bigint[])) AS new(order_id, cents) GROUP BY order_id "
    "ON CONFLICT (order_id) DO UPDATE SET cents = totals.cents + excluded.cents"
)


async def measure(scale: Scale, server: str) -> list[Figure]:
    events = scale.of(40, 1_000, 5_000)
    async with fresh_road(server, TABLE, subscriber=SubscriberOptions(concurrency=1)) as road:
        _register(road)
        one_by_one = partial(_rate, road, "one-by-one", events)
        together = await side_by_side(scale.rounds, partial(_rate, road, "together", events), one_by_one)
        as_lists = await side_by_side(scale.rounds, partial(_rate, road, "as-lists", events), one_by_one)
    return [
        Figure("consume, commit_every=100", *together, "events/s", Target(3), "against a commit for each"),
        Figure("consume, batch=200", *as_lists, "events/s", Target(5), "set-based SQL in the handler"),
    ]


def _register(road: Postroad) -> None:
    async def add(event: OrderPlaced, session: AsyncSession) -> None:
        await session.execute(ADD, {"order_id": event.order_id, "cents": event.cents})

    async def add_all(events: list[OrderPlaced], session: AsyncSession) -> None:
        ids, cents = [event.order_id for event in events], [event.cents for event in events]
        await session.execute(ADD_ALL, {"ids": ids, "cents": cents})

    road.on(OrderPlaced, group="one-by-one")(add)
    road.on(OrderPlaced, group="together", commit_every=100)(add)
    road.on(OrderPlaced, group="as-lists", batch=200)(add_all)


async def _rate(road: Postroad, group: str, events: int) -> float:
    (subscriber,) = road.runner(relay=False, groups=[group]).subscribers
    await _handle(subscriber, group, 10)  # connected and prepared
    return await _handle(subscriber, group, events)


async def _handle(subscriber: Subscriber, group: str, events: int) -> float:
    deliveries = [_delivery(number, group) for number in range(events)]
    handled = subscriber.statistics.handled
    begun = time.perf_counter()
    await subscriber.handle(deliveries)
    seconds = time.perf_counter() - begun
    assert subscriber.statistics.handled == handled + events
    return events / seconds


@dataclass(frozen=True, slots=True)
class InHand:
    """A delivery whose verdict costs nothing."""

    topic: str
    subscription: str
    key: str
    attributes: Mapping[str, str]
    data: bytes
    attempt: int = 1

    async def ack(self) -> None: ...

    async def retry(self, after: float) -> None: ...

    async def dead(self, reason: str) -> None: ...


def _delivery(number: int, group: str) -> InHand:
    event = OrderPlaced(order_id=f"o-{number % KEYS}", customer="customer-1", cents=4200)
    kind, now = event_type_of(event), datetime.now(UTC)
    message = Message(
        id=new_id(now, random.SystemRandom()),
        type=kind.name,
        topic=kind.topic,
        aggregate_type="order",
        aggregate_id=event.order_id,
        version=number // KEYS + 1,
        occurred_at=now,
        payload=json.encode(event, kind),
    )
    return InHand(kind.topic, f"{kind.topic}.{group}", event.order_id, message.attributes(), message.payload)
