"""What a check looks at: which rows are amiss, and which only look like it."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from postroad.stores import Store
from tests.support.rows import (
    AUDIT,
    COMMANDS,
    EVENTS,
    HANDLERS,
    INBOX,
    OUTBOX,
    Row,
    Search,
    Table,
    expect_found,
    ids,
    number,
    put,
    told,
)

BEFORE, SINCE, WITHIN, UNTIL = (datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4))
COPY = '{"copy_of": "7"}'
PIECE: Row = {"low": 100, "high": 199}
SLICE: Row = {"low": SINCE, "high": UNTIL}
IDS: Row = {"low": number(1), "high": number(19)}
NONE = UUID(int=0)
TIMELESS = UUID("11111111-1111-4111-8111-111111111111")
MOVED = {"event_type": "parcel.moved"}
POSTED: Row = {"topic": "office.parcel.events", "event_type": "parcel.posted"}


def at(column: str, *moments: datetime) -> tuple[Row, ...]:
    return tuple({column: moment} for moment in moments)


def states(*of: str) -> tuple[Row, ...]:
    return tuple({"state": state} for state in of)


def caused(id: int, event_type: str = "parcel.posted") -> tuple[Table, Row]:
    row = {"event_id": number(id), "causation_id": str(number(id)), "event_type": event_type, "seq": id}
    return EVENTS, row | {"aggregate_version": id}


COMPLETED: Row = {"status": "COMPLETED", "finished_at": WITHIN}
ORPHANED = Search(
    "check_orphaned_commands", COMMANDS,
    {**PIECE, "since": SINCE, "until": UNTIL, "command_type": "Command.Office.Parcel.Post",
     "event_type": "parcel.posted", "limit": 10},
    COMPLETED,
    ({"seq": 100}, {"seq": 150, "finished_at": SINCE}, {"seq": 151, "command_id": number(52)}, {"seq": 199}),
    ({"seq": 99}, {"seq": 200}, *at("finished_at", BEFORE, UNTIL), {"command_type": "Command.Office.Parcel.Move"},
     {"status": "FAILED"}, {"command_id": number(50)}, {"command_id": number(51)}),
    (caused(50), caused(52, "parcel.moved"),
     (AUDIT, {"subject": str(number(51))}), (AUDIT, {"subject": str(number(52)), "action": "command.retry"})),
)  # fmt: skip
MISSING: Row = {**PIECE, "since": SINCE, "types": ["parcel.moved"], "limit": 10}
IN_OUTBOX: tuple[Table, Row] = (OUTBOX, {"event_id": number(50), "aggregate_id": "x"})
SENT: Row = {"state": "SENT", "published_at": WITHIN}
NOT_SENT = states("NEW", "RETRY", "FAILED", "SKIPPED")
UNSEEN: Row = {**SLICE, "group": "receipts", "types": ["parcel.posted"], "until": UNTIL, "limit": 10}
PAGE: Row = {**SLICE, "after": NONE, "limit": 10}
NO_TIME: Row = {"event_id": TIMELESS}
HANDLED: Row = {"group": "receipts", "since": SINCE, "limit": 10}
DONE: Row = {"status": 1, "processed_at": WITHIN}
LATE: Row = {"until": UNTIL, "limit": 10}

SEARCHES = [
    ORPHANED,
    Search("check_missing_outbox", EVENTS, {**MISSING, "within": 0}, {"occurred_at": WITHIN},
           ({"seq": 100}, {"seq": 150, "occurred_at": SINCE}, {"seq": 199}),
           ({"seq": 99}, {"seq": 200}, {"occurred_at": BEFORE}, MOVED, {"event_id": number(50)}), (IN_OUTBOX,)),
    Search("check_missing_outbox", EVENTS, {**MISSING, "within": 1}, {"occurred_at": WITHIN},
           (MOVED,), ({}, {**MOVED, "event_id": number(50)}), (IN_OUTBOX,)),
    Search("check_unseen", OUTBOX, UNSEEN, SENT,
           ({"published_at": SINCE}, {}, {"published_at": UNTIL - timedelta(seconds=1), "deliver_at": WITHIN}),
           (*NOT_SENT, *at("published_at", BEFORE, UNTIL), {"event_type": "parcel.lost"}, {"deliver_at": UNTIL},
            {"attributes": COPY}, MOVED, {"event_id": number(50)}),
           ((INBOX, {"event_id": number(50)}), (INBOX, {"event_id": number(1), "consumer_group": "others"}),
            (HANDLERS, {}), (HANDLERS, {**MOVED, "first_seen": BEFORE}),
            (HANDLERS, {"consumer_group": "others", "event_type": "parcel.lost"}))),
    Search("check_unseen", OUTBOX, UNSEEN, SENT, at("published_at", WITHIN), at("published_at", SINCE),
           ((HANDLERS, {"first_seen": WITHIN}), (HANDLERS, {"consumer_group": "others"}))),
    Search("sent_page", OUTBOX, {**PAGE, "every": 1, "after": number(3)}, SENT,
           ({"event_id": number(4), "published_at": SINCE}, {"event_id": number(3)},
            {"event_id": number(8), "published_at": WITHIN}),
           ({"event_id": number(2), "published_at": SINCE}, {"event_id": number(5), "published_at": UNTIL},
            {"event_id": number(6), "published_at": BEFORE}, {"event_id": number(7), "attributes": COPY},
            *({**row, "event_id": number(20 + n)} for n, row in enumerate(NOT_SENT)))),
    Search("sent_page", OUTBOX, {**PAGE, "every": 0}, SENT, ({"deliver_at": SINCE}, NO_TIME),
           ({}, {"deliver_at": SINCE, "attributes": COPY})),
    Search("ledger_ids", OUTBOX, {**IDS, **POSTED, "until": UNTIL}, SENT,
           ({"event_id": number(8), "version": 1}, {"event_id": number(1), "version": 2, "published_at": SINCE},
            {"event_id": number(2), "version": 2}),
           ({"event_id": number(0)}, {"event_id": number(19)}, {**MOVED, "event_id": number(3)},
            {"topic": "office.moves.events", "event_id": number(4)}, {"published_at": UNTIL, "event_id": number(5)},
            {"deliver_at": SINCE, "event_id": number(6)}, {"attributes": COPY, "event_id": number(7)},
            {**NOT_SENT[0], "event_id": number(9)})),
    Search("ledger_inbox_ids", INBOX, {**IDS, **POSTED, "group": "receipts"}, {},
           ({"event_id": number(1)}, {"event_id": number(18)}),
           ({"event_id": number(0)}, {"event_id": number(19)}, {**MOVED, "event_id": number(3)},
            {"topic": "office.moves.events", "event_id": number(4)},
            {"consumer_group": "others", "event_id": number(5)})),
    Search("ledger_singles", INBOX, {"group": "receipts", "after": number(2), "since": SINCE, "limit": 10},
           {"received_at": WITHIN, "ordering_key": None},
           ({"event_id": number(3)}, {"event_id": number(4), "received_at": SINCE},
            {"ordering_key": "parcel/a", **NO_TIME}),
           ({"event_id": number(2)}, {"event_id": number(5), "received_at": BEFORE},
            {"event_id": number(6), "consumer_group": "others"}, {"event_id": number(7), "ordering_key": "parcel/a"})),
    Search("check_projected", INBOX, {**HANDLED, "after": number(5)}, {**DONE, "ordering_key": "parcel/a"},
           ({"event_id": number(6), "processed_at": SINCE}, {"event_id": number(1)}, {"event_id": number(2)}),
           ({"event_id": number(5), "processed_at": SINCE}, {"event_id": number(7), "processed_at": BEFORE},
            {"event_id": number(8), "consumer_group": "others"}, {"event_id": number(9), "status": 2},
            {"event_id": number(10), "ordering_key": None}, {"event_id": number(11), "version": 0},
            {"event_id": number(12), "error_msg": "no"})),
    Search("check_expired_commands", COMMANDS, LATE, {"status": "PROCESSING", "locked_until": WITHIN}, ({}, {}),
           ({"locked_until": UNTIL}, {"locked_until": None}, {"status": "PENDING"}, {"status": "COMPLETED"})),
    Search("check_late_commands", COMMANDS, LATE, {"created_at": WITHIN, "status": "PENDING"},
           ({}, {"next_retry_at": WITHIN, "created_at": UNTIL}, {"status": "FAILED", "next_retry_at": WITHIN}),
           ({"created_at": UNTIL}, {"next_retry_at": UNTIL}, {"status": "FAILED"},
            {"status": "FAILED", "next_retry_at": UNTIL},
            *({"status": status, "next_retry_at": WITHIN} for status in ("PROCESSING", "COMPLETED")))),
    Search("check_expired_inbox", INBOX, LATE, {"status": 0, "locked_until": WITHIN},
           ({"consumer_group": "others", "event_id": number(9)}, {}, {}),
           ({"locked_until": UNTIL}, {"status": 1}, {"status": 2})),
    Search("check_late_inbox", INBOX, LATE, {"status": 2, "next_retry_at": WITHIN},
           ({"consumer_group": "others", "event_id": number(9)}, {}, {}),
           ({"next_retry_at": UNTIL}, {"next_retry_at": None}, {"status": 1}, {"status": 0})),
    Search("check_late_outbox", OUTBOX, LATE, {"occurred_at": WITHIN, "created_at": UNTIL},
           ({"shard": 4}, {"ordering_key": "parcel/A", "version": 2}, {"state": "RETRY", "version": 1},
            {"next_attempt_at": SINCE, "occurred_at": UNTIL, "version": 2}),
           (*states("SENT", "SKIPPED", "FAILED"), {"occurred_at": UNTIL}, {"next_attempt_at": UNTIL})),
    Search("check_unsent_page", OUTBOX, {"after": number(2), "limit": 10}, {},
           ({"event_id": number(3), "state": "FAILED"}, {"event_id": number(4), "state": "RETRY"},
            {"event_id": number(5)}),
           ({"event_id": number(2)}, {"event_id": number(8), "state": "SENT"},
            {"event_id": number(9), "state": "SKIPPED"})),
    Search("repair_missing_events", EVENTS, {"aggregate_type": "parcel", "aggregate_id": "a", "since": SINCE},
           {"aggregate_id": "a", "occurred_at": WITHIN},
           ({"aggregate_version": 3, "occurred_at": SINCE, "seq": 120}, {"aggregate_version": 4, "seq": 110}),
           ({"aggregate_version": 2, "occurred_at": BEFORE}, {"aggregate_type": "letter"}, {"aggregate_id": "b"},
            {"aggregate_version": 6, "event_id": number(50)}), (IN_OUTBOX,)),
]  # fmt: skip


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.statement)
async def test_what_is_amiss_is_found_and_nothing_that_looks_like_it(store: Store, search: Search) -> None:
    await expect_found(store, search)


# -- what lies beside what ------------------------------------------------------------------------------------


async def test_a_version_whose_predecessor_is_nowhere_is_a_gap(store: Store) -> None:
    def of(aggregate: str, *versions: int, kind: str = "parcel", **columns: Any) -> list[Row]:
        same = {"aggregate_type": kind, "aggregate_id": aggregate, "occurred_at": WITHIN}
        return [{**same, **columns, "aggregate_version": version} for version in versions]

    rows = [
        *of("whole", 1, 2, 3),
        *of("gap", 4, 3, 1),
        *of("gap", 2, kind="letter", seq=40),
        *of("late", 2),
        *of("halved", 1, seq=98),
        *of("halved", 2, seq=100),
        *of("old", 5, occurred_at=BEFORE),
        *of("unread", 5, seq=99),
        *of("unread", 9, seq=200),
        *of("bounds", 7, seq=199, occurred_at=SINCE),
    ]
    await put(store, EVENTS, *rows)
    gaps = await told(store, "check_version_gaps", **PIECE, since=SINCE, limit=10)
    assert [(row.aggregate_type, row.aggregate_id, row.version, row.total) for row in gaps] == [
        ("parcel", "gap", 3, 3),
        ("parcel", "late", 2, 3),
        ("parcel", "bounds", 7, 3),
    ]
    assert [row.total for row in await told(store, "check_version_gaps", **PIECE, since=SINCE, limit=1)] == [3]


OF_ITS_OWN = ({"consumer_group": "others"}, {"topic": "office.moves.events"}, {"ordering_key": None}, {"version": 0})


async def test_what_was_handled_after_a_later_version_of_its_key_is_out_of_order(store: Store) -> None:
    later = WITHIN + timedelta(hours=1)
    await put(
        store, INBOX,
        {"version": 2}, {"version": 1, "processed_at": later}, {"version": 3, "processed_at": later},
        *({"version": 2, **row} for row in OF_ITS_OWN[:3]),
        {"version": 1, "ordering_key": "parcel/b"}, {"version": 0, "ordering_key": "parcel/b", "processed_at": later},
        {"version": 2, "ordering_key": "parcel/c", "status": 2}, {"version": 1, "ordering_key": "parcel/c"},
        {"version": 2, "ordering_key": "parcel/d", "processed_at": BEFORE}, {"version": 1, "ordering_key": "parcel/d"},
        {"version": 1, "ordering_key": None, "processed_at": later},
        {"version": 2, "ordering_key": "parcel/e", "processed_at": SINCE}, {"version": 1, "ordering_key": "parcel/e"},
        {"version": 2, "ordering_key": "parcel/f"},
        {"version": 1, "ordering_key": "parcel/f", "processed_at": later, "status": 2},
        {"version": 2, "ordering_key": "parcel/g", "consumer_group": "others"},
        {"version": 1, "ordering_key": "parcel/g", "processed_at": later},
        {"version": 1, "ordering_key": "parcel/h"}, {"version": 1, "ordering_key": "parcel/h"},
        {"version": 2, "ordering_key": "parcel/h"},
        **DONE,
    )  # fmt: skip
    found = await told(store, "check_out_of_order", **HANDLED)
    assert sorted(ids(store, found)) == [number(2), number(15)]
    assert {row.total for row in found} == {2}
    assert [row.total for row in await told(store, "check_out_of_order", **HANDLED | {"limit": 1})] == [2]


async def test_what_was_handled_twice_under_two_ids_is_doubled(store: Store) -> None:
    await put(
        store, INBOX,
        {"version": 2, "processed_at": SINCE}, {"version": 2}, {"version": 1}, {"version": 3},
        *({"version": 3, **row} for row in OF_ITS_OWN[:3]), {"version": 3, "ordering_key": None},
        {"version": 0, "ordering_key": "parcel/b"}, {"version": 0, "ordering_key": "parcel/b"},
        {"version": 1, "ordering_key": "parcel/c", "processed_at": BEFORE}, {"version": 1, "ordering_key": "parcel/c"},
        {"version": 1, "ordering_key": "parcel/d", "status": 2}, {"version": 1, "ordering_key": "parcel/d"},
        **DONE,
    )  # fmt: skip
    (doubled,) = await told(store, "check_doubled", **HANDLED)
    assert doubled.total == 1
    assert ids(store, [doubled])[0] in (number(1), number(2))
    assert await told(store, "check_doubled", **HANDLED | {"limit": 0}) == []


async def test_a_window_is_measured_by_what_lies_in_it(store: Store) -> None:
    finished = [
        (SINCE, "COMPLETED"),
        (WITHIN, "COMPLETED"),
        (BEFORE, "COMPLETED"),
        (UNTIL, "COMPLETED"),
        (WITHIN, "FAILED"),
    ]
    rows = [{"finished_at": moment, "status": status} for moment, status in finished]
    await put(store, COMMANDS, *rows)
    (span,) = await told(store, "check_commands_span", since=SINCE, until=UNTIL)
    assert (span.low, span.high, span.total) == (101, 102, 2)
    await put(store, EVENTS, *at("occurred_at", BEFORE, SINCE, WITHIN))
    (span,) = await told(store, "check_events_span", since=SINCE)
    assert (span.low, span.high, span.total) == (102, 103, 2)
    assert [row.seq for row in await told(store, "events_newest")] == [103]
    await put(store, INBOX, *at("processed_at", BEFORE, SINCE, WITHIN), {"processed_at": WITHIN, "status": 2})
    assert [row.total for row in await told(store, "check_handled_count", since=SINCE)] == [2]


async def test_both_ledgers_count_a_slice_from_its_first_id_to_before_its_last(store: Store) -> None:
    inside = ({"event_id": number(1)}, {"event_id": number(18)}, {**MOVED, "event_id": number(2)},
              {"topic": "office.moves.events", "event_id": number(3)})  # fmt: skip
    expected = {
        ("office.parcel.events", "parcel.posted"): 2,
        ("office.parcel.events", "parcel.moved"): 1,
        ("office.moves.events", "parcel.posted"): 1,
    }
    sent = (*inside, {"event_id": number(0)}, {"event_id": number(19)}, {"event_id": number(4), "deliver_at": SINCE},
            {"event_id": number(5), "attributes": COPY}, {**NOT_SENT[0], "event_id": number(6)})  # fmt: skip
    await put(store, OUTBOX, *sent, **SENT)
    seen = (*inside, {"event_id": number(0)}, {"event_id": number(19)}, {"event_id": number(4), "ordering_key": None},
            {"event_id": number(5), "consumer_group": "others"})  # fmt: skip
    await put(store, INBOX, *seen)
    for statement, asked in (("ledger_sent", IDS), ("ledger_inbox", {**IDS, "group": "receipts"})):
        rows = await told(store, statement, **asked)
        assert {(row.topic, row.event_type): row.events for row in rows} == expected
    await put(store, HANDLERS, *({"consumer_group": group, "event_type": kind} for group, kind in ("bb", "ab", "ba")))
    begun = await told(store, "ledger_begun")
    assert [row.consumer_group + row.event_type for row in begun] == ["ab", "ba", "bb"]
