"""Which rows of the outbox are found for people, and which only look like them."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from postroad.stores import Store
from postroad.stores.tables import OutboxTable
from tests.support.rows import AUDIT, FUTURE, OUTBOX, PAST, Row, Search, expect_found, ids, number, put, told

DAYS = BEFORE, SINCE, WITHIN, UNTIL = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4)]
NO_FILTER: Row = dict.fromkeys(("event_type", "key", "aggregate_type", "aggregate_id", "text", "payload_text"), "")
RETRYABLE: Row = {**NO_FILTER, "state": "FAILED", "since": SINCE, "until": UNTIL, "timeless": 0}
FAILED: Row = {"state": "FAILED", "occurred_at": WITHIN}
OTHER_STATES: tuple[Row, ...] = tuple({"state": state} for state in ("NEW", "RETRY", "SENT", "SKIPPED"))
OUTSIDE: tuple[Row, ...] = (*OTHER_STATES, {"occurred_at": BEFORE}, {"occurred_at": UNTIL})
LETTER: Row = {"aggregate_type": "letter", "aggregate_id": "l"}
NARROWED: list[tuple[Row, tuple[Row, ...], tuple[Row, ...]]] = [
    ({}, ({}, {"occurred_at": SINCE}), OUTSIDE),
    ({"event_type": "parcel.moved"}, ({"event_type": "parcel.moved"},), ({},)),
    ({"key": "x"}, ({"aggregate_id": "x"},), ({}, {"aggregate_id": "y"})),
    ({"key": "letter/l", **LETTER}, (LETTER,),
     ({**LETTER, "aggregate_id": "m"}, {**LETTER, "aggregate_type": "parcel"})),
    ({"text": "Zürich"}, ({"last_error": "no route to Zürich"},), ({},)),
]  # fmt: skip
ALL_OF_IT: Row = {**NO_FILTER, "since": PAST, "at": FUTURE, "before": UUID(int=2**128 - 1), "limit": 10}
UNSENT = ({"occurred_at": UNTIL, "state": "RETRY"}, {"occurred_at": WITHIN, "state": "FAILED"}, {"occurred_at": SINCE})
SETTLED = ({"state": "SENT"}, {"state": "SKIPPED"})

BEHIND: Row = {**ALL_OF_IT, "at": WITHIN, "before": number(5)}


def page(statement: str, time: str, state: str) -> Search:
    """What moved before the last one of the page before, or with it and has a lower id."""
    asked = {**BEHIND, "state": state} if "unsent" in statement else BEHIND
    return Search(
        statement, OUTBOX, asked, {"state": state},
        ({"event_id": number(4), time: WITHIN}, {"event_id": number(9), time: SINCE}),
        ({"event_id": number(5), time: WITHIN}, {"event_id": number(1), time: UNTIL}),
    )  # fmt: skip


SEARCHES = [
    page("outbox_sent", "published_at", "SENT"),
    page("outbox_skipped", "published_at", "SKIPPED"),
    page("outbox_unsent", "occurred_at", "RETRY"),
    page("outbox_unsent_many", "occurred_at", "RETRY"),
    page("outbox_unsent_newest", "occurred_at", "NEW"),
    *(Search("outbox_retryable_ids", OUTBOX, {**RETRYABLE, "after": number(0), "limit": 10, **asked}, FAILED, *rows)
      for asked, *rows in NARROWED),
    Search("outbox_retryable_ids", OUTBOX, {**RETRYABLE, "state": "RETRY", "after": number(2), "limit": 10},
           {**FAILED, "state": "RETRY"}, ({"event_id": number(3)}, {"event_id": number(4)}),
           ({"event_id": number(2)}, {"event_id": number(5), "state": "FAILED"})),
    Search("outbox_unsent_many", OUTBOX, {**ALL_OF_IT, "state": ""}, {}, UNSENT, SETTLED),
    Search("outbox_unsent_newest", OUTBOX, {**ALL_OF_IT, "state": ""}, {}, UNSENT, SETTLED),
    Search("outbox_unsent_newest", OUTBOX, {**ALL_OF_IT, "state": "NEW"}, {}, ({"occurred_at": UNTIL}, {}),
           (*SETTLED, {"state": "RETRY"}, {"state": "FAILED"})),
    Search("outbox_delayed", OUTBOX, {"at": SINCE, "after": number(3), "limit": 10}, {"deliver_at": WITHIN},
           ({"event_id": number(4), "deliver_at": SINCE}, {"event_id": number(1)},
            {"event_id": number(2), "state": "SENT"}, {"event_id": number(3), "deliver_at": UNTIL}),
           ({"event_id": number(0), "deliver_at": SINCE}, {"event_id": number(9), "deliver_at": BEFORE},
            {"event_id": number(8), "deliver_at": None}, {"event_id": number(7), "state": "SKIPPED"})),
    Search("aggregate_history", OUTBOX, {"aggregate_type": "parcel", "aggregate_id": "x", "before": 4, "limit": 10},
           {"aggregate_id": "x"}, ({"version": 3, "state": "SENT"}, {"version": 2}),
           ({"version": 4}, {"version": 1, "aggregate_id": "y"}, {"version": 1, "aggregate_type": "letter"})),
    Search("outbox_correlated", OUTBOX, {"correlation_id": "c", "limit": 10}, {"correlation_id": "c"}, ({}, {}),
           ({"correlation_id": "d"}, {"correlation_id": None}), ordered=False),
    Search("outbox_caused_since", OUTBOX, {"after": number(2), "since": SINCE, "limit": 10},
           {"occurred_at": WITHIN, "causation_id": "c"},
           ({"event_id": number(3), "occurred_at": SINCE}, {"event_id": number(4)}),
           ({"event_id": number(2)}, {"event_id": number(5), "occurred_at": BEFORE},
            {"event_id": number(6), "causation_id": None})),
    Search("outbox_replay", OUTBOX, {"aggregate_type": "parcel", "after_id": "b", "after_version": 2, "limit": 10}, {},
           ({"aggregate_id": "b", "version": 3}, {"aggregate_id": "b", "version": 4, "state": "SENT"},
            {"aggregate_id": "c", "version": 1}, {"aggregate_id": "c", "version": 2}),
           ({"aggregate_id": "a", "version": 5}, {"aggregate_id": "b", "version": 2},
            {"aggregate_id": "b", "version": 1}, {"aggregate_id": "c", "version": 5, "state": "SKIPPED"},
            {**LETTER, "version": 9})),
]  # fmt: skip


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.statement)
async def test_what_is_asked_for_is_found_and_nothing_that_looks_like_it(store: Store, search: Search) -> None:
    await expect_found(store, search)


@pytest.mark.parametrize(("asked", "found", "left"), NARROWED)
async def test_as_many_are_counted_as_are_found(
    store: Store, asked: Row, found: tuple[Row, ...], left: tuple[Row, ...]
) -> None:
    await put(store, OUTBOX, *({**FAILED, **row} for row in (*found, *left)))
    (counted,) = await told(store, "outbox_retryable_count", **{**RETRYABLE, **asked})
    assert counted.events == len(found)


async def test_what_has_no_time_is_found_by_who_names_no_end(store: Store) -> None:
    """Other programs' rows have none until a relay has seen them."""
    theirs = OutboxTable("theirs")
    await put(store, OUTBOX, {**FAILED, "state": "NEW"}, FAILED, {**FAILED, "occurred_at": UNTIL})
    statements = ["CREATE TABLE theirs AS SELECT * FROM postroad_outbox"]
    if store.dialect == "mysql":
        statements.append("ALTER TABLE theirs MODIFY occurred_at DATETIME(6) NULL")
    statements.append("UPDATE theirs SET occurred_at = NULL WHERE aggregate_id = 'a2'")
    async with store.transaction() as connection:
        for statement in statements:
            await connection.exec_driver_sql(statement)
    for timeless, expected in ((1, [number(2)]), (0, [])):
        asked = {**RETRYABLE, "timeless": timeless}
        found = (await store.read("outbox_retryable_ids", theirs, **asked, after=number(0), limit=10)).rows
        (counted,) = (await store.read("outbox_retryable_count", theirs, **asked)).rows
        assert (ids(store, found), counted.events) == (expected, len(expected))


