"""Whoever settles, takes or releases a row changes that row, by all that he knows of it, and of it what he says.

Each statement is tried on a row that fits beside others that do not, and then on rows of which one thing is different.
"""

from contextlib import nullcontext, suppress

import pytest

from postroad.errors import StoreError
from postroad.stores import Store
from postroad.stores.base import Result
from postroad.stores.tables import DEFAULT_OUTBOX
from tests.support.rows import (
    BACKFILLS,
    COMMANDS,
    FUTURE,
    INBOX,
    OUTBOX,
    PAST,
    PROJECTIONS,
    Addition,
    Change,
    From,
    Row,
    number,
)  # fmt: skip

HOUR = 3_600.0
ID, OTHER = number(1), number(2)
TOKEN, ANOTHER = number(7), number(8)
FREE: Row = {"locked_by": None, "locked_until": None}

# -- the inbox -----------------------------------------------------------------------------------------------

RECORD: Row = {"group": "receipts", "event_id": ID}
HELD: Row = {
    "status": 0, "locked_by": "me", "locked_until": FUTURE, "waiting_key": "parcel/a", "error_msg": "before",
    "next_retry_at": PAST, "message": b"kept", "processed_at": None,
}  # fmt: skip
FAILED: Row = {**HELD, **FREE, "status": 2, "next_retry_at": FUTURE}
DONE: Row = {**HELD, **FREE, "status": 1}
MINE: Row = {**RECORD, "epoch": 3}
NOT_HELD: tuple[Row, ...] = ({"epoch": 4}, {"epoch": 2}, {"status": 1}, {"status": 2})
NOT_FAILED: tuple[Row, ...] = ({"status": 0}, {"status": 1})
FAILURE: Row = {"retry_count": 5, "error_msg": "now"}
RELEASED: Row = {
    **FREE, "status": 2, "epoch": 4, "next_retry_at": PAST, "waiting_key": "parcel/a", "message": b"kept",
}  # fmt: skip
RELEASE: Row = {**MINE, "now": PAST, "until": FUTURE, "message": b"new"}

IN_INBOX = [
    Change("inbox_take", INBOX, {**FAILED, "processed_at": PAST}, {**RECORD, "owner": "you", "seconds": HOUR},
           {"status": 0, "epoch": 4, "locked_by": "you", "locked_until": From(HOUR), "next_retry_at": None,
            "processed_at": None}),
    Change("inbox_renew", INBOX, HELD, {**MINE, "seconds": HOUR}, {"locked_until": From(HOUR)}, NOT_HELD),
    Change("inbox_succeed", INBOX, HELD, MINE,
           {**FREE, "status": 1, "processed_at": From(), "next_retry_at": None, "error_msg": None,
            "waiting_key": None, "message": None}, NOT_HELD),
    Change("inbox_fail", INBOX, HELD, {**MINE, **FAILURE, "after": HOUR, "settled": False, "message": b"new"},
           {**FREE, **FAILURE, "status": 2, "next_retry_at": From(HOUR), "message": b"new"}, NOT_HELD),
    Change("inbox_fail", INBOX, {**HELD, "processed_at": PAST},
           {**MINE, **FAILURE, "after": None, "settled": False, "message": None},
           {**FREE, **FAILURE, "status": 2, "next_retry_at": None, "waiting_key": None, "processed_at": None}),
    Change("inbox_fail", INBOX, HELD, {**MINE, **FAILURE, "after": None, "settled": True, "message": None},
           {**FREE, **FAILURE, "status": 2, "next_retry_at": None, "waiting_key": None, "processed_at": From()}),
    Change("inbox_give_up", INBOX, {**HELD, "locked_until": PAST}, {**MINE, "error_msg": "over"},
           {**FREE, "status": 2, "next_retry_at": None, "waiting_key": None, "error_msg": "over"},
           ({"epoch": 4}, {"status": 1}, {"locked_until": FUTURE})),
    Change("inbox_give_up", INBOX, FAILED, {**MINE, "error_msg": "over"},
           {"next_retry_at": None, "waiting_key": None, "error_msg": "over"}, ({"epoch": 4},)),
    Change("inbox_retry", INBOX, {**FAILED, "processed_at": PAST}, RECORD,
           {"next_retry_at": From(), "retry_count": 0, "processed_at": None}, NOT_FAILED),
    Change("inbox_revive", INBOX, {**FAILED, "processed_at": PAST}, RECORD,
           {"next_retry_at": From(), "retry_count": 0, "processed_at": None, "message": None}, NOT_FAILED),
    Change("inbox_discard", INBOX, FAILED, RECORD,
           {"next_retry_at": None, "processed_at": From(), "waiting_key": None}, NOT_FAILED),
    Change("inbox_reopen", INBOX, DONE, {**RECORD, "message": b"new"}, {"status": 2, "message": b"new"},
           ({"status": 0}, {"status": 2})),
    Change("repair_inbox_lease", INBOX, {**HELD, "waiting_key": None, "locked_until": PAST},
           RELEASE, RELEASED,
           ({"epoch": 4}, {"status": 1}, {"status": 2}, {"locked_until": FUTURE})),
    Change("repair_inbox_lease", INBOX, {**HELD, "message": None, "locked_until": PAST},
           RELEASE, {**RELEASED, "message": b"new"}),
]  # fmt: skip

