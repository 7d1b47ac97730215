"""A verdict is given until the broker has it: nobody else would give it."""

import asyncio
from collections.abc import Iterator

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from postroad.errors import BrokerUnavailable
from postroad.handlers import Registry
from postroad.testing import VirtualClock
from postroad.testing.office import RecordingBroker
from tests.support.consuming import GROUP, NotedDelivery, OrderPlaced, bench, effect, placed, subscriber


class Gone(NotedDelivery):
    async def retry(self, after: float) -> None:
        raise BrokerUnavailable("gone")


class OutOfReach(NotedDelivery):
    """The broker is, for the first few verdicts."""

    tries: Iterator[int] = iter(())

    async def ack(self) -> None:
        if next(self.tries, 0):
            raise BrokerUnavailable("gone")
        await super().ack()


async def test_a_verdict_that_did_not_reach_the_broker_is_repeated(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def write(event: OrderPlaced, session: AsyncSession) -> None:
        await effect(session, f"{event.order_id}/{event.n}")

    registry, clock = Registry(), VirtualClock()
    registry.add(GROUP, OrderPlaced, write)
    async with bench(database_url) as b:
        delivery = OutOfReach(placed())
        delivery.tries = iter((3, 2, 1))
        handling = asyncio.create_task(subscriber(b, registry, clock=clock).handle([delivery]))
        while not handling.done():
            await clock.advance(30)
            await asyncio.sleep(0.001)
        await handling
        assert delivery.verdicts == [("ack", 1)]
        assert await b.effects() == ["1/1"]
    assert "could not give its verdict, and tries again: gone" in caplog.text


async def test_a_broker_out_of_reach_does_not_hold_up_the_end(sqlite_url: str) -> None:
    at_work, stop = asyncio.Event(), asyncio.Event()
    first, second = Gone(placed(1)), Gone(placed(2))

    async def wait(event: OrderPlaced) -> None:
        at_work.set()
        await stop.wait()

    class Receiver:
        def __init__(self) -> None:
            self.deliveries: list[NotedDelivery] = [first, second]

        async def receive(self) -> list[NotedDelivery]:
            if self.deliveries:
                taken, self.deliveries = self.deliveries, []
                return taken
            return await asyncio.Future()

        async def aclose(self) -> None:
            return None

    class Broker(RecordingBroker):
        async def subscribe(self, subscription: str, flow: object) -> Receiver:
            return Receiver()

    registry = Registry()
    registry.add(GROUP, OrderPlaced, wait)
    async with bench(sqlite_url) as b:
        running = asyncio.create_task(subscriber(b, registry, broker=Broker(), grace=0.1).run(stop))
        await at_work.wait()
        stop.set()
        async with asyncio.timeout(30):
            await running
    assert (first.verdicts, second.verdicts) == ([("ack", 1)], [])
