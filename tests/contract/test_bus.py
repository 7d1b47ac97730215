"""The in-process bus and the scheduler that runs its failures again, on every store."""

import asyncio

import pytest
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from postroad.context import current_message
from postroad.errors import StoreUnavailable, UnreadableMessage
from postroad.handlers import Bus, Registry
from postroad.inbox import ConsumeOptions, Record, RetryScheduler, Status
from postroad.message import Message
from postroad.retry import Retry
from tests.support.consuming import Bench, OrderPlaced, bench, effect, effects, placed

LATER = ConsumeOptions(keep_message=True, base_backoff=60)


class Shaky:
    """Fails until told otherwise."""

    def __init__(self) -> None:
        self.well, self.calls = False, 0

    async def __call__(self, event: OrderPlaced, session: AsyncSession) -> None:
        self.calls += 1
        await effect(session, f"stock {event.n}")
        if not self.well:
            raise RuntimeError("no stock")


async def notify(event: OrderPlaced, session: AsyncSession) -> None:
    await effect(session, f"mail {event.n}")


def made(b: Bench) -> tuple[Bus, Shaky]:
    bus, shaky = Bus(b.inbox, options=LATER), Shaky()
    bus.register("INVENTORY", OrderPlaced, shaky)
    bus.register("NOTIFY", OrderPlaced, notify)
    return bus, shaky


@pytest.mark.spec("T8", "T7")
async def test_every_group_handles_a_message_once_and_none_stops_another(database_url: str) -> None:
    async with bench(database_url) as b:
        bus, shaky = made(b)
        message = placed(3)
        await bus.publish(message)
        await bus.publish(message)
        assert await b.effects() == ["mail 3"]
        assert shaky.calls == 1
        assert (await b.record(message, "INVENTORY")).status is Status.FAILED
        assert (await b.record(message, "NOTIFY")).status is Status.SUCCEEDED


@pytest.mark.spec("T9")
async def test_the_scheduler_runs_failures_again_when_they_are_due(database_url: str) -> None:
    async with bench(database_url) as b:
        bus, shaky = made(b)
        scheduler = RetryScheduler(b.inbox, bus)
        message = placed(3)
        await bus.publish(message)
        assert await scheduler.run_once() == 0
        await b.make_due(message)
        assert await scheduler.run_once() == 1
        assert (await b.record(message, "INVENTORY")).retry_count == 2
        shaky.well = True
        await b.make_due(message)
        assert await scheduler.run_once() == 1
        assert await scheduler.run_once() == 0
        assert await b.effects() == ["mail 3", "stock 3"]
        assert (await b.record(message, "INVENTORY")).message is None


@pytest.mark.spec("T9")
async def test_what_is_published_behind_a_failure_waits_for_it(database_url: str) -> None:
    async with bench(database_url) as b:
        bus, shaky = made(b)
        scheduler = RetryScheduler(b.inbox, bus)
        first, second = placed(1), placed(2)
        await bus.publish(first)
        shaky.well = True
        await bus.publish(second)
        assert await b.effects() == ["mail 1", "mail 2"]
        assert (await b.record(second, "INVENTORY")).error_msg == "waits for an earlier event of its key"
        await b.make_due(first)
        await b.make_due(second)
        while await scheduler.run_once():
            await b.make_due(second)
        assert await b.effects() == ["mail 1", "mail 2", "stock 1", "stock 2"]


@pytest.mark.spec("T9")
async def test_a_long_queue_behind_a_failure_keeps_no_other_key_waiting(database_url: str) -> None:
    async with bench(database_url) as b:
        bus, shaky = made(b)
        scheduler = RetryScheduler(b.inbox, bus)
        head, *behind = [placed(version) for version in range(1, 111)]
        await bus.publish(head)
        for message in behind:
            await bus.publish(message)
            await b.make_due(message)
        await bus.publish(other := placed(200, "other"))
        await b.make_due(other)
        assert shaky.calls == 2
        shaky.well = True
        assert await scheduler.run_once() == 1
        assert (await b.record(other, "INVENTORY")).status is Status.SUCCEEDED
        await b.make_due(head)
        assert await scheduler.run_once() == 100
        assert shaky.calls == 2 + 1 + 100


