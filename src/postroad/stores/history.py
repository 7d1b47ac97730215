"""Everything of one kind of aggregate that a table still holds, page by page: key by key, and in order."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Final

from postroad.stores.base import Result, Store
from postroad.stores.tables import OutboxTable

_PAGE: Final = 500

Place = tuple[str, int]
"""A row's aggregate and version."""


async def pages(
    store: Store, statement: str, place: Callable[[Any], Place], aggregate: str, outbox: OutboxTable | None = None
) -> AsyncGenerator[Sequence[Any], None]:
    """While one page is worked on, the next is read."""

    def ask(after: Place) -> "asyncio.Task[Result]":
        id, version = after
        page = store.read(statement, outbox, aggregate_type=aggregate, after_id=id, after_version=version, limit=_PAGE)
        return asyncio.create_task(page)

    asked = ask(("", 0))
    try:
        while len(rows := (await asked).rows) == _PAGE:
            asked = ask(place(rows[-1]))
            yield rows
        yield rows
    finally:
        # Whoever wants no more of them does not wait for what was asked ahead.
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
