"""Planted: migrations, tables, routines, unique keys and indexes that are missing, each in turn."""

import re
from dataclasses import replace

import pytest
from sqlalchemy import text

from postroad import OutboxTable
from postroad.operations.doctor import Level
from postroad.operations.doctor.schema import Key, expected_keys, routines
from postroad.stores import Store
from postroad.stores.adopt import apply_adoption, plan_adoption
from postroad.stores.migrations import all_migrations
from tests.contract.doctor.conftest import Open
from tests.contract.test_adopt import SEEDS, create
from tests.support.clinic import TOPIC, Clinic

pytestmark = pytest.mark.spec("F14")

OUTBOXES = (OutboxTable(), OutboxTable("facts", append_only=True))


async def test_a_database_without_tables_is_a_fault_with_the_command_that_makes_them(
    database_url: str, open_road: Open
) -> None:
    clinic = Clinic(open_road(database_url))
    async with clinic.road.store.transaction() as connection:
        await connection.execute(text("CREATE TABLE theirs (id INTEGER)"))
    (finding,) = await clinic.found("tables")
    assert (finding.level, finding.command) == (Level.FAULT, "postroad db migrate")
    assert (await clinic.problems())["keys"] is Level.UNMADE


async def test_a_migration_that_is_missing_is_a_fault(fresh_clinic: Clinic) -> None:
    await fresh_clinic.run("DELETE FROM postroad_migration WHERE name LIKE '0004%'")
    (finding,) = await fresh_clinic.found("tables")
    assert "0004" in finding.cause


async def test_a_table_or_routine_that_was_dropped_is_missed(fresh_clinic: Clinic) -> None:
    store = fresh_clinic.road.store
    drop = {"sqlite": "DROP VIEW", "postgresql": "DROP FUNCTION", "mysql": "DROP PROCEDURE"}[store.dialect]
    await fresh_clinic.run(f"{drop} postroad_outbox_add")
    causes = [one.cause for one in await fresh_clinic.found("tables")]
    assert causes[0].startswith("The routine postroad_outbox_add is missing")
    await fresh_clinic.run("DROP TABLE postroad_audit")
    causes = [one.cause for one in await fresh_clinic.found("tables")]
    assert causes[0].startswith("The table postroad_audit is missing")


def test_the_migrations_are_read_as_they_are_written(store: Store) -> None:
    """By hand: what the relay and the inbox cannot do without."""
    found = {(key.table, key.columns) for key in expected_keys(store, OUTBOXES)}
    assert {
        ("postroad_inbox", ("consumer_group", "event_id")),
        ("postroad_version", ("aggregate_type", "aggregate_id")),
        ("postroad_shard", ("outbox", "shard")),
        ("postroad_outbox", ("event_id",)),
        ("postroad_outbox", ("aggregate_type", "aggregate_id", "version")),
        ("facts_delivery", ("event_id",)),
    } <= found
    first = "unsent_shard" if store.dialect == "mysql" else "shard"
    assert {(table, (first, "ordering_key", "version")) for table in ("postroad_outbox", "facts_delivery")} <= found
    statements = [text for one in all_migrations(store, OUTBOXES) for text in one.statements]
    indexes = [key for key in expected_keys(store, OUTBOXES) if not key.unique]
    written = {made for text in statements for made in re.findall(r"CREATE INDEX (\S+) ON (\S+)", text)}
    assert len(indexes) == len(written) > 6
    (again,) = [key.columns for key in indexes if key.name == "postroad_inbox_unsettled"]
    assert again[-1] == "processed_at", "as the last migration makes it"
    assert {"postroad_outbox_add", "facts_add"} <= set(routines(store, OUTBOXES))


