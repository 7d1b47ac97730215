"""roles.sql on a real PostgreSQL: each service has its schema, and nothing of the other's."""

import psycopg
import pytest

from examples.catalog.reader import Reader
from examples.catalog.writer import Writer
from tests.catalog.conftest import refused
from tests.support.catalog_roles import Services


async def prepared(roles: Services) -> None:
    for service in (Writer(roles.writes, "embedded:unused.db"), Reader(roles.reads, "embedded:unused.db")):
        await service.prepare()
        await service.road.store.aclose()


def tables(roles: Services) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    with psycopg.connect(roles.admin) as admin:
        listed = (
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        )
        for schema, table in admin.execute(listed):
            found.setdefault(schema, set()).add(table)
    return found


@pytest.mark.spec("F1")
async def test_all_tables_of_a_service_are_in_its_own_schema(roles: Services) -> None:
    with psycopg.connect(roles.admin) as admin:  # whatever the database's own habit is
        admin.execute(f"ALTER DATABASE {admin.info.dbname} SET search_path = public")
    await prepared(roles)
    found = tables(roles)
    assert found.keys() == {roles.writer, roles.reader}
    assert {"videos", "postroad_outbox"} <= found[roles.writer]
    assert {"video_search", "postroad_inbox"} <= found[roles.reader]
    assert "videos" not in found[roles.reader]
    assert "video_search" not in found[roles.writer]


@pytest.mark.spec("F1")
async def test_no_foreign_key_leaves_its_schema(roles: Services) -> None:
    await prepared(roles)
    leaving = """
        SELECT conname FROM pg_constraint c JOIN pg_class a ON a.oid = c.conrelid JOIN pg_class b ON b.oid = c.confrelid
         WHERE c.contype = 'f' AND a.relnamespace <> b.relnamespace"""
    with psycopg.connect(roles.admin) as admin:
        assert admin.execute(leaving).fetchall() == []


@pytest.mark.spec("F11")
async def test_neither_service_can_touch_the_other(roles: Services) -> None:
    await prepared(roles)
    for url, other, table in ((roles.reads, roles.writer, "videos"), (roles.writes, roles.reader, "video_search")):
        for its in (table, "postroad_outbox", "postroad_inbox"):
            for act in ("SELECT 1 FROM {}", "DELETE FROM {}", "UPDATE {} SET version = 1", "DROP TABLE {}"):
                assert refused(url, act.format(f"{other}.{its}")), f"{act} {its}"
        assert refused(url, f"CREATE TABLE {other}.mine (id int)")
        assert refused(url, f"INSERT INTO {other}.{table} (video_id) VALUES ('x')")
        assert refused(url, f"SET ROLE {other}")
        assert refused(url, "CREATE TABLE public.mine (id int)")
        assert refused(url, "CREATE SCHEMA mine")
        assert not refused(url, "CREATE TABLE mine (id int)")


@pytest.mark.spec("F11")
async def test_the_script_can_be_run_again(roles: Services) -> None:
    await prepared(roles)
    before = tables(roles)
    with psycopg.connect(roles.admin) as admin:
        admin.execute(f"GRANT USAGE ON SCHEMA {roles.writer} TO PUBLIC")
    assert not refused(roles.reads, f"SELECT to_regclass('{roles.writer}.videos')")
    roles.run_script()
    assert tables(roles) == before
    assert refused(roles.reads, f"SELECT to_regclass('{roles.writer}.videos')")
