"""Sees every commit that SQLAlchemy makes in this thread, on whichever engine, just before and just after it."""

import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import Dialect


class CommitWatch:
    """What `before` raises prevents the commit; what `after` raises hides its success. The connection is closed."""

    def __init__(self, before: Callable[[Connection], None], after: Callable[[Connection], None]) -> None:
        self._before, self._after = before, after
        self._committing: Connection | None = None
        self._thread = threading.get_ident()
        self._dialects: list[Dialect] = []

    def __enter__(self) -> "CommitWatch":
        event.listen(Engine, "commit", self._seen)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        event.remove(Engine, "commit", self._seen)
        for dialect in self._dialects:
            del dialect.do_commit

    def _seen(self, connection: Connection) -> None:
        """The event comes just before the dialect commits, early enough to stand in its way."""
        # Not those of other threads: the renewal of leases, for one, has a thread and a rhythm of its own.
        if threading.get_ident() != self._thread:
            return
        self._committing, dialect = connection, connection.dialect
        if dialect in self._dialects:
            return
        commit = dialect.do_commit

        def watched(dbapi_connection: Any) -> None:
            committing, self._committing = self._committing, None
            if threading.get_ident() != self._thread or committing is None:
                commit(dbapi_connection)
                return
            self._before(committing)
            commit(dbapi_connection)
            self._after(committing)

        dialect.do_commit = watched  # type: ignore[method-assign]
        self._dialects.append(dialect)
