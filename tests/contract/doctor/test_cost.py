"""What the doctor asks of large tables is answered from their indexes."""

import pytest
from sqlalchemy import text

from tests.support.clinic import Clinic

PLANNED = {
    "unsent_exists": (dict.fromkeys(("written_by", "due_by"), "2999-01-01 00:00:00"), "postroad_outbox"),
    "unsent_types": ({"most": 10_000}, "postroad_outbox"),
    "outbox_parked": ({"limit": 3}, "postroad_outbox"),
    "inbox_failures": ({"refused": 0, "limit": 1_000}, "postroad_inbox"),
    "inbox_overdue": ({"seconds": 300.0, "most": 10_000}, "postroad_inbox"),
    "inbox_unsettled_types": ({"most": 10_000}, "postroad_inbox"),
}


@pytest.mark.spec("F14")
@pytest.mark.parametrize("statement", PLANNED)
@pytest.mark.parametrize("store_kind", ["sqlite", "postgresql"])
async def test_only_what_is_not_settled_is_looked_at(unstaffed: Clinic, statement: str) -> None:
    store, (values, table) = unstaffed.road.store, PLANNED[statement]
    explain = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN "}[store.dialect]
    async with store.transaction() as connection:
        if store.dialect == "postgresql":
            await connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        sql = text(explain + store.sql(statement, unstaffed.road.outboxes[0]))
        plan = str((await connection.execute(sql, values)).all())
    # Of an outbox that is empty, any index of what is unsent will do.
    indexes = ("unsent", "age", "held") if table == "postroad_outbox" else ("unsettled",)
    assert any(f"{table}_{index}" in plan for index in indexes)
    assert f"SCAN {table}" not in plan


@pytest.mark.spec("F14")
@pytest.mark.parametrize("store_kind", ["mariadb"])
async def test_only_what_is_not_settled_is_read_on_mariadb(unstaffed: Clinic) -> None:
    """Counted, because a plan for small tables tells little."""
    await unstaffed.run(
        "INSERT INTO postroad_outbox (event_id, topic, event_type, aggregate_type, aggregate_id, version, payload, "
        "occurred_at, ordering_key, shard, state, published_at) SELECT UNHEX(MD5(seq)), 't', 'e', 'a', seq, 1, '', "
        "'2020-01-01', seq, 1, 'SENT', '2020-01-01' FROM seq_1_to_5000"
    )
    await unstaffed.run(
        "INSERT INTO postroad_inbox (consumer_group, event_id, event_type, status, processed_at) "
        "SELECT 'delivery', UNHEX(MD5(seq)), 'e', 1, '2020-01-01' FROM seq_1_to_5000"
    )
    await unstaffed.run("ANALYZE TABLE postroad_outbox, postroad_inbox")
    store = unstaffed.road.store
    for statement, (values, _) in PLANNED.items():
        async with store.reading() as connection:
            await connection.exec_driver_sql("FLUSH STATUS")
            await connection.execute(text(store.sql(statement, unstaffed.road.outboxes[0])), values)
            rows = (await connection.execute(text("SHOW SESSION STATUS LIKE 'Handler_read%'"))).all()
        assert sum(int(row[1]) for row in rows) < 100, (statement, rows)
