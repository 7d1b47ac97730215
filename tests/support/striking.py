"""Every statement and every commit of a store, counted; and one of them struck, just before or just after it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from sqlalchemy import Connection

from postroad.stores import Store
from postroad.testing.survival.commits import CommitWatch


class Killed(BaseException):
    """As a process that is gone: nothing of ours may catch it."""


class Strike:
    def __init__(self, at: int | None = None, error: Callable[[], BaseException] = Killed) -> None:
        self._at, self._error = at, error
        self.points: list[str] = []

    def __call__(self, point: str) -> None:
        self.points.append(point)
        if len(self.points) - 1 == self._at:
            raise self._error()

    @contextmanager
    def on(self, store: Store) -> Iterator["Strike"]:
        """Until the block ends."""
        for method in ("execute", "read", "change"):
            setattr(store, method, self._watched(getattr(store, method), 1 if method == "execute" else 0))
        try:
            with CommitWatch(partial(self._commit, "before commit"), partial(self._commit, "after commit")):
                yield self
        finally:
            for method in ("execute", "read", "change"):
                delattr(store, method)

    def _commit(self, point: str, connection: Connection) -> None:
        try:
            self(point)
        except BaseException:
            connection.dialect.do_rollback(connection.connection)  # or the server would go on waiting for the commit
            raise

    def _watched(self, method: Callable[..., Any], place: int) -> Callable[..., Any]:
        async def watched(*arguments: Any, **values: Any) -> Any:
            self(f"before {arguments[place]}")
            result = await method(*arguments, **values)
            self(f"after {arguments[place]}")
            return result

        return watched
