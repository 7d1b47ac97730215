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
from tests.support.outbox import Recycled, recycled_databases
from tests.support.rows import COMMANDS, INBOX, OUTBOX, PAST, Row, Table, numbered, told

BOTH = pytest.mark.parametrize("store_kind", ["sqlite", "postgresql"])
EXPLAIN = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN "}
CROWDS: list[tuple[Table, Row, Row]] = [
    (INBOX, {"status": 1}, {"status": 2, "processed_at": None}),
    (COMMANDS, {"status": "COMPLETED"}, {"status": "FAILED"}),
    (OUTBOX, {"state": "SENT", "published_at": PAST}, {"state": "FAILED"}),
]


@pytest.fixture(scope="module")
def recycled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recycled]:
    """Databases of this file's own: a planner remembers what once lay in a table that is empty now."""
    with recycled_databases(tmp_path_factory.mktemp("databases")) as databases:
        yield databases


@pytest.fixture
async def office(store_url: str) -> AsyncIterator[Office]:
    """Few rows of which there is something to do, among thousands of which there is not; nobody changes them."""
    async with opened(store := open_store(store_url)) as office:
        if (await told(store, "check_handled_count", since=PAST))[0].total == 0:
            for table, settled, unsettled in CROWDS:
                await table.put(store, *(numbered(table, n, unsettled) for n in range(20)))
                await table.put(store, *(numbered(table, n, settled) for n in range(10_000, 15_000)))
            if store.dialect == "postgresql":
                async with store.transaction() as connection:
                    await connection.exec_driver_sql("ANALYZE")
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
    return [str(line[-1]) for line in (await connection.execute(explain, bound)).all()]


@BOTH
@pytest.mark.parametrize(("statement", "index"), [("outbox_sent", "sent"), ("outbox_skipped", "skipped")])
async def test_the_newest_of_many_are_found_by_their_index(office: Office, statement: str, index: str) -> None:
    asked = dict.fromkeys(("event_type", "key", "aggregate_type", "aggregate_id", "text", "payload_text"), "")
    now = office.store.clock.now()
    found = await plan(office, statement, office.table, **asked, since=now, at=now, before=uuid4(), limit=5)
    assert f"postroad_outbox_{index}" in str(found)


@BOTH
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


@BOTH
@pytest.mark.parametrize(
    ("statement", "asked", "index"),
    [
        ("command_due", {"types": ["x"], "limit": 5}, "postroad_command_box_(open|status)"),
        ("inbox_due", {"group": "g", "limit": 5}, "postroad_inbox_unsettled"),
        ("inbox_failures", {"refused": 0, "limit": 5}, "postroad_inbox_unsettled"),
        ("inbox_overdue", {"seconds": 5.0, "most": 5}, "postroad_inbox_unsettled"),
        ("check_expired_inbox", {"until": PAST, "limit": 5}, "postroad_inbox_unsettled"),
        ("check_late_inbox", {"until": PAST, "limit": 5}, "postroad_inbox_unsettled"),
        ("unsent_exists", {"written_by": PAST, "due_by": PAST}, "postroad_outbox_(unsent|held)"),
        ("outbox_parked", {"limit": 5}, "postroad_outbox_(unsent|held)"),
        ("outbox_held_count", {"most": 5}, "postroad_outbox_held"),
    ],
)
async def test_what_is_not_settled_is_found_among_all_that_is(
    office: Office, statement: str, asked: dict[str, Any], index: str
) -> None:
    found = await plan(office, statement, office.table, **asked)
    assert re.search(index, str(found))
    assert [one for one in found if re.search(r"^SCAN (\w|postroad_\w+)$|Seq Scan on postroad", one)] == []


@BOTH
async def test_a_backlog_is_counted_as_it_lies_in_its_index(office: Office) -> None:
    """Sorted first, the first thousand of a million would cost as much as the million."""
    found = await plan(office, "outbox_unsent_count", office.table, now=office.store.clock.now(), most=5)
    assert "postroad_outbox_unsent" in str(found)
    assert [one for one in found if re.search("B-TREE FOR .*ORDER BY|Sort Key:.*ordering_key", one)] == []


@BOTH
async def test_what_waits_behind_a_parked_event_is_looked_for_in_its_shard(office: Office) -> None:
    found = await plan(office, "outbox_parked", office.table, limit=5)
    assert any(re.search(r"\(shard ?= ?(\?|d\.shard)\)? AND", one) for one in found), found


@pytest.mark.parametrize("store_kind", ["sqlite"])
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
