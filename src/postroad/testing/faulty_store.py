"""A database that fails as real ones do: it is away, it is busy, or its answer to a COMMIT gets lost."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.errors import StoreBusy, StoreError, StoreUnavailable
from postroad.stores.base import Result, Store
from postroad.stores.tables import OutboxTable

STATEMENT_FATES: Final = ("none", "unavailable", "busy", "failed_commit", "lost_commit")
"""unavailable, busy: the statement fails and does nothing. failed_commit: the transaction it is part of is
rolled back in the end. lost_commit: it is committed, but whoever asked for it is told that it failed."""


if TYPE_CHECKING:
    _Wrapped = Store
else:
    # To a type checker it is a store; in truth it asks one for everything, also for what the class defines.
    _Wrapped = object


class FaultyStore(_Wrapped):
    """Wraps a store; whatever is not overridden here is the wrapped store's own."""

    def __init__(self, store: Store, *, trouble: float = 0.0, random: Random | None = None) -> None:
        self.store = store
        self.down = False
        """The outage switch: while True, no transaction begins."""
        self.refused = 0
        """How many did not."""
        self.trouble = trouble
        """How likely, from 0 to 1, a statement meets one of the fates."""
        self._random = random or Random(0)
        self._scripts: dict[str, deque[str]] = {}
        self._commits: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def script(self, statement: str, *fates: str) -> None:
        """What happens to the next runs of a named statement, one after another; then chance rules again."""
        for fate in fates:
            if fate not in STATEMENT_FATES:
                raise ValueError(f"{fate!r} is no fate of a statement; there are {', '.join(STATEMENT_FATES)}")
        self.store.sql(statement, OutboxTable())  # refuses a name that does not exist
        self._scripts.setdefault(statement, deque()).extend(fates)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        self._reach()
        async with self.store.transaction() as connection:
            yield connection
            fate = self._commits.pop(id(connection), "")
            if fate == "failed_commit":
                raise StoreUnavailable("The connection broke before the commit.")
        if fate == "lost_commit":
            raise StoreUnavailable("The connection broke after the commit.")

    read, change = Store.read, Store.change  # through what is overridden here, where the fates can be played

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        self._reach()
        async with self.store.reading() as connection:
            yield connection

    async def execute(
        self, connection: AsyncConnection, statement: str, /, outbox: OutboxTable | None = None, **values: Any
    ) -> Result:
        fate = self._fate(statement)
        if fate in ("unavailable", "busy"):
            raise _error(fate, statement)
        if fate != "none":
            self._commits[id(connection)] = fate
        return await self.store.execute(connection, statement, outbox, **values)

    def _reach(self) -> None:
        if self.down:
            self.refused += 1
            raise StoreUnavailable("The database is away.")

    def _fate(self, statement: str) -> str:
        if self._scripts.get(statement):
            return self._scripts[statement].popleft()
        return self._random.choice(STATEMENT_FATES) if self._random.random() < self.trouble else "none"


def _error(fate: str, statement: str) -> StoreError:
    return StoreBusy(f"{statement} met a deadlock.") if fate == "busy" else StoreUnavailable(f"{statement} broke.")
