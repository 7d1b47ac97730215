"""Every store passes the contract, and all of them speak through the same statements."""

import asyncio
from importlib import resources
from uuid import UUID

import pytest

from postroad.errors import ConfigurationError, StoreBusy, StoreUnavailable
from postroad.stores import STORES, open_store, queries
from postroad.testing.faulty_store import FaultyStore
from postroad.testing.office import Office
from postroad.testing.store_contract import StoreContract


class TestStores(StoreContract):
    pass


@pytest.mark.parametrize("dialect", STORES)
def test_every_store_has_the_same_statements_with_the_same_parameters(dialect: str) -> None:
    def told(dialect: str) -> dict[str, set[str]]:
        return {name: set(queries.parameters(sql)) for name, sql in queries.load(dialect).items()}

    assert told(dialect) == told("postgresql")


@pytest.mark.parametrize("dialect", STORES)
def test_a_statement_that_serves_all_stores_is_written_once(dialect: str) -> None:
    shared = resources.files("postroad.stores").joinpath("shared")
    common = {name for file in shared.iterdir() for name in queries.parse(file.read_text(encoding="utf-8"))}
    own: set[str] = set()
    for file in resources.files("postroad.stores").joinpath(dialect).iterdir():
        if file.name.endswith(".sql"):
            own |= set(queries.parse(file.read_text(encoding="utf-8")))
    assert common
    assert own
    assert not common & own


def test_an_address_shows_neither_user_nor_password() -> None:
    for scheme in ("postgresql", "mysql"):
        store = open_store(f"{scheme}://someone:secret@host:1234/name?option=hidden")
        assert store.address == f"{scheme}://host:1234/name"


@pytest.mark.parametrize(
    ("url", "told"),
    [("oracle://x/y", "No store for 'oracle'"), ("nonsense", "The database URL cannot be read")],
)
def test_a_url_without_a_store_is_refused(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        open_store(url)


@pytest.mark.parametrize("store_kind", ["postgresql", "mariadb"])
def test_a_database_that_is_away_is_unavailable(store_kind: str) -> None:
    async def ask() -> None:
        store = open_store(f"{store_kind}://nobody@127.0.0.1:1/nothing")
        try:
            async with store.reading() as connection:
                await store.execute(connection, "migrations_applied")
        finally:
            await store.aclose()

    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1/nothing cannot be reached"):
        asyncio.run(ask())


def test_parameters_are_restyled_for_each_driver() -> None:
    sql = "SELECT ':no', :a, x LIKE '%', :b, :a -- :neither"
    assert queries.parameters(sql) == ("a", "b")
    assert queries.restyle(sql, "pyformat").startswith("SELECT ':no', %(a)s, x LIKE '%%', %(b)s, %(a)s")
    assert queries.restyle(sql, "numbered").startswith("SELECT ':no', $1, x LIKE '%', $2, $1")


async def test_a_scripted_store_fails_as_told(office: Office) -> None:
    faulty = FaultyStore(office.store)
    with pytest.raises(ValueError, match="'wrong' is no fate of a statement"):
        faulty.script("mark_sent", "wrong")
    with pytest.raises(KeyError):
        faulty.script("no_such_statement", "busy")
    assert faulty.dialect == office.store.dialect
    faulty.script("worker_gone", "busy", "unavailable", "failed_commit", "lost_commit", "none")
    for expected in (StoreBusy, StoreUnavailable, StoreUnavailable, StoreUnavailable):
        with pytest.raises(expected):
            async with faulty.transaction() as connection:
                await faulty.execute(connection, "worker_gone", id=UUID(int=1))
    async with faulty.transaction() as connection:
        assert (await faulty.execute(connection, "worker_gone", id=UUID(int=1))).rowcount == 0
