"""A handler that fails: recorded, tried again in order, dead in the end, and told to a person."""

import asyncio
import logging
from contextlib import suppress

import pytest
from sqlalchemy import insert, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from postroad.errors import BusinessError, ConfigurationError
from postroad.inbox import Status
from postroad.inbox.record import unpack
from postroad.retry import Backoff, Retry
from tests.support import consuming
from tests.support.consuming import (
    GROUP,
    Bench,
    Broken,
    NotedDelivery,
    OrderPlaced,
    bench,
    delayed,
    deliver,
    effect,
    effects,
    handlers,
    placed,
    subscriber,
)


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


@pytest.mark.parametrize(("attempts", "verdict"), [(3, "retry"), (1, "dead")])
async def test_a_failure_is_recorded_before_its_verdict(database_url: str, attempts: int, verdict: str) -> None:
    """A crash in between then costs a delivery, and not the count."""
    message, seen = placed(), []

    class Looking(NotedDelivery):
        async def retry(self, after: float) -> None:
            seen.append(("retry", (await b.record(message)).retry_count))

        async def dead(self, reason: str) -> None:
            seen.append(("dead", (await b.record(message)).retry_count))

    async with bench(database_url) as b:
        failing = subscriber(b, handlers(Broken({1: 1})), backoff=Backoff(attempts=attempts, base=60.0))
        await failing.handle([Looking(message)])
    assert seen == [(verdict, 1)]


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


@pytest.mark.spec("P10", "T4")
async def test_a_dead_event_that_comes_again_unasked_is_dead_again_untried(database_url: str) -> None:
    """Dead, and not acknowledged: it may come again because the worker died before it could say so."""
    async with bench(database_url) as b:
        broken = Broken({1: 1})
        at_work, message = subscriber(b, handlers(broken), backoff=Backoff(attempts=1)), placed()
        [(_, reason, _)] = await deliver(at_work, [message])
        assert await deliver(at_work, [message, message]) == [("dead", reason, 1)] * 2
        assert (broken.tried, await b.effects()) == ([1], [])
        assert (await b.record(message)).stopped


@pytest.mark.spec("R9")
async def test_a_dead_event_that_a_person_revives_has_all_its_attempts_again(database_url: str) -> None:
    async with bench(database_url) as b:
        at_work = subscriber(b, handlers(Broken({1: 2})), backoff=Backoff(attempts=1))
        message = placed()
        assert (await deliver(at_work, [message]))[0][0] == "dead"
        await b.store.change("inbox_revive", group=GROUP, event_id=message.id)
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


@pytest.mark.parametrize("through", ["session", "plain session", "connection"])
@pytest.mark.parametrize("then_fails", [False, True])
async def test_a_handler_cannot_commit_and_so_leaves_no_half_of_its_effect(
    database_url: str, through: str, then_fails: bool
) -> None:
    """The record would be kept with it, and the rest never tried again."""
    async with bench(database_url) as b:

        async def commit(event: OrderPlaced, session: AsyncSession) -> None:
            await effect(session, "half")
            await session.commit()
            if then_fails:
                raise RuntimeError("too late")

        def commit_plainly(event: OrderPlaced, session: Session) -> None:
            session.execute(insert(effects).values(what="half"))
            session.commit()

        async def commit_on_the_connection(event: OrderPlaced, session: AsyncSession) -> None:
            await effect(session, "half")
            try:
                await (await session.connection()).commit()
            except ConfigurationError:
                if not then_fails:  # nor can it go on as if nothing had happened
                    raise

        handler = {"session": commit, "plain session": commit_plainly, "connection": commit_on_the_connection}[through]
        message = placed()
        [(verdict, _, _)] = await deliver(subscriber(b, handlers(handler)), [message])
        assert verdict == "retry"
        assert await b.effects() == []
        record = await b.record(message)
        assert record.status is not Status.SUCCEEDED
        assert "Leave commit and rollback to Postroad" in str(record.error_msg)


async def test_an_error_of_the_database_that_a_handler_has_swallowed_is_no_success(database_url: str) -> None:
    """PostgreSQL gives up the whole transaction, and takes its commit without a word; the others go on."""
    async with bench(database_url) as b:

        async def swallow(event: OrderPlaced, session: AsyncSession) -> None:
            await effect(session, "first")
            try:
                await session.execute(text("INSERT INTO effect (nothing_of_that_name) VALUES (1)"))
            except SQLAlchemyError:
                pass

        message = placed()
        [(verdict, *_)] = await deliver(subscriber(b, handlers(swallow)), [message])
        record = await b.record(message)
        if b.store.dialect == "postgresql":
            assert verdict == "retry"
            assert "begin_nested" in str(record.error_msg)
            assert await b.effects() == []
        else:
            assert (verdict, record.status) == ("ack", Status.SUCCEEDED)
            assert await b.effects() == ["first"]


async def test_what_follows_a_swallowed_error_that_ended_the_transaction_is_not_kept(database_url: str) -> None:
    """Half of an effect without the event's record: it would be lost, or happen once and a half."""
    async with bench(database_url) as b:

        async def swallow(event: OrderPlaced, session: AsyncSession) -> None:
            await effect(session, "before")
            with suppress(SQLAlchemyError):
                await _lose_transaction(b, session)
            with suppress(SQLAlchemyError):
                await effect(session, "after")

        message = placed()
        [(verdict, *_)] = await deliver(subscriber(b, handlers(swallow)), [message])
        assert verdict == "retry"
        record = await b.record(message)
        assert record.status is not Status.SUCCEEDED
        assert "the whole transaction" in str(record.error_msg)
        assert await b.effects() == []


async def _lose_transaction(b: Bench, session: AsyncSession) -> None:
    if b.store.dialect != "mysql":
        ignored = " OR ROLLBACK" if b.store.dialect == "sqlite" else ""
        await session.execute(text(f"INSERT{ignored} INTO effect (what) VALUES ('before')"))
        return
    # A deadlock, in which the server gives up whoever has changed less.
    async with b.store.engine.begin() as other:
        await other.execute(insert(effects), [{"what": f"other {n}"} for n in range(50)])
        waits = asyncio.create_task(other.execute(insert(effects).values(what="before")))
        try:
            await session.execute(insert(effects).values(what="other 1"))
        finally:
            await waits
            await other.rollback()


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
        assert f"{consuming.__file__}:" in told
        assert "Broken.__call__" in told
        assert not {"success", "succeeded", "processed", "done"} & set(told.lower().split())
        assert record.event_id == str(message.id)  # type: ignore[attr-defined]
        assert record.aggregate_id == "1"  # type: ignore[attr-defined]