async def test_each_index_that_is_dropped_is_missed_and_the_cure_brings_it_back(
    database_url: str, open_road: Open
) -> None:
    clinic = await (await Clinic(open_road(database_url, outboxes=OUTBOXES)).prepare()).staff()
    store = clinic.road.store
    for key in [one for one in expected_keys(store, OUTBOXES) if not one.unique]:
        await clinic.run(_drop_index(store, key))
        (finding,) = await clinic.found("keys")
        assert (finding.level, finding.command) == (Level.FAULT, key.statement)
        await clinic.run(finding.command)
    assert await clinic.problems() == {}


async def test_an_inbox_without_its_unique_key_is_a_fault_and_the_cure_mends_it(fresh_clinic: Clinic) -> None:
    store = fresh_clinic.road.store
    if store.dialect == "sqlite":
        async with store.reading() as connection:
            sql = "SELECT sql FROM sqlite_master WHERE name = 'postroad_inbox'"
            made = str((await connection.execute(text(sql))).scalar())
        await fresh_clinic.run("DROP TABLE postroad_inbox")
        await fresh_clinic.run(re.sub(r",\s*PRIMARY KEY \(consumer_group, event_id\)", "", made))
        for key in expected_keys(store, OUTBOXES[:1]):
            if key.table == "postroad_inbox" and not key.unique:
                await fresh_clinic.run(key.statement)
    else:
        drop = "DROP CONSTRAINT postroad_inbox_pkey" if store.dialect == "postgresql" else "DROP PRIMARY KEY"
        await fresh_clinic.run(f"ALTER TABLE postroad_inbox {drop}")
    finding = await fresh_clinic.only("keys")
    assert finding.level is Level.FAULT
    assert "postroad_inbox (consumer_group, event_id)" in finding.cause
    await fresh_clinic.run(finding.command)
    assert await fresh_clinic.problems() == {}


async def test_a_key_that_is_not_unique_or_not_whole_does_not_serve(postgresql_clinic: Clinic) -> None:
    await postgresql_clinic.run("ALTER TABLE postroad_inbox DROP CONSTRAINT postroad_inbox_pkey")
    for text_ in (
        "CREATE INDEX k ON postroad_inbox (consumer_group, event_id)",
        "CREATE UNIQUE INDEX k ON postroad_inbox (consumer_group, event_id) WHERE status = 1",
        "CREATE UNIQUE INDEX k ON postroad_inbox (event_id, consumer_group, version)",
    ):
        await postgresql_clinic.run(text_)
        assert len(await postgresql_clinic.found("keys")) == 1
        await postgresql_clinic.run("DROP INDEX k")


async def test_an_index_that_was_never_finished_does_not_serve(postgresql_clinic: Clinic) -> None:
    """As CREATE INDEX CONCURRENTLY leaves it when it fails."""
    await postgresql_clinic.run(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = CAST('postroad_outbox_unsent' AS regclass)"
    )
    assert "postroad_outbox (shard" in (await postgresql_clinic.only("keys")).cause


@pytest.mark.parametrize(("store_kind", "ddl"), SEEDS.values(), ids=SEEDS)
async def test_an_adopted_outbox_is_in_order_while_its_ids_are_unique(
    database_url: str, ddl: str, open_road: Open
) -> None:
    first = open_road(database_url)
    plan = await plan_adoption(first.store, await create(first.store, ddl))
    await apply_adoption(first.store, plan)
    outbox = replace(plan.outbox, topic=TOPIC)
    clinic = await (await Clinic(open_road(database_url, outboxes=[outbox])).prepare()).staff()
    assert await clinic.problems() == {}
    if clinic.road.store.dialect == "postgresql":
        name = outbox.name.rpartition(".")[2]
        await clinic.run(f"ALTER TABLE {outbox.name} DROP CONSTRAINT {name}_pkey")
        assert "no unique key" in (await clinic.only("keys")).cause


def _drop_index(store: Store, key: Key) -> str:
    return f"DROP INDEX {key.name} ON {key.table}" if store.dialect == "mysql" else f"DROP INDEX {key.name}"
