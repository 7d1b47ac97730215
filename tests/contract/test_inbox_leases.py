"""A lease outlives its first term while the handler works, whatever the handler does to the event loop."""

import asyncio
import sqlite3
import threading
import time
from contextlib import closing
from datetime import datetime

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from postroad.errors import StoreUnavailable
from postroad.inbox import ConsumeOptions, ConsumeResult, Inbox, Status, keeper
from postroad.message import Message
from postroad.stores import open_store
from tests.support.consuming import GROUP, bench, effect, placed

TTL = 0.3


async def _until_renewed(url: str, message: Message, before: datetime | None) -> bool:
    store = open_store(url)
    inbox = Inbox(store)
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            record = await inbox.find(GROUP, message.id)
            assert record is not None
            if before and record.locked_until and record.locked_until > before:
                return True
            await asyncio.sleep(0.02)
        return False
    finally:
        await store.aclose()


@pytest.mark.spec("T6", "F15")
async def test_a_handler_that_blocks_the_loop_keeps_its_lease(database_url: str, store_kind: str) -> None:
    async with bench(database_url) as b:
        message, renewed = placed(), []

        async def compute(message: Message, session: AsyncSession) -> None:
            await effect(session, "computed")
            record = await b.record(message)
            # The loop stands still from here on; another thread looks at the lease.
            watch = threading.Thread(
                target=lambda: renewed.append(asyncio.run(_until_renewed(database_url, message, record.locked_until)))
            )
            watch.start()
            watch.join()

        if store_kind == "sqlite":
            # The handler is the only writer: its lease can neither end nor be renewed.
            async def compute(message: Message, session: AsyncSession) -> None:
                await effect(session, "computed")
                assert not any(t.name == "postroad-lease-keeper" for t in threading.enumerate())
                renewed.append(True)

        result = await b.inbox.consume(GROUP, message, compute, ConsumeOptions(lock_ttl=TTL))
        assert result == ConsumeResult()
        assert renewed == [True]
        assert await b.effects() == ["computed"]


async def test_on_sqlite_the_handler_is_the_only_writer_from_its_beginning(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b:
        refused = []

        async def handle(message: Message, session: AsyncSession) -> None:
            with closing(sqlite3.connect(str(b.store.url.database), timeout=0)) as other:
                try:
                    other.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError as error:
                    refused.append(str(error))

        await b.inbox.consume(GROUP, placed(), handle)
        assert refused == ["database is locked"]


async def test_renewal_survives_an_outage(fresh_postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(fresh_postgresql_url) as b:
        message, calls, second = placed(), [], threading.Event()
        renew = keeper.renew

        async def shaky(*arguments: object) -> bool:
            calls.append(1)
            if len(calls) == 1:
                raise StoreUnavailable("gone for a moment")
            done = await renew(*arguments)  # type: ignore[arg-type]
            second.set()
            return done

        monkeypatch.setattr(keeper, "renew", shaky)

        async def slow(message: Message, session: AsyncSession) -> None:
            assert await asyncio.to_thread(second.wait, 20)

        await b.inbox.consume(GROUP, message, slow, ConsumeOptions(lock_ttl=TTL))
        assert (await b.record(message)).status is Status.SUCCEEDED


async def test_renewal_ends_with_the_attempt(fresh_postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(fresh_postgresql_url) as b:
        message = placed()
        acquired = await b.inbox.try_acquire(GROUP, message, 30)
        assert acquired.lease is not None

        renewals, renewed = [], threading.Event()

        async def renew(*_: object) -> bool:
            renewals.append(1)
            renewed.set()
            return True

        monkeypatch.setattr(keeper, "renew", renew)

        async def fail(session: AsyncSession) -> None:
            assert await asyncio.to_thread(renewed.wait, 20)
            raise RuntimeError("broken")

        with pytest.raises(RuntimeError):
            await b.inbox.attempt(acquired.lease, fail, 0.03)
        await asyncio.sleep(0.02)
        so_far = len(renewals)
        await asyncio.sleep(0.1)
        assert len(renewals) == so_far


async def test_closing_the_inbox_ends_its_thread(fresh_postgresql_url: str) -> None:
    async with bench(fresh_postgresql_url) as b:
        inbox = Inbox(b.store)

        async def look(message: Message, session: AsyncSession) -> None:
            assert any(thread.name == "postroad-lease-keeper" for thread in threading.enumerate())

        await inbox.consume(GROUP, placed(), look)
        await inbox.aclose()
        assert not any(thread.name == "postroad-lease-keeper" for thread in threading.enumerate())
        await inbox.aclose()
