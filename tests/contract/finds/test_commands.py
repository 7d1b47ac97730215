"""Which commands are found, and which only look like them."""

from datetime import UTC, datetime

import pytest

from postroad.stores import Store
from tests.support.rows import COMMANDS, FUTURE, PAST, Row, Search, expect_found, ids, number, put, told

POST, MOVE = "Command.Office.Parcel.Post", "Command.Office.Parcel.Move"
BEFORE, SINCE, LATER = (datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3))
DUE: Row = {"types": [POST], "limit": 10}
OPEN: Row = {"status": "PENDING"}

SEARCHES = [
    Search("command_due", COMMANDS, DUE, OPEN,
           ({}, {"next_retry_at": PAST}, {"status": "FAILED", "next_retry_at": PAST},
            {"status": "PROCESSING", "locked_until": PAST}),
           ({"command_type": MOVE}, {"next_retry_at": FUTURE}, {"status": "FAILED"},
            {"status": "FAILED", "next_retry_at": FUTURE}, {"status": "PROCESSING", "locked_until": FUTURE},
            {"status": "COMPLETED", "next_retry_at": PAST, "locked_until": PAST},
            {"status": "PROCESSING", "locked_until": FUTURE, "next_retry_at": PAST},
            {"status": "FAILED", "locked_until": PAST}, {"next_retry_at": FUTURE, "locked_until": PAST})),
    Search("command_list", COMMANDS, {"type": "", "before": 105, "limit": 10}, {},
           ({"seq": 104}, {"seq": 103, "command_type": MOVE}), ({"seq": 105},)),
    Search("command_list", COMMANDS, {"type": MOVE, "before": 105, "limit": 10}, {"command_type": MOVE},
           ({"seq": 104}, {"seq": 103}), ({"seq": 105}, {"seq": 102, "command_type": POST})),
    Search("command_list_of", COMMANDS, {"status": "FAILED", "type": "", "before": 105, "limit": 10},
           {"status": "FAILED"}, ({"seq": 104}, {"seq": 103, "command_type": MOVE}),
           ({"seq": 105}, {"seq": 102, "status": "PENDING"})),
    Search("command_list_of", COMMANDS, {"status": "FAILED", "type": MOVE, "before": 105, "limit": 10},
           {"status": "FAILED", "command_type": MOVE}, ({"seq": 104}, {"seq": 103}),
           ({"seq": 105}, {"seq": 102, "status": "PENDING"}, {"seq": 101, "command_type": POST})),
    Search("commands_correlated", COMMANDS, {"correlation_id": "c", "limit": 10}, {}, ({}, {}),
           ({"correlation_id": "d"},)),
    Search("commands_since", COMMANDS, {"after": 101, "since": SINCE, "limit": 10},
           {"created_at": LATER, "causation_id": "x"},
           ({"seq": 102, "created_at": SINCE}, {"seq": 103}),
           ({"seq": 101}, {"seq": 104, "created_at": BEFORE}, {"seq": 105, "causation_id": None})),
    Search("command_lock", COMMANDS, {"command_id": number(1)}, left=({},)),
]  # fmt: skip


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.statement)
async def test_what_is_asked_for_is_found_and_nothing_that_looks_like_it(store: Store, search: Search) -> None:
    await expect_found(store, search)


FIRST: Row = {"seq": 100, "aggregate_id": "a", "status": "PENDING", "next_retry_at": FUTURE}


@pytest.mark.parametrize(
    ("first", "waits"),
    [
        ({}, True),
        ({"status": "PROCESSING", "locked_until": FUTURE}, True),
        ({"next_retry_at": None}, True),
        ({"status": "FAILED"}, True),
        ({"command_type": MOVE}, True),
        ({"status": "FAILED", "next_retry_at": None}, False),
        ({"status": "COMPLETED"}, False),
        ({"aggregate_id": "b"}, False),
        ({"aggregate_type": "letter"}, False),
        ({"seq": 102}, False),
    ],
)
async def test_a_command_waits_for_those_of_its_aggregate_that_came_before(
    store: Store, first: Row, waits: bool
) -> None:
    await COMMANDS.put(store, {"command_id": number(9), **FIRST, **first})
    await COMMANDS.put(store, {"command_id": number(2), "seq": 101, "aggregate_id": "a", "status": "PENDING"})
    due = ids(store, await told(store, "command_due", **DUE))
    assert (number(2) not in due) == waits


@pytest.mark.parametrize(
    ("row", "unfinished"),
    [
        ({"status": "PENDING"}, True),
        ({"status": "PROCESSING"}, True),
        ({"status": "FAILED", "next_retry_at": FUTURE}, True),
        ({"status": "FAILED"}, False),
        ({"status": "COMPLETED", "next_retry_at": FUTURE}, False),
    ],
)
async def test_one_that_has_failed_for_good_waits_for_a_person(store: Store, row: Row, unfinished: bool) -> None:
    await COMMANDS.put(store, row)
    assert bool(await told(store, "command_unfinished")) == unfinished


async def test_open_and_failed_commands_are_counted_up_to_a_bound_and_the_last_ones_told(store: Store) -> None:
    statuses = ("PENDING", "PROCESSING", "FAILED", "COMPLETED")
    await put(store, COMMANDS, *({"status": statuses[n % 4], "retry_count": n} for n in range(12)))
    for most, each in ((10, 3), (2, 2)):
        counts = await told(store, "command_counts", most=most)
        assert {row.status: row.commands for row in counts} == dict.fromkeys(statuses[:3], each)
    recent = await told(store, "commands_recent", most=3)
    assert [(row.status, row.retry_count) for row in recent] == [("COMPLETED", 11), ("FAILED", 10), ("COMPLETED", 7)]
