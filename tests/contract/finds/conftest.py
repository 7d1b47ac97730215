"""How a search is tried: everything at once, and what is left over each by itself."""

from collections.abc import Awaitable, Callable

import pytest

from postroad.stores import Store
from tests.support.rows import Search, ids

Trial = Callable[[Search], Awaitable[None]]


@pytest.fixture
def trial(store: Store) -> Trial:
    async def tried(search: Search) -> None:
        assert await search.ask(store) == []
        wanted = await search.put(store)
        rows = await search.ask(store)
        if search.ordered:
            assert ids(store, rows) == wanted
        assert sorted(ids(store, rows)) == sorted(wanted)
        assert {getattr(row, "total", len(wanted)) for row in rows} == {len(wanted)}
        if search.limit:
            some = await search.ask(store, **{search.limit: 1})
            assert ids(store, some) == ids(store, rows)[:1]
            assert {getattr(row, "total", len(wanted)) for row in some} == {len(wanted)}

    return tried
