"""Planted: read models whose table, key or columns are not there; the rebuild that is recommended brings them back."""

import pytest
from sqlalchemy import BigInteger, Column, MetaData, String, Table

from postroad.operations.doctor import Level
from postroad.operations.projections import projection_source, rebuild
from tests.contract.doctor.conftest import Open
from tests.support.clinic import Clinic, ParcelSent

pytestmark = pytest.mark.spec("F14")

NAME = "parcel_place"
PLACES = Table(
    NAME,
    MetaData(),
    Column("parcel_id", String(64), primary_key=True),
    Column("seen", BigInteger),
    Column("version", BigInteger, nullable=False),
)


@pytest.fixture
async def clinic(database_url: str, open_road: Open) -> Clinic:
    road = open_road(database_url)

    @road.projection(NAME, PLACES, group="tracking").on(ParcelSent)
    def sent(parcel: ParcelSent) -> dict[str, int]:
        return {"seen": 1}

    clinic = await (await Clinic(road).prepare()).staff()
    async with road.store.transaction() as connection:
        await connection.run_sync(PLACES.create)
    assert await clinic.problems() == {}
    return clinic


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("", f"The table {NAME} of the projection {NAME} is missing"),
        ("parcel_id VARCHAR(64) PRIMARY KEY, seen BIGINT", "has no column version:"),
        ("parcel_id VARCHAR(64) PRIMARY KEY, version BIGINT NOT NULL", "has no column seen:"),
        ("seen BIGINT, version BIGINT NOT NULL", "has no column parcel_id:"),
        ("parcel_id VARCHAR(64), seen BIGINT, version BIGINT NOT NULL", "has no unique key on parcel_id:"),
        (
            "parcel_id VARCHAR(64), seen BIGINT, version BIGINT NOT NULL, UNIQUE (parcel_id, version)",
            "has no unique key on parcel_id:",
        ),
    ],
    ids=["table", "version", "columns", "key column", "key", "another key"],
)
async def test_a_read_model_that_is_not_as_declared_is_a_fault_and_the_cure_mends_it(
    clinic: Clinic, made: str, told: str
) -> None:
    await clinic.run(f"DROP TABLE {NAME}")
    if made:
        await clinic.run(f"CREATE TABLE {NAME} ({made})")
    finding = await clinic.only("projections")
    assert told in finding.cause
    assert finding.level is Level.FAULT
    assert f"postroad projection rebuild {NAME}" in finding.cure + finding.command
    if finding.command.startswith("ALTER TABLE"):
        await clinic.run(finding.command)
    source = projection_source(clinic.road, clinic.road.projections[NAME])
    await rebuild(clinic.road, NAME, source, actor="ann")
    assert await clinic.problems() == {}


@pytest.mark.parametrize("store_kind", ["postgresql"])
async def test_a_key_of_another_name_serves_and_one_of_some_rows_does_not(clinic: Clinic) -> None:
    await clinic.run(f"ALTER TABLE {NAME} DROP CONSTRAINT {NAME}_pkey")
    await clinic.run(f"CREATE UNIQUE INDEX k ON {NAME} (parcel_id) WHERE seen > 0")
    assert "has no unique key" in (await clinic.only("projections")).cause
    await clinic.run("DROP INDEX k")
    await clinic.run(f"CREATE UNIQUE INDEX k ON {NAME} (parcel_id)")
    assert await clinic.problems() == {}
