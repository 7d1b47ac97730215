"""Sees the commits of plain driver connections: of those that `add` was given while a run is on."""

import re
import sqlite3
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, Final
from uuid import UUID
from weakref import WeakKeyDictionary

_COMMITTING: Final = {
    "asyncpg": "`async with connection.transaction():`",
    "psycopg": "`with connection.transaction():` or connection.commit()",
    "pymysql": "connection.commit()",
    "sqlite3": "connection.commit() or connection.execute('COMMIT')",
}
"""What is seen of each driver, as a message asks for it."""
_COMMIT: Final = re.compile(rb"(?:\s|--[^\n]*\n|/\*.*?\*/)*(?:COMMIT|END)\b", re.IGNORECASE | re.DOTALL)


class PlainCommits:
    """What `before` raises prevents the commit; what `after` raises hides its success."""

    def __init__(self, before: Callable[[Any], None], after: Callable[[Any], None]) -> None:
        self.blind: dict[UUID, str] = {}
        """Events of which no commit has been seen, and why it could not be disturbed if there was one."""
        self._before, self._after = before, after
        self._given: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        """Each connection, and who was at work when it was given."""
        self._added: WeakKeyDictionary[Any, list[UUID]] = WeakKeyDictionary()
        self._broken: list[Any] = []
        self._watched: set[type] = set()
        self._undo = ExitStack()

    def __enter__(self) -> "PlainCommits":
        # sqlite3's own class takes no changes, so its connections must be ours from the beginning.
        for module in (sqlite3, sqlite3.dbapi2):
            self._replace(module, "connect", _connect_watched)
        return self

    def __exit__(self, *error: object) -> None:
        self._undo.close()

    def add(self, target: object, event_id: UUID, actor: str) -> None:
        """An event was added through it. What SQLAlchemy commits is seen elsewhere."""
        connection: Any = getattr(target, "_con", target)  # a pool of asyncpg hands out proxies
        driver = _driver_of(type(connection))
        if driver is None:
            return
        if driver == "sqlite3" and not isinstance(connection, WatchedConnection):
            self.blind[event_id] = (
                "its connection was not opened by `sqlite3.connect(…)` during the run. Open it in the scenario or the "
                "handler, and by that name: `from sqlite3 import connect` is not noticed."
            )
            return
        self.blind[event_id] = (
            f"its {driver} connection ended the transaction in a way that is not noticed. "
            f"Use {_COMMITTING[driver]} there."
        )
        self._given[connection] = actor
        self._added.setdefault(connection, []).append(event_id)
        if driver == "sqlite3":
            connection.commits = self
        else:
            self._watch(type(connection), driver)

    def abandon(self, is_dead: Callable[[str], bool]) -> None:
        """As the death of its process does it: the connection is closed, and its locks are gone."""
        for connection, actor in list(self._given.items()):
            if is_dead(actor):
                del self._given[connection]
                _close(connection)
        self._broken.clear()

    @contextmanager
    def committing(self, connection: Any) -> Iterator[None]:
        if connection not in self._given:
            yield
            return
        for event_id in self._added.pop(connection, ()):
            self.blind.pop(event_id, None)
        try:
            self._before(connection)
            yield
            self._after(connection)
        except BaseException:
            # Kept until it can be closed in order: whoever opened it may be gone before.
            self._broken.append(connection)
            raise

    def _watch(self, kind: type, driver: str) -> None:
        for base in kind.__mro__:
            if base in self._watched or base.__module__.partition(".")[0] != driver:
                continue
            self._watched.add(base)
            for name, watched in _METHODS[driver].items():
                if name in vars(base):
                    self._replace(base, name, watched)

    def _replace(self, owner: Any, name: str, watched: Callable[..., Any]) -> None:
        original = vars(owner)[name]
        setattr(owner, name, watched(self, original))
        self._undo.callback(setattr, owner, name, original)


def _driver_of(kind: type) -> str | None:
    modules = (base.__module__.partition(".")[0] for base in kind.__mro__)
    return next((module for module in modules if module in _COMMITTING), None)


def _close(connection: Any) -> None:
    match _driver_of(type(connection)):
        case "asyncpg":
            connection.terminate()
        case "psycopg":
            connection.pgconn.finish()
        case "pymysql":
            connection._force_close()
        case _:
            connection.close()