# -- commands ------------------------------------------------------------------------------------------------

COMMAND: Row = {"command_id": ID}
RUNNING: Row = {
    "status": "PROCESSING", "locked_by": "me", "locked_until": FUTURE, "next_retry_at": PAST, "error_message": "before",
    "started_at": PAST, "finished_at": PAST,
}  # fmt: skip
GIVEN_UP: Row = {**RUNNING, **FREE, "status": "FAILED"}
COMPLETED: Row = {**RUNNING, **FREE, "status": "COMPLETED"}
MY_COMMAND: Row = {**COMMAND, "epoch": 3}
NOT_RUNNING: tuple[Row, ...] = (
    {"epoch": 4},
    {"epoch": 2},
    *({"status": it} for it in ("PENDING", "FAILED", "COMPLETED")),
)
TAKEN: Row = {
    "status": "PROCESSING", "epoch": 4, "locked_by": "you", "locked_until": From(HOUR), "next_retry_at": None,
    "started_at": From(), "finished_at": None,
}  # fmt: skip
TAKE: Row = {**MY_COMMAND, "owner": "you", "seconds": HOUR}

OF_COMMANDS = [
    Change("command_take", COMMANDS, GIVEN_UP, {**TAKE, "status": "FAILED"}, TAKEN,
           ({"epoch": 4}, {"status": "PENDING"}, {"status": "COMPLETED"})),
    Change("command_take", COMMANDS, {**RUNNING, "locked_until": PAST}, {**TAKE, "status": "PROCESSING"}, TAKEN,
           ({"epoch": 4}, {"locked_until": FUTURE})),
    Change("command_renew", COMMANDS, RUNNING, {**MY_COMMAND, "seconds": HOUR}, {"locked_until": From(HOUR)},
           NOT_RUNNING),
    Change("command_complete", COMMANDS, RUNNING, MY_COMMAND,
           {**FREE, "status": "COMPLETED", "finished_at": From(), "next_retry_at": None, "error_message": None},
           NOT_RUNNING),
    Change("command_fail", COMMANDS, RUNNING, {**MY_COMMAND, "retry_count": 5, "error_message": "now", "after": HOUR},
           {**FREE, "status": "FAILED", "finished_at": From(), "retry_count": 5, "error_message": "now",
            "next_retry_at": From(HOUR)}, NOT_RUNNING),
    Change("command_fail", COMMANDS, RUNNING, {**MY_COMMAND, "retry_count": 5, "error_message": "now", "after": None},
           {**FREE, "status": "FAILED", "finished_at": From(), "retry_count": 5, "error_message": "now",
            "next_retry_at": None}),
    Change("command_release", COMMANDS, RUNNING, {**MY_COMMAND, "after": HOUR},
           {**FREE, "status": "PENDING", "next_retry_at": From(HOUR), "started_at": None}, NOT_RUNNING),
    Change("command_retry", COMMANDS, GIVEN_UP, COMMAND,
           {"status": "PENDING", "retry_count": 0, "next_retry_at": None},
           tuple({"status": it} for it in ("PENDING", "PROCESSING", "COMPLETED"))),
    Change("repair_command", COMMANDS, COMPLETED, COMMAND,
           {"status": "PENDING", "retry_count": 0, "next_retry_at": None, "finished_at": None},
           tuple({"status": it} for it in ("PENDING", "PROCESSING", "FAILED"))),
    Change("repair_command_lease", COMMANDS, {**RUNNING, "locked_until": PAST}, {**MY_COMMAND, "until": FUTURE},
           {**FREE, "status": "PENDING", "epoch": 4, "started_at": None},
           (*NOT_RUNNING, {"locked_until": FUTURE})),
]  # fmt: skip