async def test_a_search_goes_back_as_far_as_its_window(store: Store) -> None:
    sent = [{"state": "SENT", "published_at": day} for day in (BEFORE, SINCE, SINCE, WITHIN, UNTIL)]
    await put(store, OUTBOX, *sent, {"state": "SKIPPED", "published_at": WITHIN})

    async def edge(window: int, **asked: Any) -> list[datetime | None]:
        bounds = {"at": FUTURE, "before": number(99), "since": SINCE, "window": window}
        return [store.time_out(row.published_at) for row in await told(store, "outbox_sent_edge", **bounds | asked)]

    assert [await edge(window) for window in range(5)] == [[UNTIL], [WITHIN], [SINCE], [SINCE], []]
    assert await edge(0, at=WITHIN) == [WITHIN]
    assert await edge(0, at=WITHIN, before=number(4)) == [SINCE]
    assert await edge(0, at=UNTIL, before=number(1)) == [WITHIN]
    assert await edge(1, at=SINCE, before=number(3)) == []


async def test_the_topics_of_the_newest_and_of_the_last_sent_are_known(store: Store) -> None:
    sent = (("x", UNTIL), ("y", SINCE), ("y", WITHIN), ("z", BEFORE))
    await put(store, OUTBOX, *({"topic": topic, "state": "SENT", "published_at": day} for topic, day in sent),
              {"topic": "unsent"}, {"topic": "skipped", "state": "SKIPPED", "published_at": FUTURE})  # fmt: skip
    assert {row.topic for row in await told(store, "outbox_topics", newest=10)} == {*"xyz", "unsent", "skipped"}
    assert sorted(row.topic for row in await told(store, "outbox_topics", newest=4)) == ["skipped", "unsent", "y", "z"]
    assert sorted(row.topic for row in await told(store, "topics_sent", most=10)) == ["x", "y", "z"]
    assert sorted(row.topic for row in await told(store, "topics_sent", most=2)) == ["x", "y"]


