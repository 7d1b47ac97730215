"""The schema: created once, by whoever comes first, the same by hand; what older code left is carried on."""

import asyncio
import hashlib
import os
import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from sqlalchemy import event, inspect

from postroad.errors import ConfigurationError, SchemaMissing
from postroad.operations import pause_group, pauses, resume_group
from postroad.stores import Store, open_store
from postroad.stores.migrations import all_migrations, migrate, pending, require_current, script
from postroad.stores.tables import DEFAULT_OUTBOX, OutboxTable
from postroad.testing import FaultyBroker
from postroad.testing.office import Office
from tests.support.blueprint import blueprint
from tests.support.components import missing
from tests.support.genesis import StartSession, genesis

TABLES = (DEFAULT_OUTBOX, OutboxTable("postroad_facts", append_only=True))
FIRST = Path(__file__).parent / "first"
"""Dumps of the first published schema with events in every state, for each database's own console."""
PUBLISHED = Path(__file__).with_name("published.txt")
"""A checksum of every migration that somebody may have run."""
STORES = Path(__file__).parents[2] / "src/postroad/stores"


@pytest.fixture
async def store(database_url: str):
    store = open_store(database_url)
    yield store
    await store.aclose()


async def test_migrating_twice_does_nothing_the_second_time(store: Store) -> None:
    done = await migrate(store, TABLES)
    assert str(done[0]) == "0001_core"
    assert await migrate(store, TABLES) == []
    assert await pending(store, TABLES) == []
    await require_current(store, TABLES)


async def test_a_further_outbox_needs_only_its_own_migrations(store: Store) -> None:
    await migrate(store, TABLES[:1])
    assert {migration.target for migration in await migrate(store, TABLES)} == {"postroad_facts"}


async def test_what_is_missing_is_told_with_the_command_that_helps(store: Store) -> None:
    count = len(all_migrations(store, TABLES))
    with pytest.raises(
        SchemaMissing, match=rf"lacks {count} migrations \(first: 0001_core\)\. Run: postroad db migrate"
    ):
        await require_current(store, TABLES)
    await migrate(store, TABLES)
    further = (*TABLES, OutboxTable("third"))
    with pytest.raises(SchemaMissing, match=r"\(first: 0002_outbox_in_row \(third\)\)"):
        await require_current(store, further)


async def test_two_processes_may_migrate_at_once(store: Store, database_url: str) -> None:
    others = [open_store(database_url) for _ in range(3)]
    done = await asyncio.gather(*(migrate(other, TABLES) for other in others))
    assert sorted(map(bool, done)) == [False, False, True]
    for other in others:
        await other.aclose()


async def test_a_process_that_has_migrated_and_runs_on_holds_nobody_up(store: Store, database_url: str) -> None:
    await migrate(store, TABLES)
    other = open_store(database_url)
    async with asyncio.timeout(5):
        assert await migrate(other, TABLES) == []
    await other.aclose()


class PowerCut(Exception):
    pass


async def test_a_migration_that_was_cut_off_after_any_of_its_statements_is_resumed(
    store: Store, store_kind: str, database_url: str
) -> None:
    """Each run gets one change further and dies right after it, before it could note how far it came."""
    engine = store.engine.sync_engine
    runs, before = 0, None
    reached: set[str] = set()
    while True:

        def cut(connection: object, cursor: object, statement: str, *_: object) -> None:
            if re.match(r"(--.*\n)*(CREATE|ALTER)", statement) and statement not in reached:
                reached.add(statement)
                raise PowerCut

        event.listen(engine, "after_cursor_execute", cut)
        try:
            await migrate(store, TABLES)
            break
        except PowerCut:
            runs += 1
        finally:
            event.remove(engine, "after_cursor_execute", cut)
        if store_kind != "mariadb":
            # Nothing of it was kept: the schema changes with its transaction.
            assert await blueprint(store) == []
            await migrate(store, TABLES)
            break
        after = await everything(store)
        assert after != before
        before = after
    assert runs > (20 if store_kind == "mariadb" else 0)
    assert await pending(store, TABLES) == []
    async with store.reading() as connection:
        names = {row.name for row in (await store.execute(connection, "migrations_applied")).rows}
    assert not any(name.startswith("begun") for name in names)
    for table in TABLES:
        office = Office(store, table)
        await office.post("a", "a")
        await office.carry()
        assert len(office.broker.sent) == 2
        office.outbox.close()


