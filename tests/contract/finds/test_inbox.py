"""Which records are found, and which only look like them."""

from datetime import UTC, datetime

import pytest

from postroad.stores import Store
from tests.support.rows import FUTURE, INBOX, PAST, Row, Search, expect_found, ids, number, put, told

EARLY, NOON, LATE = (datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3))
FAILED: Row = {"status": 2, "processed_at": None}
DUE: Row = {**FAILED, "next_retry_at": PAST, "message": b"kept", "waiting_key": "parcel/a"}
HELD: Row = {"status": 0, "locked_until": PAST, "message": b"kept", "waiting_key": "parcel/a"}

SEARCHES = [
    Search("inbox_failures", INBOX, {"refused": 0, "limit": 10}, {**FAILED, "received_at": NOON},
           ({"received_at": LATE, "next_retry_at": FUTURE}, {"next_retry_at": FUTURE, "processed_at": PAST},
            {"received_at": EARLY}),
           ({"processed_at": PAST}, {"status": 0}, {"status": 1})),
    Search("inbox_failures", INBOX, {"refused": 1, "limit": 10}, {"status": 2, "received_at": NOON},
           ({"received_at": LATE}, {}, {"received_at": EARLY}),
           ({"processed_at": None}, {"next_retry_at": FUTURE}, {"status": 0}, {"status": 1})),
    Search("inbox_stopped", INBOX, {"limit": 10}, FAILED,
           ({"consumer_group": "others", "event_id": number(9)}, {}, {"consumer_group": "z", "processed_at": PAST}),
           ({"next_retry_at": FUTURE}, {"status": 0}, {"status": 1})),
    Search("inbox_succeeded", INBOX, {"group": "receipts", "ids": [number(n) for n in (1, 2, 3, 4)]}, {},
           ({}, {}), ({"status": 0}, {"status": 2}, {"event_id": number(9)},
                      {"event_id": number(2), "consumer_group": "others"}), ordered=False),
    Search("inbox_attempts", INBOX,
           {"groups": ["receipts", "others", "others"], "ids": [number(1), number(2), number(3)]}, FAILED,
           ({}, {"consumer_group": "others"}),
           ({"event_id": number(3)}, {"event_id": number(2)}, {"event_id": number(1), "consumer_group": "others"},
            {"event_id": number(4), "consumer_group": "others"}), ordered=False),
    *(Search("inbox_attempts", INBOX, {"groups": ["receipts"] * 2, "ids": [number(1), number(2)]}, FAILED,
             ({},), (another,)) for another in ({"status": 0}, {"status": 1}, {"next_retry_at": PAST})),
    Search("inbox_due", INBOX, {"group": "receipts", "limit": 10}, {**DUE, "version": 5},
           ({"version": 3}, {"next_retry_at": EARLY.replace(year=2000)}, {},
            {**HELD, "version": 7}),
           ({"next_retry_at": FUTURE, "version": 9}, {**HELD, "locked_until": FUTURE, "version": 9}, {"message": None},
            {**HELD, "message": None}, {"status": 1}, {"consumer_group": "others"})),
]  # fmt: skip


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.statement)
async def test_what_is_asked_for_is_found_and_nothing_that_looks_like_it(store: Store, search: Search) -> None:
    await expect_found(store, search)


BEHIND: Row = {**DUE, "version": 2, "ordering_key": "parcel/a"}


@pytest.mark.parametrize(
    ("first", "waits"),
    [
        ({**FAILED, "next_retry_at": FUTURE, "waiting_key": "parcel/a"}, True),
        ({"status": 0, "locked_until": FUTURE, "waiting_key": "parcel/a"}, True),
        ({**FAILED, "next_retry_at": FUTURE}, False),
        ({**FAILED, "next_retry_at": FUTURE, "waiting_key": "parcel/b", "ordering_key": "parcel/b"}, False),
        ({**FAILED, "next_retry_at": FUTURE, "waiting_key": "parcel/a", "version": 2}, False),
        ({**FAILED, "next_retry_at": FUTURE, "waiting_key": "parcel/a", "consumer_group": "others"}, False),
        ({"status": 0, "locked_until": PAST, "waiting_key": "parcel/a"}, False),
        ({**FAILED, "next_retry_at": PAST, "waiting_key": "parcel/a"}, False),
    ],
)
async def test_what_stands_behind_one_that_is_not_due_waits_with_it(store: Store, first: Row, waits: bool) -> None:
    await INBOX.put(store, {"event_id": number(2), **BEHIND})
    await INBOX.put(store, first)
    due = ids(store, await told(store, "inbox_due", group="receipts", limit=10))
    assert (number(2) not in due) == waits


