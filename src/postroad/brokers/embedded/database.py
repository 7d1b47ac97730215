"""The SQLite file (or memory) beneath the embedded broker: one connection, one transaction at a time."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Final, TypeVar

from postroad.clock import Clock
from postroad.errors import BrokerUnavailable, ConfigurationError
from postroad.stores.queries import parse

T = TypeVar("T")
Audience = Callable[[int, int], bool]
"""Whether receivers of this topic and subscription are to look again."""

SQL: Final = parse(resources.files(__package__).joinpath("queries.sql").read_text(encoding="utf-8"))
_SCHEMA: Final = resources.files(__package__).joinpath("schema.sql").read_text(encoding="utf-8")
_SCHEMA_VERSION: Final = 1
_BUSY_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.015
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def everybody(topic: int, subscription: int) -> bool:
    return True


def nobody(topic: int, subscription: int) -> bool:
    return False


def of_topics(topics: Collection[int]) -> Audience:
    return lambda topic, subscription: topic in topics


def of_subscriptions(subscriptions: Collection[int]) -> Audience:
    return lambda topic, subscription: subscription in subscriptions


class Database:
    """In a file, it is used from a thread of its own: waiting for a disk or a lock never stops the loop.

    In memory there is nothing to wait for: work is done in place, which makes a run repeatable.
    """

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self.path = path
        self.clock = clock
        self.listeners: dict[asyncio.Event, tuple[int, int]] = {}
        """With their topic and subscription. Set after a commit, here or in another process, that may have made
        something deliverable there."""
        self._connection: Connection | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "postroad-embedded") if path else None
        self._closed = False

    async def read(self, work: Callable[[sqlite3.Connection, int], T]) -> T:
        return await self._run(lambda connection: work(connection, micros(self.clock.now())))

    async def write(
        self, work: Callable[[sqlite3.Connection, int], T], *, durable: bool = True, wakes: Audience = everybody
    ) -> T:
        """One transaction. The time is read inside it: whoever comes later in the file has a later time."""

        def transact(connection: "Connection") -> T:
            with transaction(connection, durable=durable):
                return work(connection, micros(self.clock.now()))

        result = await self._run(transact)
        self._ring(wakes)
        return result

    def listen(self, listener: asyncio.Event, topic: int, subscription: int) -> None:
        self.listeners[listener] = (topic, subscription)
        if self.path and not self._is_watched():
            self._watcher = asyncio.create_task(self._watch())

    def _is_watched(self) -> bool:
        """By a task of this event loop: one of a loop that has ended watches no more."""
        return self._watcher is not None and self._watcher.get_loop() is asyncio.get_running_loop()

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._watcher and self._is_watched():
            self._watcher.cancel()
            await asyncio.wait((self._watcher,))
        if self._thread is None:
            self._disconnect()
        else:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
            self._thread.shutdown()

    def _ring(self, audience: Audience) -> None:
        for listener, place in self.listeners.items():
            if audience(*place):
                listener.set()

    async def _watch(self) -> None:
        """SQLite tells by a number whether another connection has written."""
        seen = None
        while True:
            await self.clock.sleep(_POLL_SECONDS)
            try:
                version = await self._run(lambda c: c.execute("PRAGMA data_version").fetchone()[0])
            except BrokerUnavailable:
                continue
            if version != seen:
                seen = version
                self._ring(everybody)

    async def _run(self, work: Callable[["Connection"], T]) -> T:
        if self._closed:
            raise BrokerUnavailable("The embedded broker is closed. Connect again.")
        if self._thread is None:
            await asyncio.sleep(0)
            return self._attempt(work)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._attempt, work)

    def _attempt(self, work: Callable[["Connection"], T]) -> T:
        try:
            if self._connection is None:
                self._connection = connect(self.path)
            return work(self._connection)
        except sqlite3.DatabaseError as error:
            raise unavailable(error, self.path) from error

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Connection(sqlite3.Connection):
    durable: bool | None = None
    """Of which kind its last transaction was."""


@contextmanager
def transaction(connection: Connection, *, durable: bool) -> Iterator[None]:
    """IMMEDIATE, because a reader that wants to become a writer fails at once, whatever the timeout.

    Not durable means: a power cut may undo it. That is harmless for hand-outs and verdicts, which then
    repeat; a confirmed message must be on the disk.
    """
    if connection.durable is not durable:
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        connection.durable = durable
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def connect(path: Path | None) -> Connection:
    """A connection with the schema in place."""
    connection = sqlite3.connect(
        path or ":memory:", timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=Connection
    )
    try:
        if path:
            _write_ahead(connection)
        _create_schema(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _write_ahead(connection: sqlite3.Connection) -> None:
    # Several processes may find the new file at once, and the change of mode does not heed the busy timeout.
    pause = 0.01
    for _ in range(int(_BUSY_SECONDS / pause)):
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            time.sleep(pause)
    raise sqlite3.OperationalError("database is locked")


def _create_schema(connection: Connection) -> None:
    if (found := _schema_version(connection)) < _SCHEMA_VERSION:
        with transaction(connection, durable=True):
            found = _schema_version(connection)  # another process may have been faster
            if found < _SCHEMA_VERSION:
                for statement in _SCHEMA.split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
                return
    if found > _SCHEMA_VERSION:
        raise ConfigurationError(
            f"The embedded broker's file has layout {found}, this Postroad knows {_SCHEMA_VERSION}. "
            "Use the Postroad that wrote it, or a new file."
        )


def _schema_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def unavailable(error: sqlite3.DatabaseError, path: Path | None) -> Exception:
    """Disk, lock and file errors become BrokerUnavailable; a broken statement is ours and stays."""
    if type(error) not in (sqlite3.OperationalError, sqlite3.DatabaseError):
        return error
    return BrokerUnavailable(f"The embedded broker {path or 'in memory'} cannot be used: {error}.")


def micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
