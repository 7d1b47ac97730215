"""What is settled goes in time, found by its index; what is unsent, or waits for a person, stays."""

import pytest
from sqlalchemy import text

from postroad.operations import skip_event
from postroad.relay import Pruner
from postroad.retry import Backoff
from postroad.stores.tables import OutboxTable
from postroad.testing import FaultyBroker
from postroad.testing.office import LONG_AGO, Office
from tests.support.outbox import APPEND_ONLY


@pytest.mark.parametrize("layout", [None, APPEND_ONLY], ids=["in_row", "append_only"])
async def test_what_was_skipped_goes_like_what_was_sent(office: Office, layout: OutboxTable | None) -> None:
    if layout:
        office = Office(office.store, layout)
    added = {one.message.aggregate_id: one.id for one in await office.post("sent", "skipped", "parked")}
    refusing = FaultyBroker(office.broker, refuse=lambda m: None if m.aggregate_id == "sent" else "no")
    await office.carry(refusing, backoff=Backoff(attempts=1))
    await skip_event(office.store, office.tables, added["skipped"], actor="somebody", reason="a test")
    await office.post("waiting")
    pruner = Pruner(office.store, office.table, retention=3_600.0)
    assert await pruner.run_once() == 0
    await office.run("UPDATE {delivery} SET {published_at} = :then WHERE {published_at} IS NOT NULL", then=LONG_AGO)
    assert await pruner.run_once(lambda: False) == 0
    assert await pruner.run_once() == 2
    assert sorted(await office.states()) == ["FAILED", "NEW"]
    facts = await office.query("SELECT {aggregate_id} AS id FROM {outbox} ORDER BY {aggregate_id}")
    assert [row.id for row in facts] == ["parked", "waiting"]
    office.outbox.close()


@pytest.mark.parametrize("statement", ["prunable", "prunable_skipped"])
async def test_what_is_old_is_looked_up_in_its_index(office: Office, statement: str) -> None:
    """By its time, not by walking through all that is younger."""
    index = "postroad_outbox_" + {"prunable": "sent", "prunable_skipped": "skipped"}[statement]
    told = {
        "postgresql": ("EXPLAIN ", f"Index Scan using {index}", "Index Cond"),
        "sqlite": ("EXPLAIN QUERY PLAN ", f"USING INDEX {index} (published_at<?)"),
        "mysql": ("EXPLAIN ", "postroad_outbox_sent", "range"),
    }
    explain, *expected = told[office.store.dialect]
    async with office.store.transaction() as connection:
        if office.store.dialect == "postgresql":
            await connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
            await connection.exec_driver_sql("SET LOCAL enable_bitmapscan = off")
        sql = explain + office.store.sql(statement, office.table)
        plan = (await connection.execute(text(sql), {"older_than": 3_600.0, "most": 10})).all()
    for part in expected:
        assert part in str(plan)
