"""The wiring: one road, the steps of an order, the consumers, the sweep."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final, TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from examples.marketplace import schema
from examples.marketplace.broker import with_layout
from examples.marketplace.consumers import Consumers
from examples.marketplace.events import SOURCE, TOPIC
from examples.marketplace.orders import Orders
from examples.marketplace.settings import Settings
from examples.marketplace.sweep import OrderTimeoutJob
from postroad import Postroad, RelayOptions
from postroad.brokers.base import Flow, Topology
from postroad.clock import Clock, SystemClock
from postroad.errors import StoreBusy
from postroad.subscriber import SubscriberOptions

T = TypeVar("T")

PREFETCH: Final = 20
_TRIES: Final = 5


class Shop:
    def __init__(self, settings: Settings | None = None, clock: Clock | None = None) -> None:
        self.settings = settings or Settings()
        self.clock = clock or SystemClock()
        self.road = Postroad(
            SOURCE,
            self.settings.database_url,
            with_layout(self.settings.broker_url, self.settings.payment_time),
            outboxes=[schema.OUTBOX],
            relay=RelayOptions(
                batch=self.settings.relay_batch,
                poll=self.settings.relay_poll,
                backoff=self.settings.relay_backoff,
            ),
            subscriber=SubscriberOptions(flow=Flow(messages=PREFETCH), backoff=self.settings.consumer_backoff),
            clock=self.clock,
        )
        self.orders = Orders(self.road, self.settings.payment_time, self.now)
        self.consumers = Consumers(self.road, self.orders, self.now)
        self.sweep = OrderTimeoutJob(self, self.settings.sweep_interval, self.settings.sweep_batch)

    @property
    def topology(self) -> Topology:
        """The shop's own, whatever other events the process has declared."""
        return Topology((TOPIC,), self.road.topology.subscriptions)

    def now(self) -> datetime:
        return self.clock.now()

    async def transact(self, work: Callable[[AsyncSession], Awaitable[T]]) -> T:
        """The work in a transaction of its own; once more if the database chose it as a deadlock's victim."""
        for left in reversed(range(_TRIES)):
            try:
                async with self.road.session() as session, session.begin():
                    return await work(session)
            except (SQLAlchemyError, StoreBusy) as error:
                busy = isinstance(error, StoreBusy) or isinstance(self.road.store.translate(error), StoreBusy)
                if not busy or not left:
                    raise
        raise AssertionError("the last try returns or raises")

    async def prepare(self) -> None:
        """Tables, and on the broker exchange, queues and bindings."""
        await schema.prepare(self.road)
        await self.road.broker.apply(self.topology)

    @asynccontextmanager
    async def running(self, *, relay: bool = True, consumers: bool = True, sweep: bool = True) -> AsyncIterator["Shop"]:
        job = asyncio.create_task(self.sweep.run()) if sweep else None
        try:
            async with self.road.running(relay=relay, groups=None if consumers else []):
                yield self
        finally:
            if job is not None:
                job.cancel()
                await asyncio.gather(job, return_exceptions=True)

    async def aclose(self) -> None:
        await self.road.aclose()
