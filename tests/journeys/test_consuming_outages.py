"""A database in trouble is nobody's fault: no attempt is burnt, and everything is given back."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from postroad.errors import StoreBusy, StoreError, StoreUnavailable
from postroad.inbox import Inbox
from postroad.retry import Retry
from postroad.testing.clock import VirtualClock
from postroad.testing.office import RecordingBroker
from tests.support.consuming import (
    GROUP,
    Broken,
    NotedDelivery,
    bench,
    deliver,
    handlers,
    placed,
    subscriber,
)
from tests.support.outbox import until


async def test_an_outage_of_the_store_burns_no_attempt(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(sqlite_url) as b:
        clock = VirtualClock()
        at_work = subscriber(b, handlers(), clock=clock)
        messages = [placed(1), placed(2)]
        with monkeypatch.context() as patch:

            async def down(*_: Any) -> bool:
                raise StoreUnavailable("gone")

            patch.setattr(b.inbox, "claim", down)
            waits = []
            for _ in range(4):
                verdicts = await deliver(at_work, messages)
                assert [(v[0], v[2]) for v in verdicts] == [("retry", 1), ("retry", 2)]
                waits.append(verdicts[0][1])
                clock.shift(waits[-1])
            assert waits[3] > waits[0]
            assert await b.inbox.list() == []
            patch.undo()
            assert await deliver(at_work, messages) == [("ack", 1), ("ack", 2)]
            patch.setattr(b.inbox, "claim", down)
            assert (await deliver(at_work, messages))[0][1] < waits[3]


async def test_what_comes_while_those_before_it_go_back_goes_back_too(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what meets an outage nobody has a record: nothing else would keep the next of the key from going first."""
    leaving, gone = asyncio.Event(), asyncio.Event()

    class SlowToLeave(NotedDelivery):
        async def retry(self, after: float) -> None:
            leaving.set()
            await gone.wait()
            await super().retry(after)

    async def down(*_: Any) -> bool:
        raise StoreUnavailable("gone")

    async with bench(sqlite_url) as b:
        at_work = subscriber(b, handlers())
        verdicts: list[tuple[Any, ...]] = []
        with monkeypatch.context() as patch:
            patch.setattr(b.inbox, "claim", down)
            first = asyncio.create_task(
                at_work.handle([NotedDelivery(placed(1), verdicts), SlowToLeave(placed(2), verdicts)])
            )
            await leaving.wait()
        second = asyncio.create_task(at_work.handle([NotedDelivery(placed(3), verdicts)]))
        await until(lambda: at_work.lanes.waiting)
        gone.set()
        await asyncio.gather(first, second)
        assert [(verdict[0], verdict[-1]) for verdict in verdicts] == [("retry", 1), ("retry", 2), ("retry", 3)]
        assert await b.effects() == []