KEPT: Row = {**FAILED, "next_retry_at": FUTURE, "message": b"kept", "received_at": NOON}


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        ({}, True),
        ({"status": 0, "next_retry_at": None}, True),
        ({"next_retry_at": None}, False),
        ({"status": 1}, False),
        ({"message": None}, False),
        ({"received_at": LATE}, False),
        ({"consumer_group": "others"}, False),
    ],
)
async def test_what_no_broker_holds_is_kept_here(store: Store, row: Row, kept: bool) -> None:
    await INBOX.put(store, {**KEPT, **row})
    assert bool(await told(store, "inbox_kept", group="receipts", written_by=NOON)) == kept


async def test_what_failed_is_counted_apart_from_what_will_be_tried_again_up_to_a_bound(store: Store) -> None:
    rows: tuple[Row, ...] = (
        {"next_retry_at": FUTURE, "retry_count": 9}, {"next_retry_at": PAST, "retry_count": 3},
        {"retry_count": 4}, {"retry_count": 6}, {"processed_at": PAST, "retry_count": 20},
        {"status": 1, "retry_count": 20}, {"status": 0, "retry_count": 20},
        {"consumer_group": "others", "retry_count": 20},
        {"consumer_group": "others", "retry_count": 20, "next_retry_at": PAST},
        {"status": 1, "retry_count": 20, "next_retry_at": PAST},
        {"status": 0, "retry_count": 20, "next_retry_at": PAST},
    )  # fmt: skip
    await put(store, INBOX, *rows, **FAILED)

    async def counted(most: int) -> dict[str, tuple[int, int]]:
        found = await told(store, "inbox_failed_count", group="receipts", most=most)
        return {row.state: (row.records, row.highest_retry_count) for row in found}

    assert await counted(10) == {"waiting": (2, 9), "failed": (2, 6)}
    bounded = await counted(1)
    assert (bounded["waiting"], bounded["failed"][0]) == ((1, 3), 1)


@pytest.mark.parametrize(
    ("row", "unsettled"),
    [
        ({"status": 0}, True),
        ({**FAILED, "next_retry_at": FUTURE}, True),
        (FAILED, False),
        ({"status": 1, "next_retry_at": FUTURE}, False),
    ],
)
async def test_the_types_of_what_is_unsettled_are_known(store: Store, row: Row, unsettled: bool) -> None:
    await put(store, INBOX, *({**row, "event_type": kind} for kind in "aab"))
    found = await told(store, "inbox_unsettled_types", most=10)
    assert sorted((it.consumer_group, it.event_type) for it in found) == [("receipts", it) for it in "ab" * unsettled]
    assert len(await told(store, "inbox_unsettled_types", most=2)) == int(unsettled)


async def test_what_is_overdue_is_counted_by_group(store: Store) -> None:
    rows: tuple[Row, ...] = (
        {**FAILED, "next_retry_at": PAST}, {"status": 0, "locked_until": PAST},
        {**FAILED, "next_retry_at": PAST, "consumer_group": "others"}, {**FAILED, "next_retry_at": FUTURE},
        {"status": 0, "locked_until": FUTURE}, {"status": 1, "next_retry_at": PAST, "locked_until": PAST},
        {**FAILED, "locked_until": PAST}, {"status": 0, "next_retry_at": PAST, "locked_until": FUTURE},
    )  # fmt: skip
    await put(store, INBOX, *rows)

    async def overdue(seconds: float, most: int = 10) -> list[tuple[str, int]]:
        found = await told(store, "inbox_overdue", seconds=seconds, most=most)
        return [(row.consumer_group, row.records) for row in found]

    assert await overdue(60.0) == [("others", 1), ("receipts", 2)]
    assert await overdue(60.0 * 60 * 24 * 366 * 99) == []
    assert sum(records for _, records in await overdue(60.0, most=2)) == 2
