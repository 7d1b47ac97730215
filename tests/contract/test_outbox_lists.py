"""What is listed and counted of an outbox: which events, in which order, from where to where."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from postroad.message import SHARDS
from postroad.testing.office import LONG_AGO, Moved, Office

LAST = UUID(int=2**128 - 1)
LATEST = datetime(9999, 12, 31, tzinfo=UTC)
DAYS = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
LISTS = pytest.mark.parametrize(
    ("statement", "state", "time"),
    [
        ("outbox_sent", "SENT", "published_at"),
        ("outbox_skipped", "SKIPPED", "published_at"),
        ("outbox_unsent", "FAILED", "occurred_at"),
        ("outbox_unsent_many", "FAILED", "occurred_at"),
    ],
)
NEWEST = pytest.mark.parametrize(
    ("statement", "state", "time"), [*LISTS.args[1], ("outbox_unsent_newest", "NEW", "occurred_at")]
)


async def put(office: Office, parcel: str, **columns: Any) -> None:
    changes = ", ".join(f"{{{name}}} = :{name}" for name in columns)
    values = {name: office.store.adapt(value) for name, value in columns.items()}
    await office.run(f"UPDATE {{outbox}} SET {changes} WHERE {{aggregate_id}} = '{parcel}'", **values)


async def post(office: Office, *parcels: str) -> dict[str, UUID]:
    return {one.message.aggregate_id: one.id for one in await office.post(*parcels)}


async def listed(office: Office, statement: str, **values: Any) -> list[str]:
    found = await office.store.read(statement, office.table, **values)
    return [row.ordering_key.removeprefix("parcel/") for row in found.rows]


@pytest.fixture
async def posted(office: Office, statement: str, state: str, time: str) -> dict[str, UUID]:
    """a, then b and c at the same time, then d of another type; and x, in another state."""
    ids = await post(office, *"abcx")
    async with office.store.session() as session, session.begin():
        ids["d"] = office.outbox.add(session, Moved("d")).id
    other = "NEW" if state != "NEW" else "RETRY"
    for parcel, day in zip("abcdx", (0, 1, 1, 2, 1), strict=True):
        await put(office, parcel, state=state if parcel != "x" else other, **{time: DAYS[day]})
    return ids


def asked(state: str, **filters: Any) -> dict[str, Any]:
    values = dict.fromkeys(("event_type", "key", "aggregate_type", "aggregate_id", "text", "payload_text"), "")
    bounds = {"since": LONG_AGO, "at": LATEST, "before": LAST, "limit": 10}
    return values | bounds | ({"state": state} if state in ("NEW", "FAILED") else {}) | filters


def newest_first(ids: dict[str, UUID]) -> list[str]:
    return ["d", *sorted("bc", key=lambda parcel: ids[parcel], reverse=True), "a"]


@NEWEST
async def test_what_moved_last_is_listed_first(
    office: Office, statement: str, state: str, posted: dict[str, UUID]
) -> None:
    expected = newest_first(posted)
    assert await listed(office, statement, **asked(state)) == expected
    assert await listed(office, statement, **asked(state, limit=2)) == expected[:2]


@NEWEST
async def test_what_moved_before_a_time_can_be_left_out(
    office: Office, statement: str, state: str, posted: dict[str, UUID]
) -> None:
    assert await listed(office, statement, **asked(state, since=DAYS[1])) == newest_first(posted)[:3]
    assert await listed(office, statement, **asked(state, since=DAYS[2])) == ["d"]


@LISTS
async def test_a_text_is_looked_for_in_type_aggregate_error_and_payload(
    office: Office, statement: str, state: str, posted: dict[str, UUID]
) -> None:
    await put(office, "a", last_error="no route to Zürich")

    async def found(text: str, in_payload: bool = True) -> list[str]:
        return await listed(office, statement, **asked(state, text=text, payload_text=text if in_payload else ""))

    assert await found("moved") == ["d"]
    assert await found("to Zürich") == ["a"]
    assert await found("nowhere at all") == []
    assert sorted(await found('"parcel":"')) == sorted("abcd")
    assert await found('"parcel":"', in_payload=False) == []


@NEWEST
async def test_a_page_goes_on_behind_the_last_one_of_the_page_before(
    office: Office, statement: str, state: str, posted: dict[str, UUID]
) -> None:
    expected = newest_first(posted)
    for place, day in zip(range(4), (2, 1, 1, 0), strict=True):
        behind = asked(state, at=DAYS[day], before=posted[expected[place]])
        assert await listed(office, statement, **behind) == expected[place + 1 :]
    assert await listed(office, statement, **asked(state, at=DAYS[1], before=LAST)) == expected[1:]


@LISTS
@pytest.mark.parametrize(
    ("filters", "parcels"),
    [
        ({"event_type": "parcel.moved"}, ["d"]),
        ({"event_type": "nothing"}, []),
        ({"key": "a"}, ["a"]),
        ({"key": "letter/a", "aggregate_type": "letter", "aggregate_id": "a"}, []),
        ({"key": "parcel/d", "aggregate_type": "parcel", "aggregate_id": "d"}, ["d"]),
        ({"event_type": "parcel.moved", "key": "a"}, []),
    ],
)
async def test_lists_can_be_narrowed(
    office: Office,
    statement: str,
    state: str,
    posted: dict[str, UUID],
    filters: dict[str, str],
    parcels: list[str],
) -> None:
    assert await listed(office, statement, **asked(state, **filters)) == parcels


async def test_a_span_of_time_is_a_span_of_ids(office: Office) -> None:
    ids = sorted((await post(office, *"abcd")).items(), key=lambda one: one[1])
    parcels = [parcel for parcel, _ in ids]
    between = {"low": ids[0][1], "high": ids[3][1]}
    assert await listed(office, "outbox_written", limit=10, **between) == parcels[1:3]
    assert await listed(office, "outbox_written", limit=1, **between) == parcels[1:2]


async def test_what_was_sent_lately_is_listed_and_counted_as_it_was_sent(office: Office) -> None:
    now = office.store.clock.now()
    await post(office, *"abcde")
    for parcel, minutes in (("a", 120), ("b", 2), ("c", 1), ("d", 3)):
        await put(office, parcel, state="SENT", published_at=now - timedelta(minutes=minutes))
    await put(office, "e", state="SKIPPED", published_at=now)
    assert await listed(office, "outbox_sent_since", seconds=3_600.0, limit=10) == ["d", "b", "c"]
    assert await listed(office, "outbox_sent_since", seconds=3_600.0, limit=2) == ["d", "b"]
    for most, counted in ((10, 3), (2, 2)):
        (row,) = (await office.store.read("outbox_sent_count", office.table, seconds=3_600.0, most=most)).rows
        assert row.events == counted


async def test_what_is_unsent_is_counted_by_its_state(office: Office) -> None:
    await post(office, *"abcdef")
    for parcel, state, day in (("a", "FAILED", 1), ("b", "FAILED", 0), ("c", "RETRY", 2)):
        await put(office, parcel, state=state, occurred_at=DAYS[day])
    for parcel, state in (("d", "SENT"), ("e", "SKIPPED")):
        await put(office, parcel, state=state)
    rows = (await office.store.read("outbox_counts", office.table, now=DAYS[2])).rows
    assert {row.state: row.events for row in rows} == {"NEW": 1, "RETRY": 1, "FAILED": 2}
    assert {row.state: office.store.time_out(row.oldest) for row in rows}["FAILED"] == DAYS[0]


@pytest.mark.parametrize("statement", ["outbox_counts", "outbox_unsent_count"])
async def test_only_a_new_event_is_scheduled_and_only_before_its_time(office: Office, statement: str) -> None:
    await post(office, *"abcd")
    for parcel, state, due in (("a", "NEW", 1), ("b", "NEW", 2), ("c", "RETRY", 2), ("d", "FAILED", 2)):
        await put(office, parcel, state=state, occurred_at=DAYS[0], deliver_at=DAYS[due])
    bound = {"most": 10} if statement == "outbox_unsent_count" else {}
    rows = (await office.store.read(statement, office.table, now=DAYS[1], **bound)).rows
    assert {row.state: (row.events, office.store.time_out(row.oldest)) for row in rows} == {
        "NEW": (1, DAYS[1]),
        "SCHEDULED": (1, DAYS[2]),
        "RETRY": (1, DAYS[2]),
        "FAILED": (1, DAYS[2]),
    }


async def test_what_is_due_is_counted_whatever_else_is_still_to_come(office: Office) -> None:
    for _ in range(5):
        await office.post(*"ab", delay=3600)
    await post(office, *"cdefg")
    places = (("c", "NEW", None), ("d", "NEW", 1), ("e", "NEW", 2), ("f", "RETRY", 0), ("g", "SENT", 0))
    for parcel, state, day in places:
        await put(office, parcel, state=state, occurred_at=DAYS[0], deliver_at=None if day is None else DAYS[day])

    async def due(most: int) -> tuple[int, datetime | None]:
        (row,) = (await office.store.read("outbox_due_count", office.table, now=DAYS[1], most=most)).rows
        return row.events, office.store.time_out(row.oldest)

    assert await due(4) == (2, DAYS[0])
    await put(office, "c", ordering_key="a/c")
    assert await due(4) == (2, DAYS[0])
    # Its key stays that of a delayed one.
    await put(office, "a", deliver_at=DAYS[1])
    assert (await due(50))[0] == 7


async def held(office: Office, most: int) -> dict[str, tuple[int, datetime | None]]:
    rows = (await office.store.read("outbox_held_count", office.table, most=most)).rows
    return {row.state: (row.events, office.store.time_out(row.oldest)) for row in rows}


async def test_what_is_held_up_is_counted_whatever_else_waits_and_up_to_a_bound(office: Office) -> None:
    await post(office, *"abcdef")
    for parcel, state, day in (("a", "FAILED", 1), ("b", "FAILED", 0), ("c", "RETRY", 2), ("d", "SENT", 0)):
        await put(office, parcel, state=state, occurred_at=DAYS[day])
    assert await held(office, most=2) == {"RETRY": (1, DAYS[2]), "FAILED": (2, DAYS[0])}
    assert {state: events for state, (events, _) in (await held(office, most=1)).items()} == {"RETRY": 1, "FAILED": 1}
    await put(office, "c", deliver_at=DAYS[1])
    assert (await held(office, most=2))["RETRY"] == (1, DAYS[1])


async def test_the_oldest_that_waits_is_found_by_when_it_was_due(office: Office) -> None:
    async def oldest(now: datetime = DAYS[2], most: int = 5) -> datetime | None:
        (row,) = (await office.store.read("outbox_oldest", office.table, now=now, most=most)).rows
        return office.store.time_out(row.oldest)

    assert await oldest() is None
    ids = await post(office, *"abcd")
    first, second, third, last = sorted(ids, key=lambda parcel: ids[parcel])
    for parcel, day in ((first, 0), (second, 1), (third, 2), (last, 2)):
        await put(office, parcel, occurred_at=DAYS[day])
    assert (await oldest(), await oldest(most=1)) == (DAYS[0], DAYS[0])
    await put(office, first, state="SENT", published_at=DAYS[0])
    assert await oldest() == DAYS[1]
    for state in ("RETRY", "FAILED"):
        await put(office, first, state=state)
        assert await oldest() == DAYS[1]
    await put(office, second, deliver_at=DAYS[1])
    assert (await oldest(DAYS[1]), await oldest(DAYS[0])) == (DAYS[1], DAYS[2])
    await put(office, second, deliver_at=DAYS[2])
    assert (await oldest(), await oldest(DAYS[1])) == (DAYS[2], DAYS[2])
    for parcel in (second, third, last):
        await put(office, parcel, deliver_at=DAYS[2])
    assert await oldest(DAYS[1]) is None


async def parked(office: Office, limit: int = 10) -> Sequence[tuple[str, int]]:
    rows = (await office.store.read("outbox_parked", office.table, limit=limit)).rows
    return [(row.ordering_key, row.behind) for row in rows]


async def test_a_parked_event_is_told_with_what_waits_behind_it(office: Office) -> None:
    await office.post(*"aaaaabb", "c", "d")
    await office.run("UPDATE {delivery} SET {shard} = 5 WHERE {ordering_key} <> 'parcel/d'")
    await office.run("UPDATE {delivery} SET {shard} = 4 WHERE {ordering_key} = 'parcel/d'")
    changes = {("a", 1): "SENT", ("a", 2): "FAILED", ("a", 4): "SKIPPED", ("c", 1): "FAILED", ("d", 1): "FAILED"}
    for (parcel, version), state in changes.items():
        where = f"WHERE {{ordering_key}} = 'parcel/{parcel}' AND {{version}} = {version}"
        await office.run(f"UPDATE {{delivery}} SET {{state}} = '{state}' {where}")
    assert await parked(office) == [("parcel/d", 0), ("parcel/a", 2), ("parcel/c", 0)]
    assert await parked(office, limit=1) == [("parcel/d", 0)]


async def unsent(office: Office, by: datetime, due_by: datetime = LATEST) -> bool:
    return bool((await office.store.read("unsent_exists", office.table, written_by=by, due_by=due_by)).rows)


@pytest.mark.parametrize("state", ["NEW", "RETRY"])
async def test_what_was_written_by_then_is_waited_for(office: Office, state: str) -> None:
    await post(office, "a")
    await put(office, "a", state=state, occurred_at=DAYS[1])
    assert [await unsent(office, day) for day in DAYS] == [False, True, True]
    for settled in ("SENT", "SKIPPED", "FAILED"):
        await put(office, "a", state=settled)
        assert not await unsent(office, LATEST)


async def test_what_is_delayed_is_late_from_its_time_on_and_anything_else_from_when_it_was_written(
    office: Office,
) -> None:
    await post(office, "a")
    await put(office, "a", occurred_at=DAYS[1])
    assert [await unsent(office, LATEST, day) for day in DAYS] == [False, True, True]
    await put(office, "a", occurred_at=DAYS[0], deliver_at=DAYS[1])
    assert [await unsent(office, LATEST, day) for day in DAYS] == [False, True, True]


async def test_what_stands_behind_a_parked_event_is_not_waited_for(office: Office) -> None:
    await office.post(*"aab")
    await office.run("UPDATE {delivery} SET {shard} = 5")
    await office.run("UPDATE {delivery} SET {state} = 'FAILED' WHERE {ordering_key} = 'parcel/a' AND {version} = 1")
    assert await unsent(office, LATEST)
    await office.run("UPDATE {delivery} SET {state} = 'SENT' WHERE {ordering_key} = 'parcel/b'")
    assert not await unsent(office, LATEST)


async def free(office: Office) -> int:
    (row,) = (await office.store.read("shards_free", outbox_name=office.table.name)).rows
    return int(row.shards)


async def test_a_shard_is_free_if_nobody_has_it_or_its_time_is_over(office: Office) -> None:
    assert await free(office) == SHARDS
    await office.relay(outbox=office.tables[2]).leases.keep()
    assert await free(office) == SHARDS
    await office.relay().leases.keep()
    assert await free(office) == 0
    await office.run("UPDATE {shards} SET expires_at = :then WHERE shard < 3", then=LONG_AGO)
    await office.run("UPDATE {shards} SET token = NULL WHERE shard = 9")
    assert await free(office) == 4


async def test_an_event_and_its_state_are_found_by_its_id(office: Office) -> None:
    ids = await post(office, "a", "b")
    await put(office, "b", state="FAILED")
    for parcel, state in (("a", "NEW"), ("b", "FAILED")):
        (whole,) = (await office.store.read("outbox_find", office.table, event_id=ids[parcel])).rows
        (short,) = (await office.store.read("outbox_state", office.table, event_id=ids[parcel])).rows
        assert (whole.aggregate_id, whole.state, short.state) == (parcel, state, state)
    assert not (await office.store.read("outbox_state", office.table, event_id=LAST)).rows


@pytest.mark.parametrize(("statement", "state"), [("prunable", "SENT"), ("prunable_skipped", "SKIPPED")])
async def test_what_has_been_settled_longest_is_pruned_first(office: Office, statement: str, state: str) -> None:
    ids = await post(office, *"abcd")
    for parcel, day in (("a", 2), ("b", 0), ("c", 1)):
        await put(office, parcel, state=state, published_at=DAYS[day])
    await put(office, "d", state=state, published_at=office.store.clock.now())
    for most, oldest in ((10, "bca"), (2, "bc")):
        async with office.store.transaction() as connection:
            found = await office.store.execute(
                connection, statement, outbox=office.table, older_than=3_600.0, most=most
            )
        assert [office.store.id_out(row.event_id) for row in found.rows] == [ids[parcel] for parcel in oldest]
