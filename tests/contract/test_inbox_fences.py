"""Each statement settles the record it means and no other, for its holder only, and in the state it is meant for."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from postroad.errors import BusinessError, LeaseLost
from postroad.inbox import AcquireState, Lease, Record, Status
from postroad.message import Message
from postroad.retry import Ack, Dead, Decision, Retry
from postroad.stores import Store
from tests.support.consuming import GROUP, Bench, placed

TTL = 30.0
OTHER = "billing"
Settle = Callable[[Bench, Message, Lease], Awaitable[bool]]


@pytest.fixture
async def b(store: Store, store_url: str) -> AsyncIterator[Bench]:
    made = Bench(store_url, store)
    yield made
    await made.inbox.aclose()


async def renew(b: Bench, message: Message, lease: Lease) -> bool:
    return await b.inbox.renew(lease, 600.0)


async def succeed(b: Bench, message: Message, lease: Lease) -> bool:
    with suppress(LeaseLost):
        async with b.store.transaction() as connection:
            await b.inbox.mark_success(connection, lease)
        return True
    return False


async def fail(b: Bench, message: Message, lease: Lease) -> bool:
    return await b.inbox.mark_failed(GROUP, message, RuntimeError("no"), Retry(60.0), lease=lease, failures=2)


SETTLING = pytest.mark.parametrize("settle", [renew, succeed, fail])
BY_HAND = pytest.mark.parametrize("statement", ["inbox_retry", "inbox_revive", "inbox_discard"])


async def records(b: Bench) -> dict[tuple[str, object], Record]:
    return {(record.group, record.event_id): record for record in await b.inbox.list()}


async def changed(b: Bench, before: dict[tuple[str, object], Record]) -> list[tuple[str, object]]:
    return [place for place, record in (await records(b)).items() if record != before[place]]


async def held(b: Bench, group: str, message: Message, ttl: float = TTL) -> Lease:
    lease = (await b.inbox.try_acquire(group, message, ttl)).lease
    assert lease is not None
    return lease


async def by_hand(b: Bench, statement: str, message: Message) -> bool:
    return (await b.store.change(statement, group=GROUP, event_id=message.id)).rowcount == 1


@SETTLING
async def test_a_holder_settles_its_own_record_only(b: Bench, settle: Settle) -> None:
    mine, neighbour = placed(1), placed(1, "2")
    lease = await held(b, GROUP, mine)
    await held(b, GROUP, neighbour)
    await held(b, OTHER, mine)
    before = await records(b)
    assert await settle(b, mine, lease)
    assert await changed(b, before) == [(GROUP, mine.id)]


@SETTLING
@pytest.mark.parametrize("off", [-1, 1])
async def test_whoever_has_another_epoch_settles_nothing(b: Bench, settle: Settle, off: int) -> None:
    message = placed()
    lease = await held(b, GROUP, message)
    before = await records(b)
    assert not await settle(b, message, Lease(GROUP, message.id, lease.epoch + off))
    assert await changed(b, before) == []


@SETTLING
@pytest.mark.parametrize("settled", [succeed, fail])
async def test_what_is_settled_stays_as_it_is(b: Bench, settle: Settle, settled: Settle) -> None:
    message = placed()
    lease = await held(b, GROUP, message)
    assert await settled(b, message, lease)
    before = await records(b)
    assert not await settle(b, message, lease)
    assert await changed(b, before) == []


async def test_taking_over_a_record_leaves_all_others_alone(b: Bench) -> None:
    mine, neighbour = placed(1), placed(1, "2")
    await held(b, GROUP, neighbour, 0.0)
    await held(b, OTHER, mine, 0.0)
    await held(b, GROUP, mine, 0.0)
    before = await records(b)
    assert (await held(b, GROUP, mine)).epoch == 2
    assert await changed(b, before) == [(GROUP, mine.id)]


async def test_a_success_leaves_no_trace_of_what_went_before(b: Bench) -> None:
    message = placed()
    kept = Retry(60.0)
    await b.inbox.mark_failed(GROUP, message, RuntimeError("no"), kept, failures=3, keep_message=True)
    await b.make_due(message)
    lease = await held(b, GROUP, message)
    record = await b.record(message)
    assert (record.status, record.retry_count, record.next_retry_at) == (Status.PROCESSING, 3, None)
    await b.make_due(message)
    assert await succeed(b, message, lease)
    record = await b.record(message)
    assert record.status is Status.SUCCEEDED
    assert record.processed_at is not None
    assert (record.locked_by, record.locked_until, record.next_retry_at) == (None, None, None)
    assert (record.error_msg, record.message) == (None, None)


async def test_a_failure_lets_the_lease_go_and_tells_what_happened(b: Bench) -> None:
    message = placed()
    assert await fail(b, message, await held(b, GROUP, message))
    record = await b.record(message)
    assert (record.status, record.retry_count, record.error_msg) == (Status.FAILED, 2, "RuntimeError: no")
    assert (record.locked_by, record.locked_until, record.processed_at) == (None, None, None)
    assert record.next_retry_at is not None
    assert 55 < (record.next_retry_at - record.received_at).total_seconds() < 65


async def test_who_begins_again_has_not_been_processed_yet(b: Bench) -> None:
    message = placed()
    await b.inbox.mark_failed(GROUP, message, RuntimeError("no"), Dead("no"))
    await b.change(message, "processed_at = '2000-01-01 00:00:00', next_retry_at = '2000-01-01 00:00:00'")
    await held(b, GROUP, message)
    assert (await b.record(message)).processed_at is None


@BY_HAND
async def test_a_person_changes_the_record_that_was_meant(b: Bench, statement: str) -> None:
    mine, neighbour = placed(1), placed(1, "2")
    for group, message in ((GROUP, mine), (GROUP, neighbour), (OTHER, mine)):
        await b.inbox.mark_failed(group, message, RuntimeError("no"), Retry(60.0), failures=3, keep_message=True)
    before = await records(b)
    assert await by_hand(b, statement, mine)
    assert await changed(b, before) == [(GROUP, mine.id)]


@BY_HAND
@pytest.mark.parametrize("end", ["held", "succeeded"])
async def test_a_person_changes_failed_records_only(b: Bench, statement: str, end: str) -> None:
    message = placed()
    lease = await held(b, GROUP, message)
    if end == "succeeded":
        await succeed(b, message, lease)
    before = await records(b)
    assert not await by_hand(b, statement, message)
    assert await changed(b, before) == []


@pytest.mark.parametrize("decision", [Ack("sold out"), Dead("no")], ids=["refused", "dead"])
@pytest.mark.parametrize("statement", ["inbox_retry", "inbox_revive"])
async def test_what_a_person_brings_back_begins_anew(b: Bench, statement: str, decision: Decision) -> None:
    message = placed()
    await b.inbox.mark_failed(GROUP, message, BusinessError(), decision, failures=5)
    assert await by_hand(b, statement, message)
    record = await b.record(message)
    assert (record.retry_count, record.processed_at) == (0, None)
    assert (record.message is None) == (statement == "inbox_revive")
    assert (await b.inbox.try_acquire(GROUP, message, TTL)).state is AcquireState.RETRYABLE_FAILED


async def test_what_a_person_discards_is_never_tried_again(b: Bench) -> None:
    message = placed()
    await b.inbox.mark_failed(GROUP, message, RuntimeError("no"), Retry(60.0), keep_message=True)
    assert await by_hand(b, "inbox_discard", message)
    record = await b.record(message)
    assert record.next_retry_at is None
    assert record.processed_at is not None


async def test_only_an_earlier_event_of_the_same_key_and_group_is_waited_for(b: Bench) -> None:
    waiting = Retry(60.0)
    for group, message in ((GROUP, placed(2, "2")), (OTHER, placed(1)), (GROUP, placed(3))):
        await b.inbox.mark_failed(group, message, RuntimeError("no"), waiting)
    assert (await b.inbox.try_acquire(GROUP, placed(2), TTL)).state is AcquireState.ACQUIRED
    # Of the same version, as after an aggregate was begun anew: neither of the two comes first.
    assert (await b.inbox.try_acquire(GROUP, placed(3), TTL)).state is AcquireState.ACQUIRED
    assert (await b.inbox.try_acquire(GROUP, placed(4), TTL)).state is AcquireState.IN_PROGRESS


async def test_a_claim_waits_for_earlier_versions_only(b: Bench) -> None:
    await b.inbox.mark_failed(GROUP, placed(3), RuntimeError("no"), Retry(60.0))
    claims = []
    for version in (2, 3, 4):
        async with b.store.engine.connect() as connection:
            claims.append(await b.inbox.claim(connection, GROUP, [placed(version)]))
    assert claims == [True, True, False]


async def test_a_later_event_waits_for_the_last_of_those_before_it(b: Bench) -> None:
    for version, seconds in ((1, 600.0), (2, 60.0)):
        await b.inbox.mark_failed(GROUP, placed(version), RuntimeError("no"), Retry(seconds))
    assert 500 < (await b.inbox.try_acquire(GROUP, placed(3), TTL)).wait <= 600


async def test_a_group_has_its_own_record_of_an_event(b: Bench) -> None:
    message = placed()
    await succeed(b, message, await held(b, GROUP, message))
    acquired = await b.inbox.try_acquire(OTHER, message, TTL)
    assert acquired.state is AcquireState.ACQUIRED
    assert acquired.record is not None
    assert acquired.record.group == OTHER
    assert (await b.inbox.try_acquire(OTHER, placed(1, "2"), TTL)).state is AcquireState.ACQUIRED
