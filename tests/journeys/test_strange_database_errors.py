"""What no store translates (a statement that was cancelled, a disk that is full) is waited out like any outage."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession

from postroad import Postroad
from postroad.brokers import connect_broker
from postroad.brokers.base import Confirmed, Subscription, Topology
from postroad.clock import SystemClock
from postroad.errors import StoreError
from postroad.handlers import Bus, Registry
from postroad.message import Message
from postroad.presence import Presence
from postroad.stores.base import Result
from tests.support.consuming import GROUP, TOPIC, OrderPlaced, bench, deliver, handlers, placed, subscriber


def strange() -> Exception:
    return OperationalError("SELECT 1", {"secret": "value"}, sqlite3.OperationalError("nobody knows this one"))


class Failing:
    """A store's method that fails strangely as often as it is told to, then works."""

    def __init__(self, works: Callable[..., Any], *, of: str, times: int = 2) -> None:
        self._works, self._of, self.left = works, of, times
        self.works_again = asyncio.Event()

    async def __call__(self, connection: Any, statement: str, *arguments: Any, **values: Any) -> Result:
        if statement == self._of and self.left:
            self.left -= 1
            raise strange()
        result: Result = await self._works(connection, statement, *arguments, **values)
        if statement == self._of:
            self.works_again.set()
        return result


class Quick(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)

    async def wait_for(self, awaitable: Any, timeout: float) -> Any:
        return await super().wait_for(awaitable, min(timeout, 0.01))


async def test_a_group_goes_on_receiving(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wire = connect_broker("embedded:", clock=SystemClock())
    await wire.apply(Topology((TOPIC,), (Subscription(f"{TOPIC}.{GROUP}", TOPIC),)))
    assert all(isinstance(outcome, Confirmed) for outcome in await wire.send([placed(1)]))
    handled = asyncio.Event()

    async def handle(event: OrderPlaced, session: AsyncSession) -> None:
        handled.set()

    async with bench(sqlite_url) as b:
        monkeypatch.setattr(b.store, "execute", Failing(b.store.execute, of="handler_declare"))
        registry = Registry()
        registry.add(GROUP, OrderPlaced, handle)
        at_work = subscriber(b, registry, broker=wire)
        monkeypatch.setattr(at_work, "_clock", Quick())
        stop = asyncio.Event()
        running = asyncio.create_task(at_work.run(stop))
        await asyncio.wait_for(handled.wait(), 20)
        stop.set()
        await asyncio.wait_for(running, 20)
    await wire.aclose()
    assert "nobody knows this one" in caplog.text
    assert "secret" not in caplog.text


async def test_a_worker_goes_on_telling_that_it_is_there(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(sqlite_url) as b:
        beating = Failing(b.store.execute, of="worker_beat")
        monkeypatch.setattr(b.store, "execute", beating)
        presence = Presence(b.store, GROUP, clock=Quick(), randomness=Random(1))
        async with asyncio.timeout(20):
            await presence.during(beating.works_again.wait)
        assert beating.works_again.is_set()


async def test_housekeeping_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    road = Postroad("post", f"sqlite:///{tmp_path}/post.db", "embedded:", clock=Quick())
    await road.migrate()
    pruning = Failing(road.store.execute, of="workers_forget")
    monkeypatch.setattr(road.store, "execute", pruning)
    async with road, road.running():
        async with asyncio.timeout(20):
            assert await pruning.works_again.wait()


async def test_what_the_bus_could_not_even_record_is_said(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its publisher would believe that it is taken care of, and nobody would ever run it."""
    ran: list[Message] = []

    async def handle(event: OrderPlaced, message: Message) -> None:
        ran.append(message)

    async with bench(sqlite_url) as b:
        bus = Bus(b.inbox)
        bus.register(GROUP, OrderPlaced, handle)
        monkeypatch.setattr(b.store, "execute", Failing(b.store.execute, of="inbox_take", times=1))
        with pytest.raises(StoreError, match="nobody knows this one") as raised:
            await bus.publish(placed(1))
        assert "secret" not in str(raised.value)
        await bus.publish(placed(1))
    assert len(ran) == 1


async def test_letting_go_of_a_lease_hides_no_cancellation(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(sqlite_url) as b:
        acquired = await b.inbox.try_acquire(GROUP, placed(1), 30.0)
        assert acquired.lease is not None
        monkeypatch.setattr(b.store, "execute", Failing(b.store.execute, of="inbox_renew"))
        begun = asyncio.Event()

        async def never_ends(session: AsyncSession) -> None:
            begun.set()
            await asyncio.Event().wait()

        attempt = asyncio.create_task(b.inbox.attempt(acquired.lease, never_ends, 30.0))
        await begun.wait()
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt


async def test_an_error_of_the_handlers_own_database_is_the_events(fresh_postgresql_url: str) -> None:
    """Else it would come again for ever, as if our database were away, and nobody would be told."""

    async def look_aside(event: OrderPlaced, session: AsyncSession) -> None:
        raise strange()

    async with bench(fresh_postgresql_url) as b:
        await deliver(subscriber(b, handlers(look_aside)), [message := placed(1)])
        assert (await b.record(message, GROUP)).retry_count == 1
