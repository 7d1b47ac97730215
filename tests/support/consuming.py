"""A database with Postroad's tables and one of the user's; messages; deliveries that note their verdict."""

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Column, Integer, MetaData, String, Table, insert, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from postroad.brokers.base import Delivery
from postroad.clock import Clock
from postroad.codec.upcast import Upcasters
from postroad.events import event
from postroad.handlers import Registry
from postroad.inbox import Inbox, Record
from postroad.message import Message
from postroad.retry import Backoff
from postroad.stores import Store, open_store
from postroad.stores.migrations import migrate
from postroad.stores.tables import DEFAULT_OUTBOX
from postroad.subscriber import Subscriber, SubscriberOptions
from postroad.testing.office import RecordingBroker

TOPIC = "shop.order.events"
GROUP = "receipts"

_metadata = MetaData()
effects = Table("effect", _metadata, Column("id", Integer, primary_key=True), Column("what", String(200), unique=True))


@event("order.placed", topic=TOPIC, aggregate="order", key="order_id")
class OrderPlaced(msgspec.Struct, frozen=True):
    order_id: str
    n: int = 0


@event("order.cancelled", topic=TOPIC, aggregate="order", key="order_id")
class OrderCancelled(msgspec.Struct, frozen=True):
    order_id: str


class Bench:
    """The database of one consuming service."""

    def __init__(self, url: str, store: Store) -> None:
        self.url, self.store, self.inbox = url, store, Inbox(store)

    async def effects(self) -> list[str]:
        async with self.store.engine.connect() as connection:
            return list((await connection.execute(select(effects.c.what).order_by(effects.c.id))).scalars())

    async def record(self, message: Message, group: str = GROUP) -> Record:
        found = await self.inbox.find(group, message.id)
        assert found is not None
        return found

    async def make_due(self, message: Message) -> None:
        """As if the time of the next try had come."""
        await self.change(message, "next_retry_at = '2000-01-01 00:00:00'")

    async def spoil(self, *messages: Message) -> None:
        """As if another release had kept them in another form."""
        async with self.store.transaction() as connection:
            await connection.execute(
                text("UPDATE postroad_inbox SET message = :data WHERE event_id = :id"),
                [{"data": b"\xc1", "id": self.store.adapt(message.id)} for message in messages],
            )

    async def change(self, message: Message, assignment: str) -> None:
        async with self.store.transaction() as connection:
            await connection.execute(
                text(f"UPDATE postroad_inbox SET {assignment} WHERE event_id = :id"),
                {"id": self.store.adapt(message.id)},
            )


@asynccontextmanager
async def bench(url: str, **options: Any) -> AsyncIterator[Bench]:
    store = open_store(url, **options)
    await migrate(store, [DEFAULT_OUTBOX])
    async with store.engine.begin() as connection:
        await connection.run_sync(_metadata.create_all)
    made = Bench(url, store)
    try:
        yield made
    finally:
        await made.inbox.aclose()
        await store.aclose()


async def effect(session: AsyncSession, what: str) -> None:
    await session.execute(insert(effects).values(what=what))


def placed(version: int | None = 1, order: str = "1", **changes: Any) -> Message:
    values: dict[str, Any] = {
        "id": uuid.uuid4(),
        "type": "order.placed",
        "topic": TOPIC,
        "aggregate_type": "order",
        "aggregate_id": order,
        "version": version,
        "occurred_at": datetime.now(UTC),
        "payload": msgspec.json.encode(OrderPlaced(order, version or 0)),
    }
    return Message(**values | changes)


def delayed(version: int, order: str = "1") -> Message:
    return placed(version, order, deliver_at=datetime.now(UTC) - timedelta(seconds=1))


class NotedDelivery:
    """A delivery as the broker gives it. Its verdict goes to `verdicts`, which others may share."""

    subscription = f"{TOPIC}.{GROUP}"
    attempt = 1

    def __init__(
        self,
        message: Message | None = None,
        verdicts: list[tuple[Any, ...]] | None = None,
        *,
        attributes: Mapping[str, str] | None = None,
        data: bytes | None = None,
    ) -> None:
        self.message = message
        self.topic = message.topic if message else TOPIC
        self.key = message.wire_key if message else ""
        self.attributes = attributes if attributes is not None else message.attributes() if message else {}
        self.data = data if data is not None else message.payload if message else b""
        self.verdicts = [] if verdicts is None else verdicts
        self.settled = False

    async def ack(self) -> None:
        self._note("ack")

    async def retry(self, after: float) -> None:
        self._note("retry", after)

    async def dead(self, reason: str) -> None:
        self._note("dead", reason)

    def _note(self, *verdict: Any) -> None:
        if not self.settled:
            self.settled = True
            self.verdicts.append((*verdict, self.message.version) if self.message else verdict)


def subscriber(
    bench: Bench,
    registry: Registry,
    *,
    broker: Any = None,
    road: object = None,
    clock: Clock | None = None,
    **options: Any,
) -> Subscriber:
    options.setdefault("backoff", Backoff(attempts=3, base=60.0))
    return Subscriber(
        broker or RecordingBroker(),
        bench.inbox,
        registry,
        Upcasters(),
        GROUP,
        options=SubscriberOptions(**options),
        clock=clock,
        road=road,
    )


async def deliver(
    subscriber: Subscriber, messages: Sequence[Message], verdicts: list[tuple[Any, ...]] | None = None
) -> list[tuple[Any, ...]]:
    """All at once; the verdicts in the order in which they were given."""
    noted = [] if verdicts is None else verdicts
    deliveries: list[Delivery] = [NotedDelivery(message, noted) for message in messages]
    await subscriber.handle(deliveries)
    return noted


def handlers(function: Any = None, **options: Any) -> Registry:
    async def write(event: OrderPlaced, session: AsyncSession) -> None:
        await effect(session, f"{event.order_id}/{event.n}")

    registry = Registry()
    registry.add(GROUP, OrderPlaced, function or write, **options)
    return registry


class Broken:
    """Fails for some numbers, as often as it is told."""

    def __init__(self, failures: dict[int, int], error: Exception | None = None) -> None:
        self.failures, self.error = failures, error or RuntimeError("not now")
        self.tried: list[int] = []

    async def __call__(self, event: OrderPlaced, session: AsyncSession) -> None:
        self.tried.append(event.n)
        await effect(session, f"{event.order_id}/{event.n}")
        if self.failures.get(event.n, 0) > 0:
            self.failures[event.n] -= 1
            raise self.error
