"""How many work at once, and what has ended before the receiver is closed."""

import asyncio
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from postroad.testing.office import RecordingBroker
from tests.support.consuming import NotedDelivery, OrderPlaced, bench, handlers, placed, subscriber
from tests.support.outbox import until


async def test_no_more_work_at_once_than_there_are_slots(database_url: str) -> None:
    """With one writer at a time, one: more would only wait for its lock."""
    async with bench(database_url) as b:
        at_work = subscriber(b, handlers(), concurrency=3)
        slots = 1 if b.store.one_writer else 3
        at_once, most, go_on = 0, 0, asyncio.Event()

        async def handle(items: Any) -> dict[Any, float]:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await go_on.wait()
            at_once -= 1
            return {}

        at_work._handling.handle = handle  # type: ignore[method-assign]
        handling = asyncio.create_task(at_work.handle([NotedDelivery(placed(1, str(n))) for n in range(7)]))
        await until(lambda: at_once >= slots)
        go_on.set()
        await handling
        assert most == slots


async def test_a_handler_that_ran_out_of_time_has_ended_before_the_receiver_is_closed(sqlite_url: str) -> None:
    """Closing gives the event back: another must not begin with it while this one may still write."""
    steps: list[str] = []
    started, stop = asyncio.Event(), asyncio.Event()

    async def endless(event: OrderPlaced, session: AsyncSession) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            steps.append("ended")

    class Receiver:
        deliveries = [NotedDelivery(placed())]  # noqa: RUF012

        async def receive(self) -> list[NotedDelivery]:
            if self.deliveries:
                return [self.deliveries.pop()]
            return await asyncio.Future()

        async def aclose(self) -> None:
            steps.append("closed")

    class Broker(RecordingBroker):
        async def subscribe(self, subscription: str, flow: object) -> Receiver:
            return Receiver()

    async with bench(sqlite_url) as b:
        task = asyncio.create_task(subscriber(b, handlers(endless), broker=Broker(), grace=0.01).run(stop))
        await started.wait()
        stop.set()
        await asyncio.wait_for(task, 20)
    assert steps == ["ended", "closed"]
