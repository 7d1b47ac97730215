"""What a transaction has locked: those who must take turns wait for it, those who need not pass it by."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.errors import StoreBusy
from postroad.stores import Store, open_store
from postroad.testing.office import LONG_AGO, Office
from tests.support.rows import BACKFILLS, COMMANDS, INBOX, PROJECTIONS, Row, Table, number

pytestmark = pytest.mark.parametrize("store_kind", ["postgresql", "mariadb"])
IMPATIENT = {"postgresql": "SET LOCAL lock_timeout = '1ms'", "mysql": "SET innodb_lock_wait_timeout = 1"}


@asynccontextmanager
async def another(url: str) -> AsyncIterator[tuple[Store, AsyncConnection]]:
    """A transaction that gives up soon where it would have to wait."""
    store = open_store(url)
    try:
        async with store.transaction() as connection:
            await connection.exec_driver_sql(IMPATIENT[store.dialect])
            yield store, connection
    finally:
        await store.aclose()


async def waits(url: str, statement: str, **values: Any) -> bool:
    try:
        async with another(url) as (store, connection):
            await store.execute(connection, statement, **values)
    except StoreBusy:
        return True
    return False


async def found(url: str, statement: str, **values: Any) -> list[Any]:
    async with another(url) as (store, connection):
        return [row[0] for row in (await store.execute(connection, statement, **values)).rows]


async def test_relays_look_for_free_shards_past_each_other(office: Office, store_url: str, store_kind: str) -> None:
    values = {"outbox_name": office.table.name, "most": 10}
    async with office.store.transaction() as connection:
        mine = [row.shard for row in (await office.store.execute(connection, "lease_free", **values)).rows]
        assert mine == list(range(10))
        assert await found(store_url, "lease_free", **values) == list(range(10, 20))


async def test_who_sorts_in_foreign_rows_keeps_the_others_waiting(
    office: Office, store_url: str, store_kind: str
) -> None:
    relay = office.relay()
    await relay.leases.keep()
    values = {"outbox_name": office.table.name, "token": relay.leases.token}
    async with office.store.transaction() as connection:
        assert (await office.store.execute(connection, "adoption_turn", **values)).rows
        assert await waits(store_url, "adoption_turn", **values)
    assert not await waits(store_url, "adoption_turn", **values)


@pytest.mark.parametrize(
    ("statement", "table", "row", "asked"),
    [
        ("inbox_lock", INBOX, {}, {"group": "receipts", "event_id": number(1)}),
        ("command_lock", COMMANDS, {}, {"command_id": number(1)}),
        ("projection_lock", PROJECTIONS, {"token": number(1)}, {"name": "shelf", "token": number(1)}),
        ("backfill_lock", BACKFILLS, {}, {"name": "shelf"}),
    ],
)
async def test_of_two_who_want_a_row_one_waits_for_what_the_other_decides(
    store: Store, store_url: str, store_kind: str, statement: str, table: Table, row: Row, asked: Row
) -> None:
    await table.put(store, row)
    async with store.transaction() as connection:
        assert (await store.execute(connection, statement, **asked)).rows
        assert await waits(store_url, statement, **asked)
    assert not await waits(store_url, statement, **asked)


@pytest.mark.parametrize(("statement", "state"), [("prunable", "SENT"), ("prunable_skipped", "SKIPPED")])
async def test_pruners_pass_each_other_by(
    office: Office, store_url: str, store_kind: str, statement: str, state: str
) -> None:
    await office.post("a", "b", "c")
    await office.run("UPDATE {delivery} SET {state} = :state, {published_at} = :then", state=state, then=LONG_AGO)
    values = {"outbox": office.table, "older_than": 3_600.0, "most": 2}
    async with office.store.transaction() as connection:
        mine = [row.event_id for row in (await office.store.execute(connection, statement, **values)).rows]
        theirs = await found(store_url, statement, **values)
    assert (len(mine), len(theirs)) == (2, 1)
    assert not set(mine) & set(theirs)


async def test_only_one_at_a_time_changes_the_schema(store: Store, store_url: str, store_kind: str) -> None:
    free = {
        "postgresql": "SELECT pg_try_advisory_xact_lock(7078843)",
        "mysql": "SELECT IS_FREE_LOCK(CONCAT('postroad_', MD5(DATABASE())))",
    }[store.dialect]

    async def is_free() -> bool:
        async with another(store_url) as (_, connection):
            return bool((await connection.exec_driver_sql(free)).scalar())

    async with store.migrating():
        assert not await is_free()
    assert await is_free()
