"""A small fair on SQLite and the embedded broker, for the dashboard to show."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from sqlalchemy import text

from postroad import Backoff, PoisonError, Postroad, RelayOptions, SubscriberOptions, event

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
