"""A migrated, empty store of each kind; on it an office (tests/support/outbox.py) or a read model (projections.py)."""

from collections.abc import AsyncIterator, Iterator

import pytest

from postroad.stores import Store, open_store
from postroad.testing.office import Office, opened
from tests.support.outbox import ALL_TABLES, Recycled, emptied, recycled_databases
from tests.support.projections import Catalog, catalog

pytest.register_assert_rewrite("postroad.testing.store_contract")


@pytest.fixture(scope="session")
def recycled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recycled]:
    with recycled_databases(tmp_path_factory.mktemp("databases")) as databases:
        yield databases


@pytest.fixture
def store_url(store_kind: str, recycled: Recycled) -> str:
    return recycled.url(store_kind)


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    store = await emptied(open_store(store_url))
    yield store
    await store.aclose()


@pytest.fixture
async def office(store: Store) -> AsyncIterator[Office]:
    async with opened(store, *ALL_TABLES) as office:
        yield office


@pytest.fixture
async def videos(store: Store, store_url: str) -> AsyncIterator[Catalog]:
    async with catalog(store_url) as made:
        yield made
