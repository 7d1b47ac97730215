"""SQLite without SQLAlchemy in between: a connection to read, and one to write."""

import asyncio
import gc
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from postroad.errors import StoreBusy, StoreError
from postroad.stores import Store, open_store
from postroad.stores.migrations import migrate
from postroad.stores.sqlite import driver, patience
from postroad.stores.tables import DEFAULT_OUTBOX
from tests.support.outbox import until


@pytest.fixture
async def store(sqlite_url: str) -> AsyncIterator[Store]:
    store = open_store(sqlite_url)
    await migrate(store, [DEFAULT_OUTBOX])
    yield store
    await store.aclose()


async def look(store: Store) -> None:
    await store.read("inbox_find", group="g", event_id=uuid4())


async def test_who_holds_the_write_lock_can_read_while_a_change_waits_for_it(store: Store) -> None:
    """Else a handler that looks at a record would wait for the relay's mark, which waits for the handler."""
    async with store.transaction():
        marking = asyncio.create_task(store.change("inbox_prune", older_than=1.0, limit=1))
        async with asyncio.timeout(10):
            await look(store)
        assert not marking.done()
    await marking


async def test_a_commit_is_noticed_after_the_connection_was_replaced(store: Store, sqlite_url: str) -> None:
    wakes: asyncio.Queue[None] = asyncio.Queue()
    watching = asyncio.create_task(store.watch("", lambda: wakes.put_nowait(None)))
    await wakes.get()
    async with asyncio.timeout(20):
        for _ in range(3):
            with pytest.raises(StoreError):
                await store._run(store._reader, "SELECT * FROM nowhere", {})  # type: ignore[attr-defined]
            await wakes.get()
    watching.cancel()
    await asyncio.wait({watching})


async def test_a_change_that_found_the_file_locked_keeps_its_connection(
    sqlite_url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_PATIENCE", 0.0)
    hasty: Any = open_store(sqlite_url)
    prune = {"older_than": 1.0, "limit": 1}
    await hasty.change("inbox_prune", **prune)
    async with store.transaction():
        with pytest.raises(StoreBusy):
            await hasty.change("inbox_prune", **prune)
    await hasty.change("inbox_prune", **prune)
    assert hasty._writer.connected == 1
    await hasty.aclose()


async def test_a_file_that_is_no_database_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Not a database, and longer than the hundred bytes of a header. " * 20)
    store = open_store(f"sqlite:///{tmp_path / 'notes.txt'}")
    with pytest.raises(StoreError, match="file is not a database"):
        await look(store)
    await store.aclose()


async def test_who_finds_a_new_file_waits_for_the_other_that_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sqlite3.connect(tmp_path / "new.db", isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE started (at)")
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(patience.time, "sleep", lambda _: other.in_transaction and other.execute("COMMIT"))
    store = open_store(f"sqlite:///{tmp_path / 'new.db'}")
    await migrate(store, [DEFAULT_OUTBOX])
    await store.aclose()
    other.close()


async def _change(store: Store) -> None:
    await store.change("inbox_prune", older_than=1.0, limit=1)


async def _write(store: Store) -> None:
    async with store.transaction() as connection:
        # What else must wait, for a file that is being recovered, say, still does.
        assert (await connection.exec_driver_sql("PRAGMA busy_timeout")).scalar() == driver._PATIENCE * 1_000


@pytest.mark.parametrize("write", [_change, _write])
async def test_who_waits_for_the_write_lock_asks_again_within_milliseconds_however_long_it_takes(
    store: Store, monkeypatch: pytest.MonkeyPatch, write: Callable[[Store], Awaitable[None]]
) -> None:
    """SQLite's own naps grow to a tenth of a second, in which others take the lock again and again."""
    naps: list[float] = []
    enough, loop = asyncio.Event(), asyncio.get_running_loop()

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 200:
            loop.call_soon_threadsafe(enough.set)

    monkeypatch.setattr(patience.time, "sleep", nap)
    async with store.transaction():
        waiting = asyncio.ensure_future(write(store))
        async with asyncio.timeout(20):
            await enough.wait()
        assert not waiting.done()
    await waiting
    assert max(naps) < 0.01


async def test_who_has_waited_long_enough_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_PATIENCE", 0.0)
    store = open_store(f"sqlite:///{tmp_path / 'busy.db'}")
    await migrate(store, [DEFAULT_OUTBOX])
    async with store.transaction():
        with pytest.raises(StoreBusy):
            await store.change("inbox_prune", older_than=1.0, limit=1)
    await store.aclose()


def test_nobody_waits_for_the_write_lock_after_another_error(monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    monkeypatch.setattr(patience.time, "sleep", naps.append)
    connection = sqlite3.connect(":memory:", timeout=60, factory=patience.PatientConnection, isolation_level=None)
    connection.execute(patience.WRITE)
    with pytest.raises(sqlite3.OperationalError, match="within a transaction"):
        connection.execute(patience.WRITE)
    assert naps == []
    connection.close()


async def test_a_store_that_is_closed_leaves_no_thread_behind(store: Store) -> None:
    before = set(threading.enumerate())
    await look(store)
    await _change(store)
    ours = [thread for thread in threading.enumerate() if thread not in before]
    assert ours
    await store.aclose()
    await until(lambda: not any(thread.is_alive() for thread in ours))


async def test_a_database_in_memory_leaves_no_file_behind() -> None:
    store = open_store("sqlite://")
    await migrate(store, [DEFAULT_OUTBOX])
    folder = store.file.parent  # type: ignore[attr-defined]
    assert folder.exists()
    await store.aclose()
    del store
    gc.collect()
    assert not folder.exists()


async def test_a_connection_that_could_not_be_prepared_is_closed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[sqlite3.Connection] = []

    def fail(connection: sqlite3.Connection, *_: object) -> None:
        opened.append(connection)
        raise sqlite3.OperationalError("no")

    monkeypatch.setattr(driver, "_prepare", fail)
    with pytest.raises(StoreError):
        await look(store)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")


def test_a_file_is_known_by_all_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.db").touch()
    (tmp_path / "link.db").symlink_to(tmp_path / "shop.db")
    ours = open_store(f"sqlite:///{tmp_path / 'shop.db'}")
    names = (str(tmp_path / "shop.db"), "shop.db", "link.db", "other.db", "")
    assert [ours.is_ours(name) for name in names] == [True, True, True, False, False]
