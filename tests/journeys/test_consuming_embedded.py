"""The whole way from the embedded broker to the effect, and the way out."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from postroad import operations
from postroad.brokers import connect_broker
from postroad.brokers.base import Broker, Confirmed, Flow, Subscription, Topology
from postroad.clock import SystemClock
from postroad.errors import BrokerUnavailable, StoreUnavailable
from postroad.handlers import Registry
from postroad.message import Message
from postroad.retry import Backoff
from postroad.subscriber import Subscriber
from tests.support.consuming import GROUP, TOPIC, Bench, OrderPlaced, bench, effect, placed, subscriber

NAME = f"{TOPIC}.{GROUP}"


@asynccontextmanager
async def broker() -> AsyncIterator[Broker]:
    made = connect_broker("embedded:", clock=SystemClock())
    await made.apply(Topology((TOPIC,), (Subscription(NAME, TOPIC),)))
    try:
        yield made
    finally:
        await made.aclose()


async def send(broker: Broker, *messages: Message) -> None:
    assert all(isinstance(outcome, Confirmed) for outcome in await broker.send(messages))


@asynccontextmanager
async def running(at_work: Subscriber) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(at_work.run(stop))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(task, 20)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await condition():  # noqa: ASYNC110 - the broker is asked, it does not tell
            await asyncio.sleep(0.01)


def settled(broker: Broker) -> Callable[[], Awaitable[bool]]:
    async def nothing_left() -> bool:
        return (await broker.depth(NAME)).messages == 0

    return nothing_left


def made(b: Bench, broker: Broker, function: Any, **options: Any) -> Subscriber:
    registry = Registry()
    registry.add(GROUP, OrderPlaced, function)
    options.setdefault("backoff", Backoff(attempts=3, base=0.01))
    return subscriber(b, registry, broker=broker, **options)


async def write(event: OrderPlaced, session: AsyncSession) -> None:
    await effect(session, f"{event.order_id}/{event.n}")


@pytest.mark.spec("P10")
async def test_events_arrive_once_and_in_order(database_url: str) -> None:
    async with bench(database_url) as b, broker() as wire:
        messages = [placed(n) for n in range(1, 6)]
        await send(wire, *messages)
        await send(wire, messages[1], messages[4])
        at_work = made(b, wire, write)
        async with running(at_work):
            await until(settled(wire))
        assert await b.effects() == [f"1/{n}" for n in range(1, 6)]
        assert (at_work.statistics.handled, at_work.statistics.duplicates) == (5, 2)


@pytest.mark.spec("P13", "R9")
async def test_failures_are_tried_again_in_order_and_then_dead(database_url: str) -> None:
    async with bench(database_url) as b, broker() as wire:
        tried: list[int] = []

        async def shaky(event: OrderPlaced, session: AsyncSession) -> None:
            tried.append(event.n)
            await write(event, session)
            if event.n == 2 or (event.n == 1 and tried.count(1) < 2):
                raise RuntimeError("not now")

        await send(wire, *(placed(n) for n in (1, 2, 3)))
        async with running(made(b, wire, shaky)):
            await until(settled(wire))
        assert tried == [1, 1, 2, 2, 2, 3]
        assert await b.effects() == ["1/1", "1/3"]
        [letter] = await wire.dead_letters(TOPIC)
        assert "exceeded maxRetry" in letter.reason


@pytest.mark.spec("R9")
async def test_a_dead_letter_that_is_revived_is_handled(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b, broker() as wire:
        well = False

        async def shaky(event: OrderPlaced, session: AsyncSession) -> None:
            await write(event, session)
            if not well:
                raise RuntimeError("not now")

        await send(wire, placed(1))
        async with running(made(b, wire, shaky, backoff=Backoff(attempts=1))):
            await until(settled(wire))
            well = True
            dead = await operations.dead_page(wire, [TOPIC])
            assert await operations.retry_dead(b.store, wire, dead, actor="ann") == 1
            await until(settled(wire))
        assert await b.effects() == ["1/1"]


@pytest.mark.spec("P10", "P6")
async def test_a_copy_of_a_dead_event_does_not_take_effect_after_its_successors(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b, broker() as wire:
        well, first, second = False, placed(1), placed(2)

        async def shaky(event: OrderPlaced, session: AsyncSession) -> None:
            if event.n == 1 and not well:
                raise RuntimeError("not now")
            await write(event, session)

        await send(wire, first, second)
        async with running(made(b, wire, shaky, backoff=Backoff(attempts=1))):
            await until(settled(wire))
            well = True
            await send(wire, first)
            await until(settled(wire))
            assert await b.effects() == ["1/2"]
            # There may be two letters of it; it takes effect once.
            dead = await operations.dead_page(wire, [TOPIC])
            await operations.retry_dead(b.store, wire, dead, actor="ann")
            await until(settled(wire))
        assert await b.effects() == ["1/2", "1/1"]


# --- the way out --------------------------------------------------------------------------------------


async def test_stopping_lets_a_running_handler_finish_and_gives_the_rest_back(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b, broker() as wire:
        started, go_on = asyncio.Event(), asyncio.Event()

        async def slow(event: OrderPlaced, session: AsyncSession) -> None:
            started.set()
            await go_on.wait()
            await write(event, session)

        await send(wire, *(placed(n) for n in (1, 2, 3)))
        stop = asyncio.Event()
        task = asyncio.create_task(made(b, wire, slow).run(stop))
        await started.wait()
        stop.set()
        await asyncio.sleep(0.05)
        assert not task.done()
        go_on.set()
        await asyncio.wait_for(task, 20)
        assert await b.effects() == ["1/1"]
        receiver = await wire.subscribe(NAME, Flow())
        assert [delivery.attributes["version"] for delivery in await receiver.receive()] == ["2", "3"]
        await receiver.aclose()


async def test_a_handler_that_does_not_finish_in_time_is_rolled_back_and_given_back(
    database_url: str,
) -> None:
    async with bench(database_url) as b, broker() as wire:
        started = asyncio.Event()

        async def endless(event: OrderPlaced, session: AsyncSession) -> None:
            await write(event, session)
            started.set()
            await asyncio.Event().wait()

        await send(wire, placed(1))
        stop = asyncio.Event()
        task = asyncio.create_task(made(b, wire, endless, grace=0.05).run(stop))
        await started.wait()
        stop.set()
        await asyncio.wait_for(task, 20)
        assert await b.effects() == []
        assert await b.inbox.list() == []
        async with running(made(b, wire, write)):
            await until(settled(wire))
        assert await b.effects() == ["1/1"]


class LastMoment(SystemClock):
    """What was waited for is done, but the time is up as well."""

    async def wait_for(self, awaitable: Awaitable[Any], timeout: float) -> Any:
        await awaitable
        raise TimeoutError


async def test_a_handler_that_finishes_in_the_last_moment_of_its_grace_has_finished(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(sqlite_url) as b, broker() as wire:
        started, stop = asyncio.Event(), asyncio.Event()

        async def slow(event: OrderPlaced, session: AsyncSession) -> None:
            started.set()
            await stop.wait()
            await write(event, session)

        await send(wire, placed(1))
        at_work = made(b, wire, slow)
        monkeypatch.setattr(at_work, "_clock", LastMoment())
        task = asyncio.create_task(at_work.run(stop))
        await started.wait()
        stop.set()
        await asyncio.wait_for(task, 20)
        assert await b.effects() == ["1/1"]
        assert (await wire.depth(NAME)).messages == 0


async def test_a_subscription_that_is_not_there_ends_the_run_with_the_brokers_error(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b:
        wire = connect_broker("embedded:", clock=SystemClock())
        with pytest.raises(Exception, match="receipts"):
            await asyncio.wait_for(made(b, wire, write).run(asyncio.Event()), 20)
        await wire.aclose()


class Unsteady:
    """A broker that is away at first."""

    def __init__(self, broker: Broker, away: int = 2) -> None:
        self._broker, self._away, self.asked = broker, away, 0
        self.features = broker.features

    async def subscribe(self, name: str, flow: Flow) -> Any:
        self.asked += 1
        if self.asked <= self._away:
            raise BrokerUnavailable("not there yet")
        return await self._broker.subscribe(name, flow)


class Quick(SystemClock):
    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


async def test_a_broker_or_database_that_is_away_at_first_is_waited_for(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(sqlite_url) as b, broker() as wire:
        await send(wire, placed(1))
        at_work = made(b, Unsteady(wire), write)  # type: ignore[arg-type]
        monkeypatch.setattr(at_work, "_clock", Quick())
        declare, away = b.inbox.declare, [1, 1]

        async def unsteady(*arguments: Any) -> None:
            if away:
                away.pop()
                raise StoreUnavailable("not there yet")
            await declare(*arguments)

        monkeypatch.setattr(b.inbox, "declare", unsteady)
        async with running(at_work):
            await until(settled(wire))
        assert await b.effects() == ["1/1"]
        assert [record.getMessage() for record in caplog.records] == [
            f"group receipts cannot receive from {TOPIC}: not there yet"
        ]


async def test_a_broker_that_was_away_for_long_is_asked_again_every_second(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(sqlite_url) as b, broker() as wire:
        await send(wire, placed(1))
        at_work, clock = made(b, Unsteady(wire, away=60), write), Quick()  # type: ignore[arg-type]
        monkeypatch.setattr(at_work, "_clock", clock)
        async with running(at_work):
            await until(settled(wire))
    assert max(clock.pauses) == 1.0
