"""The consumption template on every store: acquire, run, settle; fail, wait, stop."""

import asyncio
import sqlite3
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from postroad.errors import (
    BusinessError,
    ConfigurationError,
    ConsumeConflict,
    ConsumeFailed,
    LeaseLost,
    PoisonError,
    StoreBusy,
)
from postroad.inbox import AcquireState, ConsumeOptions, ConsumeResult, Inbox, Status
from postroad.inbox.record import unpack
from postroad.message import Message
from postroad.stores import open_store
from postroad.testing import VirtualClock
from tests.support.consuming import GROUP, Bench, bench, effect, placed
from tests.support.outbox import until

TTL = 30.0


class Failing:
    def __init__(self, error: Exception) -> None:
        self.error, self.calls = error, 0

    async def __call__(self, message: Message, session: AsyncSession) -> None:
        self.calls += 1
        await effect(session, f"half done {self.calls}")
        raise self.error


async def write(message: Message, session: AsyncSession) -> None:
    await effect(session, f"order {message.version}")


async def fail(b: Bench, message: Message, error: Exception | None = None, **options: Any) -> None:
    error = error or RuntimeError("not now")
    with pytest.raises(type(error)):
        await b.inbox.consume(GROUP, message, Failing(error), ConsumeOptions(**options))


# --- acquire states -----------------------------------------------------------------------------------


