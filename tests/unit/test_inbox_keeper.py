"""The thread that keeps leases: there while a lease is held, and gone with the inbox."""

import asyncio
import threading
from uuid import uuid4

import pytest

from postroad.errors import StoreUnavailable
from postroad.inbox import Inbox, keeper
from postroad.inbox.record import Lease
from postroad.stores import open_store


def keepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "postroad-lease-keeper"]


def inbox_with_keeper(url: str) -> Inbox:
    """On a store whose handlers do not keep out all other writers."""
    store = open_store(url)
    store.one_writer = False
    return Inbox(store)


async def at_work() -> int:
    """Renewals under way in the loop that runs this."""
    for _ in range(5):  # a cancellation takes a turn or two to arrive
        await asyncio.sleep(0)
    return len(asyncio.all_tasks()) - 1


async def test_a_renewal_lasts_as_long_as_its_lease_is_held(sqlite_url: str) -> None:
    inbox = inbox_with_keeper(sqlite_url)
    with inbox._keeper.hold(Lease("packers", uuid4(), 1), 600.0):
        loop = inbox._keeper._loop
        assert loop is not None
        assert await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(at_work(), loop)) == 1
        with inbox._keeper.hold(Lease("packers", uuid4(), 1), 600.0):
            assert len(keepers()) == 1
    assert await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(at_work(), loop)) == 0
    await inbox.aclose()


async def test_the_thread_ends_with_the_inbox(sqlite_url: str) -> None:
    inbox = inbox_with_keeper(sqlite_url)
    with inbox._keeper.hold(Lease("packers", uuid4(), 1), 600.0):
        assert [thread.daemon for thread in keepers()] == [True]
        await inbox.aclose()
    assert keepers() == []
    await inbox.aclose()


async def test_where_handlers_are_the_only_writers_there_is_no_thread(sqlite_url: str) -> None:
    inbox = Inbox(open_store(sqlite_url))
    with inbox._keeper.hold(Lease("packers", uuid4(), 1), 600.0):
        assert keepers() == []
    await inbox.aclose()


async def test_a_lease_is_renewed_again_and_again_until_it_is_lost(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = inbox_with_keeper(sqlite_url)
    answers = iter([True, StoreUnavailable("gone for a moment"), True, False])

    async def renew(*_: object) -> bool:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(keeper, "renew", renew)
    async with asyncio.timeout(20):
        await inbox._keeper._keep(Lease("packers", uuid4(), 1), 0.003)
    assert next(answers, None) is None
    await inbox._keeper._stop()