async def test_those_that_meet_the_same_outage_wait_as_if_it_were_one(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a database that was away for a second would be missed for half a minute."""
    async with bench(sqlite_url) as b:

        async def down(*_: Any) -> bool:
            raise StoreUnavailable("gone")

        monkeypatch.setattr(b.inbox, "claim", down)
        clock = VirtualClock()
        at_work, messages = subscriber(b, handlers(), clock=clock), [placed(1, str(key)) for key in range(20)]
        waits = [wait for _, wait, _ in await deliver(at_work, messages)]
        assert max(waits) <= 0.5
        clock.shift(max(waits))
        again = [wait for _, wait, _ in await deliver(at_work, messages)]
        assert 0.5 <= min(again) <= max(again) <= 1.0


async def test_while_the_database_is_away_one_event_asks_for_all(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(sqlite_url) as b:
        asked = 0

        async def down(*_: Any) -> bool:
            nonlocal asked
            asked += 1
            raise StoreUnavailable("gone")

        monkeypatch.setattr(b.inbox, "claim", down)
        clock = VirtualClock()
        at_work, messages = subscriber(b, handlers(), clock=clock), [placed(1, str(key)) for key in range(100)]
        for _ in range(5):
            asked = 0
            verdicts = await deliver(at_work, messages)
            assert {(verdict, version) for verdict, _, version in verdicts} == {("retry", 1)}
            clock.shift(1.0)
        assert 1 <= asked <= at_work.options.concurrency
        monkeypatch.undo()
        assert await deliver(at_work, messages) == [("ack", 1)] * 100


def failing_for_the_bad(inbox: Inbox, error: StoreError) -> Any:
    claim = inbox.claim

    async def sometimes(connection: Any, group: str, messages: Any) -> bool:
        if messages[0].aggregate_id == "bad":
            raise error
        return await claim(connection, group, messages)

    return sometimes


async def test_a_deadlock_stops_no_other(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(sqlite_url) as b:
        monkeypatch.setattr(b.inbox, "claim", failing_for_the_bad(b.inbox, StoreBusy("a deadlock")))
        clock = VirtualClock()
        at_work = subscriber(b, handlers(), clock=clock)
        for _ in range(3):
            assert (await deliver(at_work, [placed(1, "bad")]))[0][0] == "retry"
            clock.shift(1.0)
        assert (await deliver(at_work, [placed(1, "bad")]))[0][0] == "retry"
        assert await deliver(at_work, [placed(1, "good")]) == [("ack", 1)]


async def test_an_event_that_always_breaks_the_connection_stops_no_other(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(sqlite_url) as b:
        monkeypatch.setattr(b.inbox, "claim", failing_for_the_bad(b.inbox, StoreUnavailable("gone")))
        at_work = subscriber(b, handlers(), clock=VirtualClock())
        for version in range(1, 5):
            assert (await deliver(at_work, [placed(1, "bad")]))[0][0] == "retry"
            assert (await deliver(at_work, [placed(version, "good")]))[0][0] == "ack"


@pytest.mark.parametrize("outage", [True, False])
async def test_what_waits_unrecorded_waits_no_longer_than_the_broker_keeps_its_place(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, outage: bool
) -> None:
    """Else later events of its key would go first if this worker died."""
    async with bench(sqlite_url) as b:

        async def fail(*_: Any) -> bool:
            raise StoreUnavailable("gone") if outage else RuntimeError("a surprise")

        broker = RecordingBroker()
        broker.features = replace(broker.features, keeps_place=0.02)
        at_work = subscriber(b, handlers(), broker=broker)
        monkeypatch.setattr(*((b.inbox, "claim") if outage else (at_work._handling, "handle")), fail)
        for _ in range(5):
            ((verdict, wait, _),) = await deliver(at_work, [placed()])
            assert verdict == "retry"
            assert 0 < wait < 0.02


async def test_what_waits_for_an_earlier_event_of_its_key_keeps_its_place_too(sqlite_url: str) -> None:
    """It has no record of its own, and would not hold back the next of its key."""
    async with bench(sqlite_url) as b:
        await b.inbox.mark_failed(GROUP, placed(1), RuntimeError(), Retry(60.0))
        broker = RecordingBroker()
        broker.features = replace(broker.features, keeps_place=1.0)
        [(verdict, wait, _)] = await deliver(subscriber(b, handlers(), broker=broker), [placed(2)])
        assert (verdict, wait) == ("retry", 0.9)


async def test_an_outage_while_a_failure_is_recorded_burns_no_attempt(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(sqlite_url) as b:

        async def down(*_: Any, **__: Any) -> bool:
            raise StoreUnavailable("gone")

        monkeypatch.setattr(b.inbox, "mark_failed", down)
        at_work, message = subscriber(b, handlers(Broken({1: 99}))), placed()
        for _ in range(20):
            [(verdict, _, _)] = await deliver(at_work, [message])
            assert verdict == "retry"
        assert [record.getMessage() for record in caplog.records] == ["group receipts waits for its database: gone"]


async def test_an_outage_of_the_store_during_a_later_attempt_burns_none(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(sqlite_url) as b:

        async def down(*_: Any, **__: Any) -> None:
            raise StoreUnavailable("gone")

        message = placed()
        await b.inbox.mark_failed(GROUP, message, RuntimeError("first"), Retry(0.0))
        monkeypatch.setattr(b.inbox, "attempt", down)
        [(verdict, after, _)] = await deliver(subscriber(b, handlers()), [message])
        assert verdict == "retry"
        assert after < 1
        record = await b.record(message)
        assert (record.retry_count, record.error_msg) == (1, "RuntimeError: first")


async def test_an_unexpected_error_gives_the_delivery_and_its_lane_back(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(sqlite_url) as b:

        async def wrong(*_: Any, **__: Any) -> bool:
            raise ZeroDivisionError

        monkeypatch.setattr(b.inbox, "mark_failed", wrong)
        verdicts = await deliver(subscriber(b, handlers(Broken({1: 1}))), [placed(1), placed(2)])
        assert [(verdict[0], verdict[2]) for verdict in verdicts] == [("retry", 1), ("retry", 2)]