@pytest.mark.spec("T3")
async def test_a_new_message_is_acquired(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        acquired = await b.inbox.try_acquire(GROUP, message, TTL)
        assert acquired.state is AcquireState.ACQUIRED
        assert acquired.lease is not None
        assert acquired.lease.epoch == 1
        record = await b.record(message)
        assert record.status is Status.PROCESSING
        assert record.locked_by == b.inbox.worker_name
        assert record.locked_until is not None


@pytest.mark.spec("T3")
async def test_a_held_message_is_in_progress(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        await b.inbox.try_acquire(GROUP, message, TTL)
        second = await b.inbox.try_acquire(GROUP, message, TTL)
        assert second.state is AcquireState.IN_PROGRESS
        assert second.lease is None
        assert 0 < second.wait <= 1


@pytest.mark.spec("T3")
async def test_a_succeeded_message_is_replayed(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        assert await b.inbox.consume(GROUP, message, write) == ConsumeResult()
        assert (await b.inbox.try_acquire(GROUP, message, TTL)).state is AcquireState.REPLAY_SUCCEEDED
        assert await b.inbox.consume(GROUP, message, write) == ConsumeResult(replayed=True)
        assert await b.effects() == ["order 1"]


@pytest.mark.spec("T3")
async def test_a_failed_message_is_retryable_when_due_and_not_before(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        await fail(b, message, base_backoff=60)
        early = await b.inbox.try_acquire(GROUP, message, TTL)
        assert early.state is AcquireState.IN_PROGRESS
        assert 55 < early.wait <= 60
        await b.make_due(message)
        due = await b.inbox.try_acquire(GROUP, message, TTL)
        assert due.state is AcquireState.RETRYABLE_FAILED
        assert due.retry_count == 1


@pytest.mark.spec("T3")
async def test_the_same_id_with_another_type_is_a_conflict(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        await b.inbox.consume(GROUP, message, write)
        other = placed(id=message.id, type="order.cancelled")
        assert (await b.inbox.try_acquire(GROUP, other, TTL)).state is AcquireState.CONFLICT
        with pytest.raises(ConsumeConflict, match=r"order\.cancelled.*order\.placed"):
            await b.inbox.consume(GROUP, other, write)


@pytest.mark.spec("P6")
async def test_a_later_event_waits_until_its_failed_predecessor_is_due(database_url: str) -> None:
    async with bench(database_url) as b:
        await fail(b, placed(1), base_backoff=60)
        second = await b.inbox.try_acquire(GROUP, placed(2), TTL)
        assert second.state is AcquireState.IN_PROGRESS
        assert 55 < second.wait <= 60
        assert await b.inbox.list() == [record for record in await b.inbox.list() if record.version == 1]


async def test_a_later_event_waits_while_its_predecessor_is_tried_again(database_url: str) -> None:
    async with bench(database_url) as b:
        first, second = placed(1), placed(2)
        await fail(b, first, base_backoff=60)
        await b.make_due(first)
        again = await b.inbox.try_acquire(GROUP, first, TTL)
        assert (await b.inbox.try_acquire(GROUP, second, TTL)).state is AcquireState.IN_PROGRESS
        assert again.lease is not None
        async with b.store.transaction() as connection:
            await b.inbox.mark_success(connection, again.lease)
        assert (await b.inbox.try_acquire(GROUP, second, TTL)).state is AcquireState.ACQUIRED


# --- leases -------------------------------------------------------------------------------------------


@pytest.mark.spec("T6")
async def test_many_at_once_run_the_handler_once(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        others = [Inbox(open_store(database_url)) for _ in range(3)]
        results = await asyncio.gather(
            *(inbox.consume(GROUP, message, write) for inbox in (b.inbox, *others) for _ in range(2))
        )
        assert results.count(ConsumeResult()) == 1
        assert await b.effects() == ["order 1"]
        for inbox in others:
            await inbox.aclose()
            await inbox.store.aclose()


@pytest.mark.spec("T6")
async def test_a_dead_holders_lease_is_taken_over_and_fenced(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        old = await b.inbox.try_acquire(GROUP, message, 0.0)
        new = await b.inbox.try_acquire(GROUP, message, TTL)
        assert new.state is AcquireState.ACQUIRED
        assert old.lease is not None
        assert new.lease is not None
        assert new.lease.epoch == old.lease.epoch + 1
        assert not await b.inbox.renew(old.lease, TTL)
        with pytest.raises(LeaseLost, match="taken over"):
            await b.inbox.attempt(old.lease, lambda session: write(message, session), TTL)
        assert await b.effects() == []
        await b.inbox.attempt(new.lease, lambda session: write(message, session), TTL)
        assert await b.effects() == ["order 1"]


async def test_a_holder_that_lost_its_lease_cannot_record_a_failure(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        stolen: list[Any] = []

        async def slow(message: Message, session: AsyncSession) -> None:
            stolen.append(await _steal(b, message))
            raise RuntimeError("too late")

        if b.store.dialect == "sqlite":
            # The handler is the only writer, so nobody can take its lease meanwhile: let it end before.
            old = await b.inbox.try_acquire(GROUP, message, 0.0)
            await b.inbox.try_acquire(GROUP, message, TTL)
            assert not await b.inbox.mark_failed(GROUP, message, RuntimeError(), _retry(), lease=old.lease, failures=1)
        else:
            with pytest.raises(RuntimeError):
                await b.inbox.consume(GROUP, message, slow, ConsumeOptions(lock_ttl=TTL))
        record = await b.record(message)
        assert record.status is Status.PROCESSING
        assert record.error_msg is None


async def _steal(b: Bench, message: Message) -> Any:
    await b.change(message, "locked_until = '2000-01-01 00:00:00'")
    return await b.inbox.try_acquire(GROUP, message, TTL)


def _retry() -> Any:
    from postroad.retry import Retry

    return Retry(1.0)


async def test_a_cancelled_attempt_lets_its_lease_go(database_url: str) -> None:
    async with bench(database_url) as b:
        message, started = placed(), asyncio.Event()

        async def endless(message: Message, session: AsyncSession) -> None:
            started.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(b.inbox.consume(GROUP, message, endless))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        again = await b.inbox.try_acquire(GROUP, message, TTL)
        assert again.state is AcquireState.ACQUIRED
        assert again.retry_count == 0


# --- failure ------------------------------------------------------------------------------------------


@pytest.mark.spec("T4")
async def test_a_handlers_error_goes_up_is_recorded_and_undoes_its_work(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        await fail(b, message, RuntimeError("no\0 \ud800" + "x" * 500), base_backoff=60)
        assert await b.effects() == []
        record = await b.record(message)
        assert record.status is Status.FAILED
        assert record.retry_count == 1
        assert record.locked_by is None
        assert record.error_msg is not None
        assert record.error_msg.startswith("RuntimeError: no")
        assert len(record.error_msg) <= 256
        assert record.message is None


@pytest.mark.spec("T4")
async def test_back_off_doubles_up_to_its_limit(database_url: str) -> None:
    async with bench(database_url) as b:
        message, waits = placed(), []
        for _ in range(4):
            await fail(b, message, base_backoff=100, max_backoff=300)
            waits.append((await b.inbox.try_acquire(GROUP, message, TTL)).wait)
            await b.make_due(message)
        assert [round(wait / 10) * 10 for wait in waits] == [100, 200, 300, 300]


@pytest.mark.spec("T4")
async def test_past_the_last_retry_a_record_is_stopped_and_marked(database_url: str) -> None:
    async with bench(database_url) as b:
        message, handler = placed(), Failing(RuntimeError("still not"))
        options = ConsumeOptions(max_retry=1, base_backoff=0)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                await b.inbox.consume(GROUP, message, handler, options)
        with pytest.raises(ConsumeFailed, match="exceeded maxRetry"):
            await b.inbox.consume(GROUP, message, handler, options)
        assert handler.calls == 2
        record = await b.record(message)
        assert record.error_msg is not None
        assert record.error_msg.startswith("exceeded maxRetry")
        assert record.next_retry_at is None
        assert record.stopped
        assert not record.refused
        assert record.message is not None
        assert unpack(record.message) == message
        assert (await b.inbox.try_acquire(GROUP, placed(2), TTL)).state is AcquireState.ACQUIRED


@pytest.mark.spec("P13")
async def test_a_business_error_is_settled_at_once_with_its_message_kept(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        await fail(b, message, BusinessError("sold out"))
        record = await b.record(message)
        assert record.refused
        assert record.error_msg == "BusinessError: sold out"
        assert record.message is not None
        assert (await b.inbox.try_acquire(GROUP, message, TTL)).state is AcquireState.STOPPED
        assert (await b.inbox.try_acquire(GROUP, placed(2), TTL)).state is AcquireState.ACQUIRED


async def test_a_stopped_record_has_all_its_attempts_again_when_a_person_asks(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        await fail(b, message, PoisonError("cannot be"))
        assert (await b.inbox.try_acquire(GROUP, message, TTL)).state is AcquireState.STOPPED
        assert await b.inbox.retry(GROUP, message.id)
        acquired = await b.inbox.try_acquire(GROUP, message, TTL)
        assert acquired.state is AcquireState.RETRYABLE_FAILED
        assert acquired.retry_count == 0


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_handler_may_not_end_its_transaction(database_url: str, end: str) -> None:
    async with bench(database_url) as b:

        async def meddle(message: Message, session: AsyncSession) -> None:
            await effect(session, "meddled")
            await getattr(session, end)()

        with pytest.raises(ConfigurationError, match="Leave commit and rollback to Postroad"):
            await b.inbox.consume(GROUP, placed(), meddle)


async def test_a_handlers_own_missing_table_is_its_own_error(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()

        async def wrong(message: Message, session: AsyncSession) -> None:
            await (await session.connection()).exec_driver_sql("SELECT * FROM nowhere")

        with pytest.raises(Exception, match="nowhere"):
            await b.inbox.consume(GROUP, message, wrong)
        assert (await b.record(message)).retry_count == 1


async def test_a_handlers_refused_connection_elsewhere_is_its_own_error(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        await fail(b, message, ConnectionRefusedError("mail server"))
        assert (await b.record(message)).retry_count == 1


async def test_a_busy_database_inside_a_handler_is_nobodys_fault(sqlite_url: str) -> None:
    """No attempt is counted, the lease is let go, and whoever delivered it is told to try again."""
    async with bench(sqlite_url) as b:
        message = placed()

        async def meets_a_lock(message: Message, session: AsyncSession) -> None:
            locked = sqlite3.OperationalError("database is locked")
            locked.sqlite_errorname = "SQLITE_BUSY"
            raise DBAPIError("UPDATE stock", None, locked)

        with pytest.raises(StoreBusy):
            await b.inbox.consume(GROUP, message, meets_a_lock)
        again = await b.inbox.try_acquire(GROUP, message, TTL)
        assert (again.state, again.retry_count) == (AcquireState.ACQUIRED, 0)


# --- waiting ------------------------------------------------------------------------------------------


async def _waiting(b: Bench, message: Message, **options: Any) -> "asyncio.Task[ConsumeResult]":
    task = asyncio.create_task(
        b.inbox.consume(GROUP, message, write, ConsumeOptions(wait_if_in_progress=True, **options))
    )
    await asyncio.sleep(0.05)
    return task


@pytest.mark.spec("T5")
async def test_waiting_ends_with_the_other_ones_success(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        acquired = await b.inbox.try_acquire(GROUP, message, TTL)
        assert acquired.lease is not None
        task = await _waiting(b, message, wait_max=20)
        await b.inbox.attempt(acquired.lease, lambda session: effect(session, "theirs"), TTL)
        assert await task == ConsumeResult(replayed=True)
        assert await b.effects() == ["theirs"]


@pytest.mark.spec("T5")
async def test_waiting_ends_with_the_other_ones_failure(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        acquired = await b.inbox.try_acquire(GROUP, message, TTL)
        task = await _waiting(b, message, wait_max=20)
        await b.inbox.mark_failed(GROUP, message, RuntimeError("theirs"), _retry(), lease=acquired.lease)
        with pytest.raises(ConsumeFailed, match="RuntimeError: theirs"):
            await task


@pytest.mark.spec("T5")
async def test_waiting_has_an_end(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        await b.inbox.try_acquire(GROUP, message, TTL)
        assert await (await _waiting(b, message, wait_max=0.01)) == ConsumeResult(in_progress=True)
        assert await b.inbox.consume(GROUP, message, write) == ConsumeResult(in_progress=True)


async def test_waiting_lasts_as_long_as_was_said_with_pauses(sqlite_url: str) -> None:
    clock = VirtualClock()
    async with bench(sqlite_url) as b:
        message = placed()
        await b.inbox.try_acquire(GROUP, message, TTL)
        patient = Inbox(b.inbox.store, clock=clock)
        waiting = asyncio.create_task(
            patient.consume(GROUP, message, write, ConsumeOptions(wait_if_in_progress=True, wait_max=0.25))
        )
        for moment in (0.1, 0.2, 0.25):
            await until(clock.next_alarm)
            assert not waiting.done()
            assert clock.next_alarm() == moment
            clock.shift(moment - clock.monotonic())
        assert await waiting == ConsumeResult(in_progress=True)


@pytest.mark.spec("T5")
def test_the_options_defaults_are_the_documented_ones() -> None:
    options = ConsumeOptions()
    assert (options.lock_ttl, options.wait_if_in_progress, options.wait_max) == (30.0, False, 0.0)
    assert (options.max_retry, options.base_backoff, options.max_backoff) == (20, 1.0, 300.0)
    assert options.backoff.after(20) == 300.0
    assert options.backoff.after(21) is None
    assert timedelta(seconds=options.backoff.after(3) or 0) == timedelta(seconds=4)