def _commits(sql: object) -> bool:
    text = sql.encode() if isinstance(sql, str) else sql
    return isinstance(text, bytes) and _COMMIT.match(text) is not None


# -- PostgreSQL and MySQL ------------------------------------------------------------------------------


def _plain(commits: PlainCommits, method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that commits, or one that runs any statement."""

    def run(connection: Any, *arguments: Any, **options: Any) -> Any:
        if arguments and not _commits(arguments[0]):
            return method(connection, *arguments, **options)
        with commits.committing(connection):
            return method(connection, *arguments, **options)

    return run


def _generator(commits: PlainCommits, method: Callable[..., Any]) -> Callable[..., Any]:
    def run(connection: Any, command: Any, *arguments: Any, **options: Any) -> Generator[Any, Any, Any]:
        if not _commits(command):
            return (yield from method(connection, command, *arguments, **options))
        with commits.committing(connection):
            return (yield from method(connection, command, *arguments, **options))

    return run


def _coroutine(
    commits: PlainCommits, method: Callable[..., Coroutine[Any, Any, Any]]
) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def run(connection: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        if not _commits(query):
            return await method(connection, query, *arguments, **options)
        with commits.committing(connection):
            return await method(connection, query, *arguments, **options)

    return run


_METHODS: Final[Mapping[str, Mapping[str, Callable[..., Any]]]] = {
    "asyncpg": {"execute": _coroutine},
    # What all of its commits have in common, blocking or not; there is nothing in public that does.
    "psycopg": {"_exec_command": _generator},
    "pymysql": {"commit": _plain, "query": _plain},
}


# -- SQLite --------------------------------------------------------------------------------------------


class WatchedConnection(sqlite3.Connection):
    commits: PlainCommits | None = None

    def commit(self) -> None:
        if self.commits is None or not self.in_transaction:
            super().commit()
            return
        with self.commits.committing(self):
            super().commit()

    # Its own `execute` does not ask for a cursor of ours.
    def execute(self, sql: str, *parameters: Any) -> Any:
        return self.cursor().execute(sql, *parameters)

    def executescript(self, script: str) -> Any:
        return self.cursor().executescript(script)

    def cursor(self, factory: Any = sqlite3.Cursor) -> Any:
        return super().cursor(_watched_cursor(factory) if isinstance(factory, type) else factory)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        if error is None:
            try:
                self.commit()
            except BaseException:
                self.rollback()
                raise
            return False
        return super().__exit__(kind, error, trace)


@cache
def _watched_cursor(factory: type[sqlite3.Cursor]) -> type[sqlite3.Cursor]:
    class WatchedCursor(factory):  # type: ignore[misc,valid-type]
        def execute(self, sql: str, *parameters: Any) -> Any:
            return self._seen(_commits(sql), super().execute, sql, *parameters)

        def executescript(self, script: str) -> Any:
            # It commits what is open, and only then begins.
            return self._seen(True, super().executescript, script)

        def _seen(self, commits: bool, execute: Callable[..., Any], *arguments: Any) -> Any:
            watch = self.connection.commits
            if watch is None or not commits or not self.connection.in_transaction:
                return execute(*arguments)
            with watch.committing(self.connection):
                return execute(*arguments)

    return WatchedCursor


@cache
def _watched_connection(factory: type[sqlite3.Connection]) -> type[sqlite3.Connection]:
    return type(f"Watched{factory.__name__}", (WatchedConnection, factory), {})


def _connect_watched(_: PlainCommits, connect: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*arguments: Any, **options: Any) -> Any:
        factory = options.get("factory", sqlite3.Connection)
        # One with cursors of its own stays as it is. The factory can also be given by its place, as the sixth.
        if len(arguments) < 6 and isinstance(factory, type) and "cursor" not in _overridden(factory):
            plain = factory is sqlite3.Connection
            options["factory"] = WatchedConnection if plain else _watched_connection(factory)
        return connect(*arguments, **options)

    return watched


def _overridden(factory: type) -> set[str]:
    return {name for base in factory.__mro__ if base not in (sqlite3.Connection, object) for name in vars(base)}
