"""Planted: keys and grants that reach out of the service's own schema."""

from uuid import uuid4

import psycopg
import pytest

from postroad.operations.doctor import Level
from tests.contract.doctor.conftest import Open
from tests.support.clinic import Clinic
from tests.support.databases import fresh_mariadb, plain_mariadb_user, plain_postgresql_user

pytestmark = pytest.mark.spec("F1", "F14")

OTHERS = "CREATE SCHEMA billing; CREATE TABLE billing.invoice (id int PRIMARY KEY)"


@pytest.mark.parametrize(
    "key",
    [
        "CREATE TABLE parcel (invoice int REFERENCES billing.invoice)",
        "CREATE TABLE parcel (id int PRIMARY KEY); CREATE TABLE billing.item (parcel int REFERENCES parcel)",
    ],
    ids=["out", "in"],
)
async def test_a_foreign_key_across_schemas_is_a_warning_and_the_cure_drops_it(
    postgresql_clinic: Clinic, fresh_postgresql_url: str, key: str
) -> None:
    with psycopg.connect(fresh_postgresql_url, autocommit=True) as admin:
        admin.execute(OTHERS)
        admin.execute("CREATE TABLE own (id int PRIMARY KEY); CREATE TABLE line (own int REFERENCES own)")
        admin.execute("CREATE SCHEMA tax; CREATE TABLE tax.rate (invoice int REFERENCES billing.invoice)")  # theirs
        assert await postgresql_clinic.problems() == {}
        admin.execute(key)
    finding = await postgresql_clinic.only("foreign keys")
    assert finding.level is Level.WARNING
    await postgresql_clinic.run(finding.command)
    assert await postgresql_clinic.problems() == {}


async def test_a_foreign_key_to_another_database_of_mariadb_is_a_warning(
    fresh_mariadb_url: str, mariadb_url: str, open_road: Open
) -> None:
    clinic = await (await Clinic(open_road(fresh_mariadb_url)).prepare()).staff()
    with fresh_mariadb(mariadb_url) as other:
        name = other.rpartition("/")[2]
        await clinic.run(f"CREATE TABLE {name}.invoice (id INT PRIMARY KEY) ENGINE = InnoDB")
        await clinic.run(
            f"CREATE TABLE parcel (invoice INT, FOREIGN KEY k (invoice) REFERENCES {name}.invoice (id)) ENGINE = InnoDB"
        )
        finding = await clinic.only("foreign keys")
        assert name in finding.cause
        await clinic.run(finding.command)
        assert await clinic.problems() == {}


async def test_a_right_to_write_elsewhere_is_a_warning_and_one_to_read_is_not(
    fresh_postgresql_url: str, open_road: Open
) -> None:
    with plain_postgresql_user(fresh_postgresql_url) as url, psycopg.connect(fresh_postgresql_url) as admin:
        road = open_road(url)
        clinic = await Clinic(road).prepare()
        user = url.partition("//")[2].partition("@")[0]
        for statement in (
            OTHERS,
            f"GRANT USAGE ON SCHEMA billing TO {user}",
            f"GRANT SELECT ON billing.invoice TO {user}",
        ):
            admin.execute(statement)
        admin.commit()
        assert await clinic.found("grants") == []
        admin.execute(f"GRANT UPDATE ON billing.invoice TO {user}")
        admin.commit()
        (finding,) = await clinic.found("grants")
        assert finding.level is Level.WARNING
        assert "billing.invoice" in finding.cause
        admin.execute(finding.command)
        admin.commit()
        assert await clinic.found("grants") == []
        await road.aclose()


async def test_a_right_to_write_to_another_database_of_mariadb_is_a_warning(
    fresh_mariadb_url: str, open_road: Open
) -> None:
    elsewhere = f"elsewhere_{uuid4().hex[:8]}"
    with plain_mariadb_user(fresh_mariadb_url) as (url, admin):
        user = f"{url.partition('//')[2].partition(':')[0]}@'%'"
        road = open_road(url)
        clinic = Clinic(road)
        admin.execute(f"GRANT SELECT ON {elsewhere}.* TO {user}")
        assert await clinic.found("grants") == []
        admin.execute(f"GRANT DELETE ON {elsewhere}.* TO {user}")
        (finding,) = await clinic.found("grants")
        assert f"{elsewhere}.*" in finding.cause
        admin.execute(f"GRANT INSERT, UPDATE ON {elsewhere}.* TO {user}")  # what one does not have cannot be revoked
        admin.execute(finding.command)
        assert await clinic.found("grants") == []
        await road.aclose()
