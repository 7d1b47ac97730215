"""What people and loops ask of the records, on every store."""

import pytest

from postroad.errors import BusinessError, ConfigurationError
from postroad.inbox import ConsumeOptions, Inbox, Status
from postroad.inbox.records import WEEK, Counts
from postroad.message import Message
from postroad.retry import Ack, Dead, Retry
from tests.support.consuming import GROUP, Bench, bench, placed


async def succeed(b: Bench, message: Message, group: str = GROUP) -> None:
    async def nothing(message: Message, session: object) -> None:
        pass

    await b.inbox.consume(group, message, nothing)


async def fail(b: Bench, message: Message, failures: int = 1, group: str = GROUP) -> None:
    await b.inbox.mark_failed(group, message, RuntimeError("no"), Retry(60.0), failures=failures)


async def age(b: Bench, message: Message) -> None:
    await b.change(message, "processed_at = '2000-01-01 00:00:00'")


async def test_records_are_listed_page_by_page(database_url: str) -> None:
    async with bench(database_url) as b:
        messages = [placed(n) for n in range(1, 6)]
        for message in messages:
            await fail(b, message)
        await succeed(b, placed(9, "other"), group="billing")
        first = await b.inbox.list(GROUP, limit=3)
        rest = await b.inbox.list(GROUP, limit=3, after=(GROUP, first[-1].event_id))
        assert [record.event_id for record in (*first, *rest)] == sorted(m.id for m in messages)
        assert [record.group for record in await b.inbox.list(status=Status.SUCCEEDED)] == ["billing"]
        assert len(await b.inbox.list()) == 6
        assert await b.inbox.list("billing", Status.FAILED) == []


@pytest.mark.spec("T10")
async def test_counts_tell_failures_and_the_highest_retry_count(database_url: str) -> None:
    async with bench(database_url) as b:
        await fail(b, placed(1))
        await fail(b, placed(2), failures=4)
        await b.inbox.try_acquire(GROUP, placed(1, "other"), 30)
        await succeed(b, placed(3, "third"))
        await fail(b, placed(1), failures=2, group="billing")
        assert await b.inbox.counts() == {
            GROUP: Counts(processing=1, waiting=2, highest_retry_count=4),
            "billing": Counts(processing=0, waiting=1, highest_retry_count=2),
        }


async def test_retry_makes_a_failed_record_due_with_all_its_attempts(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        await b.inbox.mark_failed(GROUP, message, RuntimeError(), Dead("exceeded maxRetry"), failures=5)
        assert await b.inbox.due(GROUP) == []
        assert await b.inbox.retry(GROUP, message.id)
        assert [(record.event_id, record.retry_count) for record in await b.inbox.due(GROUP)] == [(message.id, 0)]
        assert not await b.inbox.retry("billing", message.id)


async def test_retry_takes_back_a_refusal(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        await b.inbox.mark_failed(GROUP, message, BusinessError(), Ack("sold out"))
        assert await b.inbox.retry(GROUP, message.id)
        assert not (await b.record(message)).refused


async def test_discard_settles_a_record_and_frees_its_key(database_url: str) -> None:
    async with bench(database_url) as b:
        message, later = placed(1), placed(2)
        await fail(b, message)
        assert (await b.inbox.try_acquire(GROUP, later, 30)).lease is None
        assert await b.inbox.discard(GROUP, message.id)
        assert (await b.record(message)).refused
        assert (await b.inbox.try_acquire(GROUP, later, 30)).lease is not None


async def test_a_succeeded_record_can_be_neither_retried_nor_discarded(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        await succeed(b, message)
        assert not await b.inbox.retry(GROUP, message.id)
        assert not await b.inbox.discard(GROUP, message.id)
        assert not await b.inbox.mark_failed(GROUP, message, RuntimeError(), Retry(1.0))
        assert (await b.record(message)).status is Status.SUCCEEDED


async def test_only_old_successes_are_pruned(database_url: str) -> None:
    async with bench(database_url) as b:
        old, young, failed, refused = placed(1), placed(2), placed(1, "other"), placed(1, "third")
        await succeed(b, old)
        await succeed(b, young)
        await fail(b, failed)
        await b.inbox.mark_failed(GROUP, refused, BusinessError(), Ack("no"))
        held = placed(1, "fourth")
        await b.inbox.try_acquire(GROUP, held, 0.0)
        for message in (old, failed, refused, held):
            await age(b, message)
        assert await b.inbox.prune(WEEK) == 1
        assert await b.inbox.find(GROUP, old.id) is None
        for kept in (young, failed, refused, held):
            assert await b.inbox.find(GROUP, kept.id) is not None


async def test_pruning_is_done_in_portions(database_url: str) -> None:
    async with bench(database_url) as b:
        for n in range(5):
            message = placed(n + 1)
            await succeed(b, message)
            await age(b, message)
        assert [await b.inbox.prune(WEEK, limit=3) for _ in range(3)] == [3, 2, 0]


async def test_records_are_kept_for_as_long_as_an_event_may_return(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b:
        with pytest.raises(ConfigurationError, match="would be handled twice"):
            await b.inbox.prune(WEEK - 1)
        assert await Inbox(b.store, horizon=10.0).prune(10.0) == 0


async def test_types_a_group_has_handled_stay_known(database_url: str) -> None:
    async with bench(database_url) as b:
        await b.inbox.declare(GROUP, ["order.placed", "order.cancelled"])
        await b.inbox.declare(GROUP, ["order.placed"])
        await b.inbox.declare("billing", ["order.paid"])
        assert await b.inbox.known_types(GROUP) == {"order.placed", "order.cancelled"}


async def test_only_what_nobody_else_delivers_is_due(database_url: str) -> None:
    async with bench(database_url) as b:
        with_broker, kept, waiting = placed(1), placed(1, "other"), placed(1, "third")
        await fail(b, with_broker)
        for message in (kept, waiting):
            await b.inbox.mark_failed(GROUP, message, RuntimeError(), Retry(60.0), keep_message=True)
        await b.make_due(with_broker)
        await b.make_due(kept)
        assert [record.event_id for record in await b.inbox.due(GROUP)] == [kept.id]


async def test_what_a_dead_process_held_is_due_when_its_lease_ends(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        await b.inbox.try_acquire(GROUP, message, 0.0, keep_message=True)
        assert [record.event_id for record in await b.inbox.due(GROUP)] == [message.id]


async def test_the_template_needs_no_broker_and_no_handlers(sqlite_url: str) -> None:
    """Somebody who has a consumer already uses the inbox alone."""
    async with bench(sqlite_url) as b:
        inbox, seen = Inbox(b.store), []

        async def deduct(message: Message, session: object) -> None:
            seen.append(message.id)

        message = placed()
        for _ in range(2):
            await inbox.consume("INVENTORY", message, deduct, ConsumeOptions())
        assert seen == [message.id]
