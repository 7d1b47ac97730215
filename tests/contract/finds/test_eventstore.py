"""Which domain events are found, and which only look like them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from postroad.stores import Store
from tests.support.rows import EVENTS, Row, Search, expect_found, number, put, told

BEFORE, SINCE, LATER = (datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3))


def of(aggregate: str, *versions: int, **columns: Any) -> tuple[Row, ...]:
    return tuple({"aggregate_id": aggregate, "aggregate_version": version, **columns} for version in versions)


STREAM: Row = {"aggregate_type": "parcel", "aggregate_id": "a", "after": 1}
REPLAY: Row = {"aggregate_type": "parcel", "after_id": "b", "after_version": 2, "limit": 10}

SEARCHES = [
    Search("events_stream", EVENTS, STREAM, {}, of("a", 2, 3),
           (*of("a", 1), *of("b", 4), *of("a", 5, aggregate_type="letter"))),
    Search("events_replay", EVENTS, REPLAY, {}, (*of("b", 3, 4), *of("c", 1, 2)),
           (*of("a", 5), *of("b", 1, 2), *of("c", 5, aggregate_type="letter"))),
    Search("events_find", EVENTS, {"event_id": number(1)}, left=({},)),
    Search("events_correlated", EVENTS, {"correlation_id": "c", "limit": 10}, {"correlation_id": "c"}, ({}, {}),
           ({"correlation_id": "d"}, {"correlation_id": None})),
    Search("events_caused", EVENTS, {"causation_id": "c"}, {"causation_id": "c"}, ({}, {}), ({"causation_id": "d"},)),
    Search("events_all", EVENTS, {"after": 1, "limit": 10}, {}, ({"position": 2}, {"position": 3}),
           ({"position": 1}, {"position": None})),
    Search("events_since", EVENTS, {"since": SINCE, "after": 150, "limit": 10}, {"occurred_at": LATER},
           ({"seq": 151, "occurred_at": SINCE}, {"seq": 149}, {"seq": 152}),
           ({"seq": 150, "occurred_at": SINCE}, {"seq": 153, "occurred_at": BEFORE})),
]  # fmt: skip


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.statement)
async def test_what_is_asked_for_is_found_and_nothing_that_looks_like_it(store: Store, search: Search) -> None:
    await expect_found(store, search)


async def test_a_history_is_counted_and_its_last_version_told(store: Store) -> None:
    rows = (*of("a", 1, 2), *of("b", 7), *of("a", 9, aggregate_type="letter"))
    await put(store, EVENTS, *rows)
    for kind, size in (("parcel", 3), ("letter", 1), ("stamp", 0)):
        assert [row.events for row in await told(store, "events_replay_size", aggregate_type=kind)] == [size]
    for (kind, aggregate), last in {
        ("parcel", "a"): 2,
        ("parcel", "b"): 7,
        ("letter", "a"): 9,
        ("letter", "b"): 0,
    }.items():
        (row,) = await told(store, "events_version", aggregate_type=kind, aggregate_id=aggregate)
        assert row.version == last


async def test_what_has_no_position_yet_comes_in_the_order_of_its_number(store: Store) -> None:
    await put(store, EVENTS, *({"seq": 110 - n, "position": position} for n, position in enumerate((None, 4, None, 3))))
    rows = await told(store, "events_unnumbered", limit=10)
    assert [(row.seq, row.last) for row in rows] == [(108, 4), (110, 4)]
    assert len(await told(store, "events_unnumbered", limit=1)) == 1


async def test_those_that_are_named_get_the_positions_that_follow_the_last(store: Store) -> None:
    await put(store, EVENTS, {}, {}, {"position": 1}, {}, {"position": 9})
    await store.change("events_number", seqs=[102, 104, 105], last=1)
    numbered = {row["seq"]: row["position"] for row in (await EVENTS.rows(store)).values()}
    assert numbered == {101: None, 102: 2, 103: 1, 104: 3, 105: 9}
