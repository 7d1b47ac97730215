"""A verdict is given until the broker has it: nobody else would give it."""

import asyncio
from collections.abc import Iterator

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from postroad.errors import BrokerUnavailable
from postroad.handlers import Registry
from postroad.testing import VirtualClock
from tests.support.consuming import GROUP, NotedDelivery, OrderPlaced, bench, effect, placed, subscriber


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
