"""What is asked again and again is found by an index, however much lies beside it: as the databases say themselves."""

import re
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from postroad import operations
from postroad.stores import open_store
from postroad.stores.tables import OutboxTable
from postroad.testing.office import Office, opened
from tests.support.crowd import crowd, few, gather_statistics
from tests.support.outbox import fresh_database
from tests.support.rows import FUTURE, told

EXPLAIN = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN ", "mysql": "EXPLAIN "}


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "mariadb"])
def crowded_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of this file's own: a planner remembers what once lay in a table that is empty now."""
    with fresh_database(request.param, tmp_path_factory.mktemp("plans")) as url:
        yield url


@pytest.fixture
async def office(crowded_url: str) -> AsyncIterator[Office]:
    async with opened(open_store(crowded_url)) as office:
        if not await told(office.store, "outbox_parked", limit=1):
            await crowd(office.store)
            await few(office.store)
            await gather_statistics(office.store)
        yield office


async def plan(office: Office, statement: str, outbox: OutboxTable | None = None, **asked: Any) -> list[str]:
    """The plan's lines, from the top."""
    async with office.store.reading() as connection:
        return await explained(office, connection, statement, outbox, asked)


async def explained(
    office: Office, connection: AsyncConnection, statement: str, outbox: OutboxTable | None, asked: dict[str, Any]
) -> list[str]:
    explain = text(EXPLAIN[office.store.dialect] + office.store.sql(statement, outbox))
    bound = {name: office.store.adapt(value) for name, value in asked.items()}
    rows = (await connection.execute(explain, bound)).all()
    if office.store.dialect == "mysql":
        return [" ".join(map(str, (*row[:4], *row[5:]))) for row in rows]  # without the indexes that are not taken
    return [str(row[-1]) for row in rows]


@pytest.mark.parametrize(("statement", "index"), [("outbox_sent", "sent"), ("outbox_skipped", "(skipped|sent)")])
async def test_the_newest_of_many_are_found_by_their_index(office: Office, statement: str, index: str) -> None:
    asked = dict.fromkeys(("event_type", "key", "aggregate_type", "aggregate_id", "text", "payload_text"), "")
    now = office.store.clock.now()
    found = await plan(office, statement, office.table, **asked, since=now, at=now, before=uuid4(), limit=5)
    assert re.search(f"postroad_outbox_{index}", str(found))


async def test_the_few_commands_that_failed_are_found_by_their_index(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks at the status asks for them, also the dashboard every few seconds."""
    asked: list[tuple[str, dict[str, Any]]] = []
    read = office.store.read

    async def noting(statement: str, *arguments: Any, **values: Any) -> Any:
        asked.append((statement, values))
        return await read(statement, *arguments, **values)

    with monkeypatch.context() as patch:
        patch.setattr(office.store, "read", noting)
        await operations.status(office.store, office.tables)
    ((listing, values),) = (one for one in asked if one[0].startswith("command_list"))
    assert "postroad_command_box_status" in str(await plan(office, listing, **values))


async def test_a_backlog_is_counted_as_it_lies_in_its_index(office: Office) -> None:
    """Sorted first, the first thousand of a million would cost as much as the million."""
    found = await plan(office, "outbox_unsent_count", office.table, now=office.store.clock.now(), most=5)
    assert "postroad_outbox_unsent" in str(found)
    sorting = r"B-TREE FOR .*ORDER BY|Sort Key:.*ordering_key|^\d \w+ d .*Using filesort"
    assert [one for one in found if re.search(sorting, one)] == []


@pytest.mark.parametrize("statement", ["outbox_parked", "unsent_exists"])
async def test_what_waits_behind_a_parked_event_is_looked_for_in_its_shard(office: Office, statement: str) -> None:
    """In all of what is parked, or of what waits, it would be looked for as often as there is of the other."""
    found = await plan(office, statement, office.table, limit=5, written_by=FUTURE, due_by=FUTURE)
    by_shard = r"\(shard ?= ?(\?|d\.shard)\)? AND|Hash Anti Join|_unsent \d+ (func,func|.*\.d\.shard,)"
    assert any(re.search(by_shard, one) for one in found), found


@pytest.mark.parametrize("crowded_url", ["sqlite"], indirect=True)
async def test_a_relay_that_looks_names_the_shard_whenever_it_names_a_key(office: Office) -> None:
    asked = {"shards": [1], "after": [""], "depth": 4, "most": 10, "inline": 100}
    found = await plan(office, "read_due", office.table, **asked)
    looks = [one for one in found if "postroad_outbox_unsent" in one]
    assert [one for one in looks if "shard=?" not in one][2:] == []  # the first two find the shards
    assert len(looks) == 7


SENT_OFTEN = """
INSERT INTO postroad_outbox (event_id, topic, event_type, aggregate_type, aggregate_id, version, payload, occurred_at,
                             ordering_key, shard, state, published_at)
SELECT gen_random_uuid(), 't', 'parcel.sent', 'parcel', n, 1, decode(repeat('7b', 1000), 'hex'), now(),
       n, 1, 'SENT', now() - n * interval '1 second'
  FROM generate_series(1, 25000) n
"""


@pytest.fixture
async def own_office(fresh_postgresql_url: str) -> AsyncIterator[Office]:
    """Nobody has gathered statistics there."""
    async with opened(open_store(fresh_postgresql_url)) as office:
        yield office


@pytest.mark.parametrize("statistics", ["none", "old", "current"])
async def test_a_page_walks_an_index_and_sorts_no_more_than_itself_whatever_the_planner_knows(
    own_office: Office, statistics: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without statistics it takes a large table for a small one, which it would read and sort as a whole."""
    store, outbox = own_office.store, own_office.table
    async with store.transaction() as connection:
        await connection.exec_driver_sql("ALTER TABLE postroad_outbox SET (autovacuum_enabled = off)")
        if statistics == "old":
            await connection.exec_driver_sql("ANALYZE postroad_outbox")
        await connection.exec_driver_sql(SENT_OFTEN)
        if statistics == "current":
            await connection.exec_driver_sql("ANALYZE postroad_outbox")
    asked: list[tuple[str, dict[str, Any]]] = []
    execute = store.execute

    async def noted(connection: Any, statement: str, /, outbox: Any = None, **values: Any) -> Any:
        asked.append((statement, values))
        return await execute(connection, statement, outbox, **values)

    deep = store.clock.now() - timedelta(seconds=3_000), uuid4()
    with monkeypatch.context() as patch:
        patch.setattr(store, "execute", noted)
        for wanted in (operations.Filter(), operations.Filter("SENT"), operations.Filter(text="nowhere")):
            for place in (None, deep):
                await operations.search(store, [outbox], wanted, after=place)
    assert {"outbox_sent", "outbox_sent_edge", "outbox_unsent", "outbox_skipped"} <= {name for name, _ in asked}
    for name, values in asked:
        async with store.reading() as connection:
            lines = await explained(own_office, connection, name, outbox, values)
        nodes = [line for line in lines if "cost=" in line]
        assert [one for one in nodes if "Seq Scan" in one or "Bitmap" in one] == [], name
        for place in [place for place, one in enumerate(nodes) if "Sort" in one]:
            # Only of what an index has given, and no more than so much of it.
            assert re.search("Limit|CTE Scan", "".join(nodes[place:])), (name, nodes)
