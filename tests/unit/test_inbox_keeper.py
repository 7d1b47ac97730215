"""The thread that keeps leases: there while a lease is held, and gone with the inbox."""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest

from postroad.errors import StoreUnavailable
from postroad.inbox import Inbox, keeper
from postroad.inbox.record import Lease
from postroad.stores import open_store
from postroad.stores.base import Store

TTL = 0.003


def keepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "postroad-lease-keeper"]


def inbox_with_keeper(url: str) -> Inbox:
    """On a store whose handlers do not keep out all other writers."""
    store = open_store(url)
    store.one_writer = False
    return Inbox(store)


class Renewals:
    """In place of the database: which leases were renewed, and who waits for the next."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of: Counter[int] = Counter()
        self.answer: Callable[[Lease], Awaitable[bool]] = self._yes
        self._changed = threading.Condition()
        monkeypatch.setattr(keeper, "renew", self._renew)

    async def wait_for(self, lease: Lease, times: int) -> None:
        """So many more from now on."""
        wanted = self.of[lease.epoch] + times

        def wait() -> None:
            with self._changed:
                assert self._changed.wait_for(lambda: self.of[lease.epoch] >= wanted, timeout=20)

        await asyncio.to_thread(wait)

    async def _renew(self, store: Store, lease: Lease, ttl: float) -> bool:
        with self._changed:
            self.of[lease.epoch] += 1
            self._changed.notify_all()
        return await self.answer(lease)

    async def _yes(self, lease: Lease) -> bool:
        return True


def lease(number: int) -> Lease:
    return Lease("packers", uuid4(), number)


async def test_a_lease_is_renewed_for_as_long_as_it_is_held(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox, renewals = inbox_with_keeper(sqlite_url), Renewals(monkeypatch)
    short, long = lease(1), lease(2)
    with inbox._keeper.hold(long, TTL):
        with inbox._keeper.hold(short, TTL):
            assert len(keepers()) == 1
            await renewals.wait_for(short, 2)
        await renewals.wait_for(long, 2)  # one of them may have begun before
        then = renewals.of[short.epoch]
        await renewals.wait_for(long, 2)
        assert renewals.of[short.epoch] == then
    await inbox.aclose()


async def test_each_lease_is_renewed_within_its_own_time(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox, renewals = inbox_with_keeper(sqlite_url), Renewals(monkeypatch)
    with inbox._keeper.hold(lease(1), 600.0), inbox._keeper.hold(short := lease(2), TTL):
        await renewals.wait_for(short, 3)
    assert renewals.of[1] == 0
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
    inbox, renewals = inbox_with_keeper(sqlite_url), Renewals(monkeypatch)
    answers = iter([True, StoreUnavailable("gone for a moment"), True, False])

    async def answer(asked: Lease) -> bool:
        answer = next(answers) if asked is lost else True
        if isinstance(answer, Exception):
            raise answer
        return answer

    renewals.answer, lost = answer, lease(1)
    with inbox._keeper.hold(lost, TTL), inbox._keeper.hold(other := lease(2), TTL):
        await renewals.wait_for(lost, 4)
        await renewals.wait_for(other, 3)
    assert renewals.of[lost.epoch] == 4
    await inbox.aclose()


async def test_a_renewal_that_still_waits_ends_with_the_hold(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later on, it would lock again what its holder has released."""
    inbox, renewals, ended = inbox_with_keeper(sqlite_url), Renewals(monkeypatch), threading.Event()

    async def answer(asked: Lease) -> bool:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return True

    renewals.answer = answer
    with inbox._keeper.hold(held := lease(1), TTL):
        await renewals.wait_for(held, 1)
    assert await asyncio.to_thread(ended.wait, 20)
    await inbox.aclose()


async def test_a_renewal_that_waits_holds_up_no_other(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox, renewals = inbox_with_keeper(sqlite_url), Renewals(monkeypatch)

    async def answer(asked: Lease) -> bool:
        if asked is stuck:
            await asyncio.Event().wait()
        return True

    renewals.answer, stuck = answer, lease(1)
    with inbox._keeper.hold(stuck, TTL), inbox._keeper.hold(other := lease(2), TTL):
        await renewals.wait_for(other, 3)
    assert renewals.of[stuck.epoch] == 1
    await inbox.aclose()
