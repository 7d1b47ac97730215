"""Deliveries in, verdicts out, on every store: once in effect, in order, nothing acknowledged too soon."""

import asyncio
import logging
import random
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from postroad.errors import BrokerError, BusinessError, StoreUnavailable
from postroad.handlers import Registry
from postroad.inbox import Inbox, Status
from postroad.inbox.record import unpack
from postroad.retry import Backoff, Retry
from postroad.stores import open_store
from tests.support.consuming import (
    GROUP,
    NotedDelivery,
    OrderCancelled,
    OrderPlaced,
    bench,
    delayed,
    deliver,
    effect,
    placed,
    subscriber,
)


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


# --- once ---------------------------------------------------------------------------------------------


@pytest.mark.spec("P10", "R9")
async def test_a_duplicate_is_acknowledged_and_not_handled_again(database_url: str) -> None:
    async with bench(database_url) as b:
        at_work, message = subscriber(b, handlers()), placed()
        assert await deliver(at_work, [message]) == [("ack", 1)]
        assert await deliver(at_work, [message, message]) == [("ack", 1), ("ack", 1)]
        assert await b.effects() == ["1/1"]
        assert (at_work.statistics.handled, at_work.statistics.duplicates) == (1, 2)


@pytest.mark.spec("F7")
async def test_an_event_is_acknowledged_only_after_its_commit(database_url: str) -> None:
    async with bench(database_url) as b:
        seen: list[Any] = []
        elsewhere = Inbox(open_store(database_url))

        class Looking(NotedDelivery):
            async def ack(self) -> None:
                seen.append(await elsewhere.find(GROUP, message.id))
                seen.append(await b.effects())

        message = placed()
        await subscriber(b, handlers()).handle([Looking(message)])
        assert seen[0].status is Status.SUCCEEDED
        assert seen[1] == ["1/1"]
        await elsewhere.store.aclose()


@pytest.mark.spec("P10")
async def test_a_crash_between_commit_and_acknowledgement_costs_a_duplicate_only(
    database_url: str,
) -> None:
    async with bench(database_url) as b:

        class Lost(NotedDelivery):
            async def ack(self) -> None:
                raise BrokerError("the receiver is closed")

        message = placed()
        await subscriber(b, handlers()).handle([Lost(message)])
        after_the_crash = subscriber(b, handlers())
        assert await deliver(after_the_crash, [message]) == [("ack", 1)]
        assert await b.effects() == ["1/1"]
        assert after_the_crash.statistics.duplicates == 1


@pytest.mark.spec("T6", "P10")
async def test_two_workers_with_the_same_delivery_have_one_effect(database_url: str) -> None:
    async with bench(database_url) as b, bench(database_url) as other:
        message = placed()
        verdicts = await asyncio.gather(
            deliver(subscriber(b, handlers()), [message]), deliver(subscriber(other, handlers()), [message])
        )
        assert verdicts == [[("ack", 1)], [("ack", 1)]]
        assert await b.effects() == ["1/1"]


