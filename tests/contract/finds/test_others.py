"""Read models, journals, results, pauses, leases, migrations: which of them are found, and in which order."""

from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from postroad.message import SHARDS
from postroad.operations.doctor.schema import routines
from postroad.stores import Store
from postroad.stores.tables import DEFAULT_OUTBOX
from tests.support.rows import FUTURE, PAST, PROJECTIONS, Row, number, told

BUILDING: Row = {"state": "rebuilding", "token": number(1), "expires_at": PAST}


async def test_a_rebuild_that_nobody_goes_on_with_has_lapsed(store: Store) -> None:
    rows: dict[str, Row] = {"b": BUILDING, "a": {"expires_at": PAST}, "c": {**BUILDING, "expires_at": FUTURE}, "d": {}}
    for name, row in rows.items():
        await PROJECTIONS.put(store, {"name": name, **row})
    assert [row.name for row in await told(store, "projections_lapsed")] == ["b"]
    assert [row.name for row in await told(store, "projections_all")] == ["a", "b", "c", "d"]
    locked = [await told(store, "projection_fence", name=name) for name in ("a", "b", "x")]
    assert [[row.state for row in found] for found in locked] == [["live"], ["rebuilding"], []]
    for token, held in ((number(1), [4]), (number(2), [])):
        async with store.transaction() as connection:
            found = await store.execute(connection, "projection_lock", name="b", token=token)
        assert [row.generation for row in found.rows] == held


async def test_a_journal_is_read_in_its_order_and_forgotten_piece_by_piece(store: Store) -> None:
    for name, message in (("a", b"1"), ("b", b"2"), ("a", b"3"), ("a", b"4")):
        await store.change("journal_add", name=name, message=message)
    page = await told(store, "journal_page", name="a", limit=10)
    assert [bytes(row.message) for row in page] == [b"1", b"3", b"4"]
    assert [bytes(row.message) for row in await told(store, "journal_page", name="a", limit=2)] == [b"1", b"3"]
    await store.change("journal_forget", positions=[row.position for row in page[:2]])
    assert [bytes(row.message) for row in await told(store, "journal_page", name="a", limit=10)] == [b"4"]
    await store.change("journal_clear", name="a")
    assert await told(store, "journal_page", name="a", limit=10) == []
    assert [bytes(row.message) for row in await told(store, "journal_page", name="b", limit=10)] == [b"2"]


async def test_of_each_kind_the_last_result_is_kept(store: Store) -> None:
    days = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)]
    for kind, day, actor, found in (("check", 0, "ann", "1"), ("doctor", 0, "bob", "2"), ("check", 1, "cyd", "3")):
        await store.change("result_keep", kind=kind, now=days[day], actor=actor, found=found)
    for kind, expected in (("check", (days[1], "cyd", "3")), ("doctor", (days[0], "bob", "2"))):
        (row,) = await told(store, "result_last", kind=kind)
        assert (store.time_out(row.at), row.actor, row.found) == expected


async def test_what_is_paused_is_listed_by_kind_and_name(store: Store) -> None:
    for kind, name in ("bb", "ab", "ba", "aa"):
        await store.change("pause_add", kind=kind, name=name, actor="ann", reason="", now=PAST)
    assert [row.kind + row.name for row in await told(store, "pauses")] == ["aa", "ab", "ba", "bb"]
    await store.change("pause_end", kind="b", name="a")
    assert [row.kind + row.name for row in await told(store, "pauses")] == ["aa", "ab", "bb"]


async def test_what_a_table_was_brought_to_is_forgotten_of_that_table_alone(store: Store) -> None:
    places = [(name, target) for name in ("one", "two") for target in ("a", "b")]
    async with store.transaction() as connection:
        tried = await connection.begin_nested()
        for name, target in places:
            await store.execute(connection, "migration_record", name=name, target=target, now=PAST)
        await store.execute(connection, "migration_forget", name="one", target="a")
        known = {(row.name, row.target) for row in (await store.execute(connection, "migrations_applied")).rows}
        await tried.rollback()  # this table outlasts a test
    assert known.intersection(places) == {*places[1:]}


async def test_a_routine_is_found_by_its_name(store: Store) -> None:
    for name in routines(store, [DEFAULT_OUTBOX]):
        found = [
            await told(store, "catalog_routine", schema_name="", routine_name=f"{name}{more}") for more in ("", "x")
        ]
        assert [len(rows) for rows in found] == [1, 0]


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_in_a_file_nobody_has_rights(store: Store) -> None:
    assert await told(store, "rights_read") == []


async def test_a_shard_is_held_by_who_has_a_token_whose_time_is_not_over(store: Store) -> None:
    async def shard(number: int, owner: str, token: object, expires_at: datetime) -> None:
        values = {"shard": number, "owner": owner, "token": token, "expires_at": expires_at}
        sql = "UPDATE {shards} SET owner = :owner, token = :token, expires_at = :expires_at WHERE shard = :shard"
        async with store.transaction() as connection:
            bound = {name: store.adapt(value) for name, value in values.items()}
            await connection.execute(text(store.fill(f"{sql} AND outbox = 'postroad_outbox'")), bound)

    await shard(2, "a", number(1), FUTURE)
    await shard(3, "a", number(1), PAST)
    await shard(4, "b", number(2), FUTURE)
    await shard(5, "c", None, FUTURE)
    rows = sorted(await told(store, "shard_leases", outbox_name=DEFAULT_OUTBOX.name), key=lambda row: int(row.shard))
    assert [row.shard for row in rows] == list(range(SHARDS))
    assert [row.shard for row in rows if row.held] == [2, 4]
    assert await told(store, "relay_ever", outbox_name="postroad_facts") == []
    await store.change("lease_take", outbox_name="postroad_facts", shards=[7, 8], owner="d", token=number(2), ttl=60.0)
    assert [row.shard in (7, 8) for row in await told(store, "relay_ever", outbox_name="postroad_facts")] == [True]
    assert await told(store, "relay_ever", outbox_name=DEFAULT_OUTBOX.name) == []
    held = await told(store, "leases_held")
    assert [(row.outbox, row.owner, row.shards) for row in held] == [
        ("postroad_facts", "d", 2),
        ("postroad_outbox", "a", 2),
        ("postroad_outbox", "b", 1),
    ]
    assert store.time_out(held[1].expires_at) == PAST