# -- the outbox, read models and backfills -------------------------------------------------------------------

EVENT: Row = {"event_id": ID}
PARKED: Row = {"state": "FAILED", "attempts": 5, "next_attempt_at": PAST, "last_error": "before"}
SENT: Row = {"state": "SENT", "attempts": 5, "next_attempt_at": PAST, "published_at": PAST}
NEVER_REFUSED: tuple[Row, ...] = tuple({"state": it} for it in ("NEW", "SENT", "SKIPPED"))
BUILDING: Row = {
    "state": "rebuilding", "token": TOKEN, "progress": 2, "total": 9, "started_at": PAST, "expires_at": FUTURE,
}  # fmt: skip
BEGUN: Row = {
    "state": "rebuilding", "generation": 5, "token": ANOTHER, "progress": 0, "total": 0, "started_at": From(),
    "expires_at": From(HOUR),
}  # fmt: skip
SHELF: Row = {"name": "shelf"}
OURS: Row = {**SHELF, "token": TOKEN}
LIVE: Row = {"state": "live", "token": None, "expires_at": None}

OTHERS = [
    *(Change("outbox_skip", OUTBOX, {**PARKED, "state": state}, EVENT,
             {"state": "SKIPPED", "next_attempt_at": None, "published_at": From()}, NEVER_REFUSED)
      for state in ("FAILED", "RETRY")),
    *(Change("outbox_retry", OUTBOX, {**PARKED, "state": state}, EVENT,
             {"state": "NEW", "attempts": 0, "next_attempt_at": None}, NEVER_REFUSED)
      for state in ("FAILED", "RETRY")),
    Change("outbox_send_again", OUTBOX, SENT, EVENT,
           {"state": "NEW", "attempts": 0, "next_attempt_at": None, "published_at": None},
           tuple({"state": it} for it in ("NEW", "RETRY", "FAILED", "SKIPPED"))),
    Change("outbox_due_now", OUTBOX, {"deliver_at": FUTURE}, {**EVENT, "now": PAST}, {"deliver_at": PAST},
           ({"deliver_at": None}, {"deliver_at": PAST})),
    Change("projection_begin", PROJECTIONS, {**LIVE, "progress": 2, "total": 9},
           {**SHELF, "token": ANOTHER, "seconds": HOUR}, BEGUN),
    Change("projection_begin", PROJECTIONS, {**BUILDING, "expires_at": PAST},
           {**SHELF, "token": ANOTHER, "seconds": HOUR}, BEGUN, ({"expires_at": FUTURE},)),
    Change("projection_advance", PROJECTIONS, BUILDING, {**OURS, "progress": 3, "total": 8, "seconds": HOUR},
           {"progress": 3, "total": 8, "expires_at": From(HOUR)}, ({"token": ANOTHER}, {"token": None})),
    Change("projection_end", PROJECTIONS, BUILDING, OURS, LIVE, ({"token": ANOTHER}, {"token": None})),
    Change("projection_lapse", PROJECTIONS, {**BUILDING, "expires_at": PAST}, SHELF, LIVE,
           ({"expires_at": FUTURE}, {"state": "live"})),
    Change("backfill_move", BACKFILLS, {}, {**SHELF, "place": "there", "snapshots": 7},
           {"place": "there", "snapshots": 7}),
    Change("backfill_end", BACKFILLS, {}, SHELF, {"ended_at": From()}),
]  # fmt: skip

# -- new rows ------------------------------------------------------------------------------------------------

MESSAGE: Row = {
    "event_id": ID, "tenant_id": "acme", "event_type": "parcel.posted", "topic": "office.parcel.events",
    "ordering_key": "parcel/a", "version": 7, "message": b"kept",
}  # fmt: skip
NEW: Row = {**MESSAGE, "consumer_group": "receipts", "received_at": From()}
FIRST: Row = {**MESSAGE, **FAILURE, "group": "receipts", "settled": False}
FAILED_FIRST: Row = {**NEW, **FAILURE, "status": 2, "epoch": 0}
ORDER: Row = {
    "command_id": ID, "command_type": "Command.Office.Parcel.Post", "aggregate_type": "parcel", "aggregate_id": "a",
    "payload": b"{}", "tenant_id": "acme", "user_id": "ann", "correlation_id": "c", "causation_id": "d",
}  # fmt: skip

