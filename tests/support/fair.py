"""A small fair on SQLite and the embedded broker, for the dashboard to show."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from sqlalchemy import Column, Integer, MetaData, String, Table, text

from postroad import Backoff, BusinessError, PoisonError, Postroad, RelayOptions, SubscriberOptions, event
from postroad.brokers.base import Flow, Subscription, Topology
from postroad.message import Message, new_id

T = TypeVar("T")

_PARK = "UPDATE postroad_outbox SET state = 'FAILED', attempts = 5, last_error = :error WHERE event_id = :id"


@event("basket.sold", topic="fair.basket.events", aggregate="basket", key="basket_id")
class BasketSold(msgspec.Struct, frozen=True):
    basket_id: str
    cents: int = 1
    buyer: dict[str, Any] | None = None


@event("basket.wrapped", topic="fair.basket.events", aggregate="basket", key="basket_id")
class BasketWrapped(msgspec.Struct, frozen=True):
    basket_id: str


@event("fair.stall.opened", topic="fair.stall.events", aggregate="stall", key="stall_id")
class StallOpened(msgspec.Struct, frozen=True):
    stall_id: str
    secret_price: int = 0


class OpenStall(msgspec.Struct, frozen=True):
    stall_id: str
    secret_price: int = 0


class Fair:
    """The road and what people find on it; `run` does something on the loop that the dashboard is served by."""

    def __init__(self, folder: Path) -> None:
        self.road = Postroad(
            source="fair",
            database_url=f"sqlite:///{folder / 'fair.db'}",
            broker_url=f"embedded:{folder / 'broker.db'}",
            relay=RelayOptions(poll=0.05, backoff=Backoff(attempts=1)),
            subscriber=SubscriberOptions(backoff=Backoff(attempts=1)),
        )
        self.handled: list[str] = []
        self.mended = False
        self.loop = asyncio.new_event_loop()

        @self.road.on(BasketSold, group="wrapping")
        async def wrap(sold: BasketSold, session: Any) -> None:
            if sold.cents == 13 and not self.mended:
                raise PoisonError(f"basket {sold.basket_id} is unlucky")
            self.handled.append(sold.basket_id)
            self.road.add(session, BasketWrapped(sold.basket_id))

        @self.road.on(BasketWrapped, group="handing-out")
        async def hand_out(wrapped: BasketWrapped) -> None:
            return None

    async def open_stalls(self, *stalls: str) -> list[UUID]:
        """By commands, which a worker carries out (a stall named unlucky fails), and with a read model of them."""
        road = self.road
        road.command("Command.Fair.Stall.Open", aggregate="stall", key="stall_id")(OpenStall)

        @road.handles(OpenStall)
        async def open_stall(command: OpenStall) -> list[object]:
            if command.stall_id == "unlucky" and not self.mended:
                raise BusinessError("no place is left <b>here</b>")
            return [StallOpened(command.stall_id, command.secret_price)]

        columns = Column("stall_id", String(64), primary_key=True), Column("version", Integer, nullable=False)
        table = Table("stalls", MetaData(), *columns)
        async with road.store.engine.begin() as connection:
            await connection.run_sync(table.create)
        stands = road.projection("stall_map", table, group="map")

        @stands.on(StallOpened)
        def stand(opened: StallOpened) -> dict[str, Any]:
            return {}

        async with road.session() as session, session.begin():
            written = [road.submit(session, OpenStall(one, 7)) for one in stalls]
            for one in written:
                await one
            return [one.id for one in written]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self.loop)
        return future.result(30)

    async def sell(self, *baskets: str, cents: int = 1, buyer: Any = None, **options: Any) -> list[UUID]:
        async with self.road.session() as session, session.begin():
            return [self.road.add(session, BasketSold(b, cents, buyer), **options).id for b in baskets]

    async def deliver(self) -> None:
        async with self.road.running():
            await self.road.drain()

    async def park(self, ids: list[UUID], error: str = "no queue takes it") -> None:
        async with self.road.store.transaction() as connection:
            for id in ids:
                parked = (
                    "UPDATE postroad_outbox SET state = 'FAILED', attempts = 5, last_error = :e WHERE event_id = :id"
                )
                await connection.execute(text(parked), {"e": error, "id": str(id)})

    async def forget_refusals(self) -> None:
        """What was refused has failed for good."""
        async with self.road.store.transaction() as connection:
            await connection.execute(text("UPDATE postroad_inbox SET processed_at = NULL WHERE status = 2"))

    async def fail_commands(self) -> None:
        async with self.road.store.transaction() as connection:
            await connection.execute(text("UPDATE postroad_command_box SET status = 'FAILED'"))

    async def bury(self, topic: str, count: int) -> None:
        """Dead letters of the group eaters."""
        broker, name = self.road.broker, f"{topic}.eaters"
        await broker.apply(Topology((topic,), (Subscription(name, topic),)))
        now = self.road.clock.now()
        await broker.send(
            [
                Message(
                    id=new_id(now, self.road.randomness), type="fruit.eaten", topic=topic, aggregate_type="fruit",
                    aggregate_id=str(number), version=1, occurred_at=now, payload=b"{}",
                )
                for number in range(count)
            ]
        )  # fmt: skip
        receiver, left = await broker.subscribe(name, Flow()), count
        while left:
            for delivery in await receiver.receive():
                await delivery.dead(f"fruit {left} is rotten")
                left -= 1
        await receiver.aclose()
