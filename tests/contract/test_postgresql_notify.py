"""NOTIFY after a commit: heard by whoever listens, and left off while the database is in trouble."""

import asyncio
from contextlib import AsyncExitStack

import psycopg
import pytest

from postroad.stores import open_store
from postroad.testing.office import opened


async def test_a_commit_is_told_to_whoever_listens_in_another_process(fresh_postgresql_url: str) -> None:
    heard: asyncio.Queue[None] = asyncio.Queue()
    async with AsyncExitStack() as ending:
        writer, listener = open_store(fresh_postgresql_url), open_store(fresh_postgresql_url)
        for store in (writer, listener):
            ending.push_async_callback(store.aclose)
        watching = asyncio.create_task(listener.watch("postroad_outbox", lambda: heard.put_nowait(None), "listener"))
        ending.callback(watching.cancel)
        notifier = writer.notifier("postroad_outbox", "writer")
        ending.callback(notifier.close)
        async with asyncio.timeout(20):
            await heard.get()  # it listens
            for _ in range(2):
                await asyncio.to_thread(notifier.notify)
                await heard.get()
        assert heard.empty()


async def test_what_is_written_is_told_to_relays_of_other_processes(fresh_postgresql_url: str) -> None:
    heard: asyncio.Queue[None] = asyncio.Queue()
    async with opened(open_store(fresh_postgresql_url)) as office:
        listener = open_store(fresh_postgresql_url)
        watching = asyncio.create_task(listener.watch("postroad_outbox", lambda: heard.put_nowait(None), "listener"))
        async with asyncio.timeout(20):
            await heard.get()  # it listens
            await office.post("a")
            await heard.get()
        watching.cancel()
        await listener.aclose()


def test_a_database_in_trouble_is_not_told_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[float] = []

    def connect(**_: object) -> None:
        tried.append(now)
        raise psycopg.OperationalError("gone")

    notifier = open_store("postgresql://db/shop").notifier("postroad_outbox", "writer")
    monkeypatch.setattr(psycopg, "connect", connect)
    for now in (100.0, 100.5, 100.9, 101.1):
        monkeypatch.setattr("postroad.stores.postgresql.notify.time.monotonic", lambda now=now: now)
        notifier.notify()
    assert tried == [100.0, 101.1]


def test_a_connection_that_was_lost_is_made_anew(fresh_postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(fresh_postgresql_url)
    notifier = store.notifier("postroad_outbox", "writer")
    with psycopg.connect(fresh_postgresql_url, autocommit=True) as listener:
        listener.execute("LISTEN postroad_outbox")
        notifier.notify()
        listener.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query LIKE 'SELECT pg_notify%'"
        )
        notifier.notify()  # is lost, and shows that the connection is
        monkeypatch.setattr("postroad.stores.postgresql.notify._PAUSE", 0.0)
        notifier._not_before = 0.0
        notifier.notify()
        assert len(list(listener.notifies(timeout=20, stop_after=2))) == 2
    notifier.close()