async def everything(store: Store) -> object:
    """Also the rows that a migration writes."""
    async with store.reading() as connection:
        rows = await connection.exec_driver_sql("SELECT name, target FROM postroad_migration ORDER BY 1, 2")
        return await blueprint(store), rows.fetchall()


async def test_a_table_of_somebody_else_is_not_taken_for_a_migration_cut_off(store: Store) -> None:
    async with store.transaction() as connection:
        await connection.exec_driver_sql("CREATE TABLE postroad_outbox (id INTEGER)")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="postroad db adopt postroad_outbox"):
            await migrate(store, TABLES)


@pytest.mark.parametrize("store_kind", ["sqlite", "postgresql", "mariadb"])
async def test_the_script_pasted_into_the_console_makes_the_same_schema(
    store: Store, store_kind: str, database_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    text = script(store, all_migrations(store, TABLES))
    into_console(store_kind, database_url, text)
    assert await pending(store, TABLES) == []
    by_hand = await blueprint(store)
    office = Office(store, *TABLES)
    await office.post("a", "a")
    await office.carry()
    assert office.broker.versions("a") == [1, 2]
    office.outbox.close()
    await drop_everything(store, store_kind)
    await migrate(store, TABLES)
    assert await blueprint(store) == by_hand
    assert script(store, []) == ""


async def drop_everything(store: Store, kind: str) -> None:
    async with store.transaction() as connection:
        if kind == "postgresql":
            await connection.exec_driver_sql("DROP SCHEMA public CASCADE")
            await connection.exec_driver_sql("CREATE SCHEMA public")
            return
        for table in await connection.run_sync(lambda sync: inspect(sync).get_table_names()):
            await connection.exec_driver_sql(f"DROP TABLE {table}")
        for table in ("postroad_outbox", "postroad_facts"):
            if kind == "sqlite":
                await connection.exec_driver_sql(f"DROP VIEW {table}_add")
            else:
                for routine in ("add", "due", "next"):
                    await connection.exec_driver_sql(f"DROP PROCEDURE {table}_{routine}")


def into_console(kind: str, url: str, text: str) -> None:
    if kind == "sqlite":
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(text)
        return
    parts = urlsplit(url)
    command = {
        "postgresql": ["psql", "--quiet", "--set", "ON_ERROR_STOP=1", url],
        "mariadb": [
            "mariadb", f"--host={parts.hostname}", f"--port={parts.port}", f"--user={parts.username}",
            f"--password={parts.password or ''}", "--default-character-set=utf8mb4", parts.path[1:],
        ],
    }[kind]  # fmt: skip
    if shutil.which(command[0]) is None:
        missing(command[0], "it is not installed")
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False, env=os.environ)
    assert (done.returncode, done.stderr) == (0, "")


async def test_events_of_the_first_schema_are_carried_by_the_current_code(
    store: Store, store_kind: str, database_url: str
) -> None:
    """In each outbox: sent, new, waiting (its time has come), parked, and one behind the parked."""
    into_console(store_kind, database_url, (FIRST / f"{store_kind}.sql").read_text(encoding="utf-8"))
    await migrate(store, TABLES)
    await require_current(store, TABLES)
    for table in TABLES:
        office = Office(store, table)
        assert await office.states() == ["SENT", "NEW", "RETRY", "NEW", "FAILED", "NEW"]
        await office.carry(FaultyBroker(office.broker))
        # Both outboxes count one history of each aggregate: 1 and 2 are in the first, 3 and 4 in the second.
        past = 0 if table is TABLES[0] else 2
        assert office.broker.first_arrivals() == {
            "parcel/moving": [past + 2],
            "parcel/waiting": [past + 1, past + 2],
        }
        assert office.broker.sent[0].headers == {"kept": "yes"}
        await office.post("moving")
        await office.carry()
        assert office.broker.versions("moving") == [past + 2, 5 if table is TABLES[0] else 6]
        office.outbox.close()


