"""What is listed and counted of the records: which, in which order, how many."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import psycopg
import pytest

from postroad.errors import BusinessError
from postroad.inbox import Lease, Status
from postroad.inbox.records import WEEK, Counts
from postroad.message import Message
from postroad.retry import Ack, Dead, Decision, Retry
from postroad.stores import Store
from tests.support.consuming import GROUP, Bench, placed

TTL = 30.0
OTHER = "billing"


@pytest.fixture
async def b(store: Store, store_url: str) -> AsyncIterator[Bench]:
    made = Bench(store_url, store)
    yield made
    await made.inbox.aclose()


async def held(b: Bench, message: Message, group: str = GROUP, ttl: float = TTL, keep_message: bool = False) -> Lease:
    lease = (await b.inbox.try_acquire(group, message, ttl, keep_message=keep_message)).lease
    assert lease is not None
    return lease


async def succeed(b: Bench, message: Message, group: str = GROUP) -> None:
    lease = await held(b, message, group)
    async with b.store.transaction() as connection:
        await b.inbox.mark_success(connection, lease)


async def fail(b: Bench, message: Message, decision: Decision, group: str = GROUP, failures: int = 1) -> None:
    await b.inbox.mark_failed(group, message, BusinessError(), decision, failures=failures, keep_message=True)


async def each_state(b: Bench, group: str) -> dict[str, UUID]:
    messages = {name: placed(1, name) for name in ("held", "done", "waiting", "refused", "dead")}
    await held(b, messages["held"], group)
    await succeed(b, messages["done"], group)
    await fail(b, messages["waiting"], Retry(60.0), group, failures=3)
    await fail(b, messages["refused"], Ack("sold out"), group, failures=2)
    await fail(b, messages["dead"], Dead("no"), group, failures=5)
    return {name: message.id for name, message in messages.items()}


async def test_each_state_is_counted_as_what_it_is(b: Bench) -> None:
    await each_state(b, GROUP)
    await fail(b, placed(1, "more"), Retry(60.0), OTHER)
    assert await b.inbox.counts() == {
        GROUP: Counts(processing=1, waiting=1, refused=1, failed=1, highest_retry_count=5),
        OTHER: Counts(waiting=1, highest_retry_count=1),
    }


async def test_what_is_stopped_is_listed_group_by_group(b: Bench) -> None:
    mine, theirs = await each_state(b, GROUP), await each_state(b, OTHER)
    expected = [{(group, one["refused"]), (group, one["dead"])} for group, one in ((OTHER, theirs), (GROUP, mine))]
    stopped = [(one.group, one.event_id) for one in await b.inbox.stopped()]
    assert [set(stopped[:2]), set(stopped[2:])] == expected
    assert [(one.group, one.event_id) for one in await b.inbox.stopped(limit=3)] == stopped[:3]


async def test_records_are_listed_by_group_and_id_from_any_of_them_on(b: Bench) -> None:
    mine, theirs = await each_state(b, GROUP), await each_state(b, OTHER)
    everything = [*((OTHER, id) for id in sorted(theirs.values())), *((GROUP, id) for id in sorted(mine.values()))]
    assert [(one.group, one.event_id) for one in await b.inbox.list()] == everything
    for place, after in enumerate(everything, 1):
        assert [(one.group, one.event_id) for one in await b.inbox.list(after=after)] == everything[place:]
    assert len(await b.inbox.list(limit=4)) == 4


@pytest.mark.parametrize(
    ("status", "names"),
    [(Status.PROCESSING, {"held"}), (Status.SUCCEEDED, {"done"}), (Status.FAILED, {"waiting", "refused", "dead"})],
)
async def test_records_are_listed_by_status_and_group(b: Bench, status: Status, names: set[str]) -> None:
    mine = await each_state(b, GROUP)
    theirs = await each_state(b, OTHER)
    assert {one.event_id for one in await b.inbox.list(GROUP, status)} == {mine[name] for name in names}
    both = {of[name] for of in (mine, theirs) for name in names}
    assert {one.event_id for one in await b.inbox.list(status=status)} == both


async def due(b: Bench, limit: int = 100) -> list[UUID]:
    return [record.event_id for record in await b.inbox.due(GROUP, limit)]


async def test_what_is_due_is_tried_in_the_order_of_its_versions(b: Bench) -> None:
    messages = [placed(version, str(version)) for version in (3, 1, 2)]
    for message in messages:
        await fail(b, message, Retry(60.0))
        await b.make_due(message)
    await fail(b, other := placed(1, "4"), Retry(60.0), OTHER)
    await b.make_due(other)
    expected = [messages[1].id, messages[2].id, messages[0].id]
    assert await due(b) == expected
    assert await due(b, 2) == expected[:2]


async def test_of_the_same_version_what_is_due_longest_is_tried_first(b: Bench) -> None:
    first, second = placed(1, "1"), placed(1, "2")
    for message, year in ((second, 2001), (first, 2000)):
        await fail(b, message, Retry(60.0))
        await b.change(message, f"next_retry_at = '{year}-01-01 00:00:00'")
    assert await due(b) == [first.id, second.id]


async def test_only_what_is_unsettled_and_has_its_message_becomes_due(b: Bench) -> None:
    expired, alive, without, done = placed(1, "1"), placed(1, "2"), placed(1, "3"), placed(1, "4")
    await held(b, expired, ttl=0.0, keep_message=True)
    await held(b, alive, keep_message=True)
    await held(b, without, ttl=0.0)
    await fail(b, done, Retry(60.0))
    await b.make_due(done)
    assert await due(b) == [expired.id, done.id] or await due(b) == [done.id, expired.id]
    for not_now in (
        "status = 1",
        "status = 0, locked_until = '2999-01-01 00:00:00'",
        "status = 2, locked_until = '2000-01-01 00:00:00', next_retry_at = '2999-01-01 00:00:00'",
    ):
        await b.change(done, not_now)
        assert await due(b) == [expired.id]


async def test_the_oldest_successes_are_pruned_first(b: Bench) -> None:
    messages = [placed(1, str(n)) for n in range(3)]
    for message, year in zip(messages, (2002, 2000, 2001), strict=True):
        await succeed(b, message)
        await b.change(message, f"processed_at = '{year}-01-01 00:00:00'")
    assert await b.inbox.prune(WEEK, limit=2) == 2
    assert [record.event_id for record in await b.inbox.list()] == [messages[0].id]


async def test_a_type_is_known_to_the_group_that_declared_it(b: Bench) -> None:
    await b.inbox.declare(GROUP, ["order.placed"])
    await b.inbox.declare(OTHER, ["order.paid", "order.placed"])
    await b.inbox.declare(GROUP, ["order.placed"])
    assert await b.inbox.known_types(GROUP) == {"order.placed"}
    assert await b.inbox.known_types(OTHER) == {"order.paid", "order.placed"}
    rows = (await b.store.read("groups_known")).rows
    assert [row.consumer_group for row in rows] == [OTHER, GROUP]


@pytest.mark.parametrize(
    ("decision", "waits", "settled"),
    [(Retry(60.0), True, False), (Ack("sold out"), False, True), (Dead("no"), False, False)],
    ids=["retry", "refused", "dead"],
)
@pytest.mark.parametrize("leased", [True, False])
async def test_a_failure_is_recorded_as_it_was_decided(
    b: Bench, leased: bool, decision: Decision, waits: bool, settled: bool
) -> None:
    message = placed(4, tenant="acme")
    lease = await held(b, message) if leased else None
    assert await b.inbox.mark_failed(GROUP, message, BusinessError("x"), decision, lease=lease, failures=3)
    record = await b.record(message)
    assert (record.status, record.retry_count, record.locked_by) == (Status.FAILED, 3, None)
    assert (record.tenant, record.version, record.ordering_key) == ("acme", 4, "order/1")
    assert (record.next_retry_at is not None, record.processed_at is not None) == (waits, settled)
    later = await b.inbox.try_acquire(GROUP, placed(5), TTL)
    assert (later.lease is None) == waits
    assert not await b.inbox.mark_failed(GROUP, message, BusinessError("again"), decision)
    assert (await b.record(message)).retry_count == 3


async def test_a_message_that_is_kept_holds_its_key_from_the_beginning(b: Bench) -> None:
    """Where nobody delivers it again, whoever began with it may die."""
    await held(b, placed(1), keep_message=True)
    assert (await b.inbox.try_acquire(GROUP, placed(2), TTL)).lease is None
    await held(b, placed(1, "2"))
    await held(b, placed(2, "2"))


async def test_what_waits_behind_a_message_that_is_kept_is_kept_too(b: Bench) -> None:
    """It has not been tried, and nothing is settled: only its turn has not come."""
    await held(b, placed(1), keep_message=True)
    second = placed(2)
    assert (await b.inbox.try_acquire(GROUP, second, TTL, keep_message=True)).lease is None
    record = await b.record(second)
    assert (record.status, record.retry_count, record.processed_at) == (Status.FAILED, 0, None)
    assert record.error_msg == "waits for an earlier event of its key"
    assert record.next_retry_at is not None
    assert record.message is not None


async def test_however_old_only_a_success_is_pruned(b: Bench) -> None:
    ids = await each_state(b, GROUP)
    await b.inbox.prune(WEEK)
    assert len(await b.inbox.list()) == 5
    async with b.store.transaction() as connection:
        await connection.exec_driver_sql("UPDATE postroad_inbox SET processed_at = '2000-01-01 00:00:00'")
    assert await b.inbox.prune(WEEK) == 1
    assert {record.event_id for record in await b.inbox.list()} == set(ids.values()) - {ids["done"]}


async def test_a_group_loses_no_record_because_anothers_is_old(b: Bench) -> None:
    message = placed()
    for group in (GROUP, OTHER):
        await succeed(b, message, group)
    async with b.store.transaction() as connection:
        aged = "UPDATE postroad_inbox SET processed_at = '2000-01-01 00:00:00' WHERE consumer_group = 'receipts'"
        await connection.exec_driver_sql(aged)
    assert await b.inbox.prune(WEEK) == 1
    assert [record.group for record in await b.inbox.list()] == [OTHER]


@pytest.mark.parametrize("store_kind", ["postgresql"])
async def test_pruning_waits_for_nobody(b: Bench, store_url: str, store_kind: str) -> None:
    used, unused = placed(1, "1"), placed(1, "2")
    for message in (used, unused):
        await succeed(b, message)
        await b.change(message, "processed_at = '2000-01-01 00:00:00'")
    with psycopg.connect(store_url) as other:
        other.execute("SELECT 1 FROM postroad_inbox WHERE event_id = %s FOR UPDATE", [used.id])
        async with asyncio.timeout(10):
            assert await b.inbox.prune(WEEK) == 1
    assert [record.event_id for record in await b.inbox.list()] == [used.id]