async def test_what_is_in_progress_elsewhere_is_given_back_and_never_acknowledged(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        held = await b.inbox.try_acquire(GROUP, message, 30)
        at_work = subscriber(b, handlers())
        [(verdict, after, _)] = await deliver(at_work, [message])
        assert verdict == "retry"
        assert 0 < after <= 1
        await b.inbox.mark_failed(GROUP, message, RuntimeError(), Retry(0.0), lease=held.lease)
        assert await deliver(at_work, [message]) == [("ack", 1)]
        assert await b.effects() == ["1/1"]


async def test_the_same_id_with_another_type_goes_to_the_dead_letters(database_url: str) -> None:
    async with bench(database_url) as b:
        registry = handlers()
        registry.add(GROUP, OrderCancelled, lambda event: None)
        message = placed()
        other = placed(id=message.id, type="order.cancelled")
        verdicts = await deliver(subscriber(b, registry), [message, other])
        assert [verdict[0] for verdict in verdicts] == ["ack", "dead"]
        assert "order.cancelled" in verdicts[1][1]


# --- failure ------------------------------------------------------------------------------------------


@pytest.mark.spec("P13", "P6")
async def test_a_failure_is_recorded_and_given_back_with_all_that_stood_behind_it(database_url: str) -> None:
    async with bench(database_url) as b:
        broken = Broken({2: 1})
        at_work = subscriber(b, handlers(broken))
        messages = [placed(n) for n in (1, 2, 3, 4)]
        others = [placed(n, "other") for n in (1, 9)]
        verdicts = await deliver(at_work, messages + others)
        assert [v for v in verdicts if v[0] == "retry"] == [("retry", 60, n) for n in (2, 3, 4)]
        assert sorted(await b.effects()) == ["1/1", "other/1", "other/9"]
        record = await b.record(messages[1])
        assert (record.status, record.retry_count, record.message) == (Status.FAILED, 1, None)
        assert await b.inbox.find(GROUP, messages[2].id) is None


@pytest.mark.spec("P6")
async def test_later_events_that_a_broker_delivers_too_soon_wait_for_the_failed_one(
    database_url: str,
) -> None:
    async with bench(database_url) as b:
        broken = Broken({1: 1})
        at_work = subscriber(b, handlers(broken))
        first, second = placed(1), placed(2)
        await deliver(at_work, [first])
        [(verdict, after, _)] = await deliver(at_work, [second])
        assert verdict == "retry"
        assert 50 < after <= 60
        await b.make_due(first)
        assert await deliver(at_work, [first, second]) == [("ack", 1), ("ack", 2)]
        assert broken.tried == [1, 1, 2]


async def test_a_redelivery_before_its_time_waits_for_the_rest_of_it(database_url: str) -> None:
    async with bench(database_url) as b:
        broken = Broken({1: 1})
        at_work, message = subscriber(b, handlers(broken)), placed()
        await deliver(at_work, [message])
        [(verdict, after, _)] = await deliver(at_work, [message])
        assert verdict == "retry"
        assert 50 < after <= 60
        assert broken.tried == [1]


@pytest.mark.spec("R9", "P13")
async def test_after_the_last_attempt_an_event_is_dead_and_its_key_goes_on(database_url: str) -> None:
    async with bench(database_url) as b:
        at_work = subscriber(b, handlers(Broken({1: 9})), backoff=Backoff(attempts=3, base=0.0))
        first, second = placed(1), placed(2)
        verdicts = [await deliver(at_work, [first, second]) for _ in range(3)]
        assert verdicts[0] == verdicts[1] == [("retry", 0, 1), ("retry", 0, 2)]
        assert [verdict[0] for verdict in verdicts[2]] == ["dead", "ack"]
        record = await b.record(first)
        assert record.stopped
        assert record.error_msg is not None
        assert record.error_msg.startswith("exceeded maxRetry")
        assert record.message is not None
        assert unpack(record.message) == first
        assert await b.effects() == ["1/2"]
        assert (at_work.statistics.failed, at_work.statistics.dead) == (3, 1)


@pytest.mark.spec("R9")
async def test_a_dead_event_that_is_revived_has_all_its_attempts_again(database_url: str) -> None:
    async with bench(database_url) as b:
        at_work = subscriber(b, handlers(Broken({1: 2})), backoff=Backoff(attempts=1))
        message = placed()
        assert (await deliver(at_work, [message]))[0][0] == "dead"
        patient = subscriber(b, handlers(Broken({1: 1})), backoff=Backoff(attempts=2, base=0.0))
        assert await deliver(patient, [message]) == [("retry", 0, 1)]
        assert await deliver(patient, [message]) == [("ack", 1)]
        assert await b.effects() == ["1/1"]


@pytest.mark.spec("P13")
async def test_a_business_error_is_acknowledged_kept_and_holds_nobody_up(database_url: str) -> None:
    async with bench(database_url) as b:
        broken = Broken({1: 1}, BusinessError("sold out"))
        at_work = subscriber(b, handlers(broken))
        first, second = placed(1), placed(2)
        assert await deliver(at_work, [first, second]) == [("ack", 1), ("ack", 2)]
        assert await b.effects() == ["1/2"]
        record = await b.record(first)
        assert record.refused
        assert record.error_msg == "BusinessError: sold out"
        assert record.message is not None
        assert await deliver(at_work, [first]) == [("ack", 1)]
        assert broken.tried == [1, 2]


async def test_a_failed_delayed_message_holds_nobody_up(database_url: str) -> None:
    async with bench(database_url) as b:
        at_work = subscriber(b, handlers(Broken({1: 1})))
        verdicts = await deliver(at_work, [delayed(1), placed(2)])
        assert sorted(verdicts) == [("ack", 2), ("retry", 60, 1)]


async def test_a_holder_that_lost_its_lease_gives_the_delivery_back(fresh_postgresql_url: str) -> None:
    async with bench(fresh_postgresql_url) as b:
        message = placed()

        async def slow(event: OrderPlaced, session: AsyncSession) -> None:
            await effect(session, "too late")
            await b.change(message, "locked_until = '2000-01-01 00:00:00'")
            assert (await b.inbox.try_acquire(GROUP, message, 30)).lease is not None

        await b.inbox.mark_failed(GROUP, message, RuntimeError(), Retry(0.0))
        [(verdict, _, _)] = await deliver(subscriber(b, handlers(slow)), [message])
        assert verdict == "retry"
        assert await b.effects() == []


async def test_a_handler_that_rolls_back_is_not_acknowledged(database_url: str) -> None:
    async with bench(database_url) as b:

        async def meddle(event: OrderPlaced, session: AsyncSession) -> None:
            await session.rollback()

        message = placed()
        [(verdict, _, _)] = await deliver(subscriber(b, handlers(meddle)), [message])
        assert verdict == "retry"
        assert "ended the transaction" in str((await b.record(message)).error_msg)


async def test_a_failure_does_not_settle_what_somebody_else_has_a_record_of(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()

        async def overtaken(event: OrderPlaced, session: AsyncSession) -> None:
            await session.rollback()
            assert (await b.inbox.try_acquire(GROUP, message, 30)).lease is not None
            raise BusinessError("too late")

        [(verdict, _, _)] = await deliver(subscriber(b, handlers(overtaken)), [message])
        assert verdict == "retry"
        assert (await b.record(message)).status is Status.PROCESSING


async def test_a_handler_that_awaits_something_cancelled_has_failed(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b:

        async def cancelled(event: OrderPlaced) -> None:
            task = asyncio.create_task(asyncio.Event().wait())
            task.cancel()
            await task

        message = placed()
        assert await deliver(subscriber(b, handlers(cancelled)), [message]) == [("retry", 60, 1)]
        assert "awaited something that was cancelled" in str((await b.record(message)).error_msg)


async def test_a_failure_is_told_with_the_attempt_the_next_try_and_the_users_own_line(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(sqlite_url) as b:
        message = placed()
        with caplog.at_level(logging.INFO, "postroad"):
            await deliver(subscriber(b, handlers(Broken({1: 1}))), [message])
        [record] = caplog.records
        told = record.getMessage()
        assert f"order.placed {message.id} failed in group receipts, attempt 1 of 3, next try at 20" in told
        assert "RuntimeError: not now" in told
        assert f"{__file__}:" in told
        assert "Broken.__call__" in told
        assert not {"success", "succeeded", "processed", "done"} & set(told.lower().split())
        assert record.event_id == str(message.id)  # type: ignore[attr-defined]
        assert record.aggregate_id == "1"  # type: ignore[attr-defined]


# --- the store in trouble -----------------------------------------------------------------------------


async def test_an_outage_of_the_store_burns_no_attempt(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(sqlite_url) as b:
        at_work = subscriber(b, handlers())
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
            assert waits[3] > waits[0]
            assert await b.inbox.list() == []
            patch.undo()
            assert await deliver(at_work, messages) == [("ack", 1), ("ack", 2)]
            patch.setattr(b.inbox, "claim", down)
            assert (await deliver(at_work, messages))[0][1] < waits[3]


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


# --- side by side -------------------------------------------------------------------------------------


@pytest.mark.spec("P6")
@pytest.mark.parametrize("store_kind", ["postgresql", "mariadb"], indirect=True)
async def test_a_slow_key_holds_up_no_other(database_url: str) -> None:
    async with bench(database_url) as b:
        others_done, order = asyncio.Event(), []

        async def handle(event: OrderPlaced, session: AsyncSession) -> None:
            if event.order_id == "slow" and event.n == 1:
                await others_done.wait()
            order.append((event.order_id, event.n))
            if order.count(("quick", 5)):
                others_done.set()

        messages = [placed(n, key) for n in range(1, 6) for key in ("slow", "quick")]
        at_work = subscriber(b, handlers(handle), concurrency=2)
        await asyncio.wait_for(deliver(at_work, messages), 30)
        assert order == [("quick", n) for n in range(1, 6)] + [("slow", n) for n in range(1, 6)]


@pytest.mark.spec("P6")
async def test_order_holds_within_every_key_under_random_failures(database_url: str) -> None:
    async with bench(database_url) as b:
        dice, handled = random.Random(7), []

        async def handle(event: OrderPlaced, session: AsyncSession) -> None:
            await effect(session, f"{event.order_id}/{event.n}")
            if dice.random() < 0.3:
                raise RuntimeError("not now")
            handled.append((event.order_id, event.n))

        at_work = subscriber(b, handlers(handle), backoff=Backoff(attempts=100, base=0.0))
        waiting = [placed(n, key) for n in range(1, 9) for key in "abcd"]
        for _ in range(200):
            deliveries = [NotedDelivery(message) for message in waiting]
            await at_work.handle(deliveries)
            waiting = [d.message for d in deliveries if d.message and d.verdicts[0][0] == "retry"]
            if not waiting:
                break
        assert waiting == []
        for key in "abcd":
            assert [n for known, n in handled if known == key] == list(range(1, 9))
        assert sorted(await b.effects()) == sorted(f"{key}/{n}" for key in "abcd" for n in range(1, 9))