async def test_an_upgraded_schema_is_the_same_as_a_new_one(store: Store, store_kind: str, database_url: str) -> None:
    into_console(store_kind, database_url, (FIRST / f"{store_kind}.sql").read_text(encoding="utf-8"))
    await migrate(store, TABLES)
    upgraded = await blueprint(store)
    await drop_everything(store, store_kind)
    assert await blueprint(store) == []
    await migrate(store, TABLES)
    assert await blueprint(store) == upgraded


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql", "mysql"])
def test_published_migrations_do_not_change(dialect: str) -> None:
    """As they run, with the names filled in: whoever has run them would never get the change."""
    published = dict(line.split(maxsplit=1)[::-1] for line in PUBLISHED.read_text(encoding="utf-8").splitlines())
    store = open_store(f"{dialect}://nowhere/shop" if dialect != "sqlite" else "sqlite:///nowhere")
    for migration in all_migrations(store, TABLES):
        title = f"{dialect} {migration}"
        text = "\n-- next\n".join(migration.statements)
        line = f"{hashlib.sha256(text.encode()).hexdigest()} {title}"
        assert title in published, f"A new migration: add this line to {PUBLISHED.name} when it is done:\n{line}"
        assert line == f"{published[title]} {title}", (
            f"{title} is published, and was changed: databases that have it will never get the change. "
            "Take the change back, and write a new migration instead."
        )


def test_no_published_migration_has_gone() -> None:
    files = {f"{file.parts[-3]} {file.stem}" for file in STORES.glob("*/migrations/*.sql")}
    for line in PUBLISHED.read_text(encoding="utf-8").splitlines():
        _, dialect, name, *_ = line.split()
        assert f"{dialect} {name}" in files, f"{dialect} {name} is published: databases that lack it still need it."


async def test_commands_run_in_a_database_of_the_first_schema(
    store: Store, store_kind: str, database_url: str, tmp_path: Path
) -> None:
    into_console(store_kind, database_url, (FIRST / f"{store_kind}.sql").read_text(encoding="utf-8"))
    async with genesis(database_url, f"embedded:{tmp_path / 'broker.db'}") as road:
        await road.migrate()
        (started,) = await road.execute(StartSession("s-1"))
        assert [one.id for one in await road.events.all()] == [started.id]


async def test_the_schema_before_pauses_is_told_and_brought_up_to_date(store: Store) -> None:
    await migrate(store, TABLES)
    async with store.transaction() as connection:
        await connection.exec_driver_sql("DROP TABLE postroad_pause")
        await connection.exec_driver_sql("DELETE FROM postroad_migration WHERE name = '0008_pauses'")
    with pytest.raises(SchemaMissing, match=r"lacks 1 migration \(first: 0008_pauses\)\. Run: postroad db migrate"):
        await require_current(store, TABLES)
    with pytest.raises(SchemaMissing, match="Run: postroad db migrate"):
        await pauses(store)
    assert [one.name for one in await migrate(store, TABLES)] == ["0008_pauses"]
    await pause_group(store, ["receipts"], "receipts", actor="ann")
    assert [(one.kind, one.name, one.actor) for one in await pauses(store)] == [("group", "receipts", "ann")]
    await resume_group(store, "receipts", actor="ann")
    assert await pauses(store) == []


def test_migrations_are_numbered_without_a_gap() -> None:
    """Together: what one store needs, another may not."""
    numbers = {int(re.match(r"\d{4}", file.name)[0]) for file in STORES.glob("*/migrations/*.sql")}
    assert numbers == set(range(1, max(numbers) + 1))