async def test_canaries_are_those_of_their_name_and_topic(store: Store) -> None:
    canary = {"aggregate_type": "canary", "aggregate_id": "x"}
    await put(store, OUTBOX, canary, {**canary, "version": 2}, {**canary, "aggregate_id": "y"}, {"aggregate_id": "x"})
    assert sorted(ids(store, await told(store, "canaries", **canary))) == [number(1), number(2)]
    assert sorted(row.topic for row in await told(store, "canary_topics", aggregate_type="canary")) == ["x", "y"]
    assert [row.events for row in await told(store, "outbox_replay_size", aggregate_type="canary")] == [3]


async def test_the_types_of_what_is_unsent_are_known(store: Store) -> None:
    await put(store, OUTBOX, {"event_type": "a"}, {"event_type": "b", "state": "FAILED"}, {"event_type": "b"},
              {"event_type": "c", "state": "SENT"}, {"event_type": "d", "state": "SKIPPED"})  # fmt: skip
    assert sorted(row.event_type for row in await told(store, "unsent_types", most=10)) == ["a", "b"]
    assert len(await told(store, "unsent_types", most=1)) == 1


async def test_acts_are_listed_from_the_newest_on(store: Store) -> None:
    for n, subject in enumerate("xyxx"):
        await AUDIT.put(store, {"at": PAST + timedelta(days=n), "subject": subject, "action": f"act {n}"})

    async def acts(before: int = 2**62, subject: str = "", limit: int = 10) -> list[tuple[int, str]]:
        rows = await told(store, "audit_list", before=before, subject=subject, limit=limit)
        return [(row.id, row.action) for row in rows]

    everything = await acts()
    assert [action for _, action in everything] == ["act 3", "act 2", "act 1", "act 0"]
    assert await acts(limit=1) == everything[:1]
    assert await acts(before=everything[1][0]) == everything[2:]
    assert await acts(subject="x") == [one for one in everything if one[1] != "act 1"]