ADDITIONS = [
    Addition("inbox_open", INBOX, {**MESSAGE, "group": "receipts", "kept": True},
             {**NEW, "status": 0, "locked_until": From(), "waiting_key": "parcel/a"}),
    Addition("inbox_open", INBOX, {**MESSAGE, "group": "receipts", "kept": False},
             {**NEW, "status": 0, "locked_until": From()}),
    Addition("inbox_fail_first", INBOX, {**FIRST, "after": HOUR},
             {**FAILED_FIRST, "next_retry_at": From(HOUR), "waiting_key": "parcel/a"}),
    Addition("inbox_fail_first", INBOX, {**FIRST, "after": None}, FAILED_FIRST),
    Addition("inbox_fail_first", INBOX, {**FIRST, "after": None, "settled": True},
             {**FAILED_FIRST, "processed_at": From()}),
    Addition("command_submit", COMMANDS, {**ORDER, "now": PAST}, {**ORDER, "status": "PENDING", "created_at": PAST}),
    Addition("command_begin", COMMANDS, {**ORDER, "now": PAST, "owner": "you", "seconds": HOUR},
             {**ORDER, "status": "PROCESSING", "created_at": PAST, "epoch": 1, "locked_by": "you",
              "locked_until": From(HOUR), "started_at": From()}),
    Addition("backfill_begin", BACKFILLS, SHELF, {**SHELF, "started_at": From()}),
    Addition("projection_declare", PROJECTIONS, SHELF, {**SHELF, "state": "live"}),
]  # fmt: skip
EMPTY = (None, 0)

CHANGES = [*IN_INBOX, *OF_COMMANDS, *OTHERS]
STRANGERS = {
    "inbox": ({"consumer_group": "letters"}, {"event_id": OTHER}),
    "commands": ({"command_id": OTHER},),
    "outbox": ({"event_id": OTHER, "aggregate_id": "b"},),
    "projections": ({"name": "bench"},),
    "backfills": ({"name": "bench"},),
}


async def carry_out(store: Store, change: Change | Addition) -> Result:
    outbox = DEFAULT_OUTBOX if change.table is OUTBOX else None
    return await store.change(change.statement, outbox, **change.asked)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.statement)
async def test_the_row_that_is_meant_is_changed_as_it_is_said_and_no_other(store: Store, change: Change) -> None:
    for row in ({}, *STRANGERS[change.table.name]):
        await change.table.put(store, {**change.row, **row})
    before = await change.table.rows(store)
    assert (await carry_out(store, change)).rowcount == 1
    async with store.reading() as connection:
        now = await store.server_time(connection)
    after = await change.table.rows(store)
    meant = tuple({**change.table.usual, **change.row}[name] for name in change.table.key)
    expected = {name: _as_expected(value, after[meant][name], now) for name, value in change.becomes.items()}
    assert after == {**before, meant: {**before[meant], **expected}}


def _as_expected(expected: object, value: object, now: object) -> object:
    """The value itself where it is about right, so that the rows can be compared whole."""
    return value if isinstance(expected, From) and expected.fits(value, now) else expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "unless"),
    [(change, unless) for change in CHANGES for unless in change.unless],
    ids=lambda it: it.statement if isinstance(it, Change) else " ".join(f"{name}={it[name]}" for name in it),
)
async def test_a_row_of_which_one_thing_is_different_is_left_alone(store: Store, change: Change, unless: Row) -> None:
    await change.table.put(store, {**change.row, **unless})
    before = await change.table.rows(store)
    done = await carry_out(store, change)
    assert (done.rowcount, list(done.rows)) == (0, [])
    assert await change.table.rows(store) == before


@pytest.mark.parametrize("addition", ADDITIONS, ids=lambda addition: addition.statement)
async def test_a_new_row_says_what_was_asked_for_and_nothing_else(store: Store, addition: Addition) -> None:
    await carry_out(store, addition)
    async with store.reading() as connection:
        now = await store.server_time(connection)
    (row,) = (await addition.table.rows(store)).values()
    expected = {name: _as_expected(value, row[name], now) for name, value in addition.becomes.items()}
    assert {name: value for name, value in row.items() if name in expected} == expected
    assert {name: value for name, value in row.items() if name not in {*expected, "seq"} and value not in EMPTY} == {}


@pytest.mark.parametrize("addition", ADDITIONS, ids=lambda addition: addition.statement)
async def test_a_row_that_is_there_is_not_made_again(store: Store, addition: Addition) -> None:
    await addition.table.put(store, {})
    before = await addition.table.rows(store)
    # MySQL's driver cannot tell whether a row is new.
    with suppress(StoreError) if store.dialect == "mysql" else nullcontext():
        await carry_out(store, addition)
    assert await addition.table.rows(store) == before