@pytest.mark.spec("T9")
async def test_kept_messages_that_cannot_be_read_are_dead_and_keep_nobody_waiting(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(database_url) as b:
        bus, shaky = made(b)
        scheduler = RetryScheduler(b.inbox, bus)
        spoiled = [placed(1, f"spoiled {n}") for n in range(100)]
        behind, sound = placed(2, "spoiled 0"), placed(3, "sound")
        for message in (*spoiled, sound):
            await b.inbox.mark_failed("INVENTORY", message, RuntimeError(), Retry(0.0), keep_message=True)
        begun = spoiled[1]
        await b.inbox.try_acquire("INVENTORY", begun, 0.0)
        await b.spoil(*spoiled)
        shaky.well = True
        assert await scheduler.run_once() == 100
        assert await scheduler.run_once() == 1
        assert (await b.record(sound, "INVENTORY")).status is Status.SUCCEEDED
        record = await b.record(begun, "INVENTORY")
        assert (record.stopped, record.locked_by, record.message) == (True, None, b"\xc1")
        assert (record.error_msg or "").startswith("UnreadableMessage: The stored message cannot be read")
        assert str(begun.id) in caplog.text
        await bus.publish(behind)  # nothing waits for what is dead
        assert (await b.record(behind, "INVENTORY")).status is Status.SUCCEEDED


async def test_what_somebody_else_has_taken_is_not_given_up(database_url: str) -> None:
    """Another release may be able to read what this one cannot."""
    async with bench(database_url) as b:
        message = placed()
        await b.inbox.mark_failed("INVENTORY", message, RuntimeError(), Retry(0.0), keep_message=True)
        (due,) = await b.inbox.due("INVENTORY")
        await b.inbox.try_acquire("INVENTORY", message, 30.0)
        await _is_not_given_up(b, due)


async def test_what_its_holder_has_renewed_or_finished_after_all_is_not_given_up(database_url: str) -> None:
    """It was late, and another release."""
    async with bench(database_url) as b:
        message = placed()
        await b.inbox.mark_failed("INVENTORY", message, RuntimeError(), Retry(0.0), keep_message=True)
        lease = (await b.inbox.try_acquire("INVENTORY", message, 0.0)).lease
        assert lease is not None
        (due,) = await b.inbox.due("INVENTORY")
        assert await b.inbox.renew(lease, 30.0)
        await _is_not_given_up(b, due)
        async with b.store.transaction() as connection:
            await b.inbox.mark_success(connection, lease)
        await _is_not_given_up(b, due)


async def _is_not_given_up(b: Bench, due: Record) -> None:
    before = await b.inbox.find(due.group, due.event_id)
    assert not await b.inbox.give_up(due, UnreadableMessage("another form"))
    assert await b.inbox.find(due.group, due.event_id) == before


@pytest.mark.spec("T9")
async def test_two_schedulers_run_a_failure_once(database_url: str) -> None:
    async with bench(database_url) as b:
        bus, shaky = made(b)
        message = placed(3)
        await bus.publish(message)
        shaky.well = True
        await b.make_due(message)
        await asyncio.gather(*(RetryScheduler(b.inbox, bus).run_once() for _ in range(2)))
        assert shaky.calls == 2
        assert await b.effects() == ["mail 3", "stock 3"]


@pytest.mark.spec("T9")
async def test_what_a_killed_process_had_begun_is_run_by_the_scheduler(database_url: str) -> None:
    async with bench(database_url) as b:
        bus, shaky = made(b)
        shaky.well = True
        message = placed(3)
        await b.inbox.try_acquire("INVENTORY", message, 0.0, keep_message=True)
        assert await RetryScheduler(b.inbox, bus).run_once() == 1
        assert await b.effects() == ["stock 3"]


@pytest.mark.spec("T9")
async def test_what_is_published_behind_something_that_was_only_begun_waits_for_it(database_url: str) -> None:
    """Whoever began with it may be dead: its key must not go on without it."""
    async with bench(database_url) as b:
        bus, shaky = made(b)
        shaky.well = True
        first, second = placed(1), placed(2)
        await b.inbox.try_acquire("INVENTORY", first, 0.0, keep_message=True)
        await bus.publish(second)
        assert shaky.calls == 0
        while await RetryScheduler(b.inbox, bus).run_once():
            await b.make_due(second)
        assert await b.effects() == ["mail 2", "stock 1", "stock 2"]


async def test_the_scheduler_leaves_groups_of_other_processes_alone(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b:
        bus, _ = made(b)
        await bus.publish(message := placed())
        await b.make_due(message)
        assert await RetryScheduler(b.inbox, Bus(b.inbox, Registry())).run_once() == 0


async def test_what_could_not_be_recorded_is_raised(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(sqlite_url) as b:
        bus, _ = made(b)

        async def down(*_: object, **__: object) -> None:
            raise StoreUnavailable("gone")

        monkeypatch.setattr(b.inbox, "try_acquire", down)
        with pytest.raises(StoreUnavailable):
            await bus.publish(placed())


async def test_handlers_of_every_kind_are_called(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b:
        road, seen = object(), []
        bus = Bus(b.inbox, road=road)
        message = placed(3)

        def plain(event: OrderPlaced) -> None:
            seen.append(("plain", event.n, current_message.get()))

        def with_session(event: OrderPlaced, session: Session, message: Message) -> None:
            session.execute(effects.insert().values(what=f"sync {message.version}"))
            seen.append(("sync", event.n, current_message.get()))

        async def with_all(event: OrderPlaced, session: AsyncSession, message: Message, road: object) -> None:
            await effect(session, "async")
            seen.append(("async", road, message))

        async def forgotten(event: OrderPlaced) -> None:
            seen.append(("forgotten", event.n, current_message.get()))

        bus.register("a", OrderPlaced, plain)
        bus.register("b", OrderPlaced, with_session)
        bus.register("c", OrderPlaced, with_all)
        bus.register("d", OrderPlaced, lambda event: forgotten(event))
        await bus.publish(message)
        assert seen == [
            ("plain", 3, message),
            ("sync", 3, message),
            ("async", road, message),
            ("forgotten", 3, message),
        ]
        assert await b.effects() == ["sync 3", "async"]
        assert current_message.get() is None
