"""A handler that opens a session of its own: a mistake on SQLite when it writes, one's own business elsewhere."""

import asyncio
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from postroad.stores import open_store
from tests.support.consuming import Bench, OrderPlaced, bench, deliver, effect, handlers, placed, subscriber

TOLD = "Take `session` as an argument of the handler and write through it."


async def write_apart(b: Bench, what: str) -> None:
    async with b.store.session() as own, own.begin():
        await effect(own, what)


async def test_a_write_of_its_own_is_refused_at_once_where_there_is_one_writer(
    database_url: str, store_kind: str
) -> None:
    async with bench(database_url) as b:

        async def stubborn(event: OrderPlaced) -> None:
            await write_apart(b, f"{event.order_id} apart")

        message = placed()
        verdicts = await deliver(subscriber(b, handlers(stubborn)), [message])
        if store_kind != "sqlite":
            assert (verdicts, await b.effects()) == ([("ack", 1)], ["1 apart"])
            return
        assert verdicts == [("retry", 60.0, 1)]
        error = (await b.record(message)).error_msg
        assert str(error).startswith("SecondWriter: ")
        assert str(error).endswith(TOLD)
        # Afterwards every connection of the pool writes as before.
        await asyncio.gather(*(write_apart(b, f"later {n}") for n in range(5)))
        assert len(await b.effects()) == 5


async def test_tasks_that_a_handler_waits_for_are_refused_too(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b:

        async def in_parallel(event: OrderPlaced) -> None:
            await asyncio.gather(write_apart(b, "one"), write_apart(b, "two"))

        message = placed()
        assert await deliver(subscriber(b, handlers(in_parallel)), [message]) == [("retry", 60.0, 1)]
        assert str((await b.record(message)).error_msg).endswith(TOLD)


async def test_another_store_on_the_same_file_is_the_same_writer(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b:
        other = Bench(sqlite_url, open_store(sqlite_url))
        message = placed()

        async def elsewhere(event: OrderPlaced) -> None:
            await write_apart(other, "elsewhere")

        assert await deliver(subscriber(b, handlers(elsewhere)), [message]) == [("retry", 60.0, 1)]
        await other.store.aclose()
        assert str((await b.record(message)).error_msg).endswith(TOLD)


async def test_reading_beside_the_handler_is_allowed_everywhere(database_url: str) -> None:
    async with bench(database_url) as b:
        seen: list[list[str]] = []

        async def look_first(event: OrderPlaced, session: AsyncSession) -> None:
            await effect(session, "new")
            seen.append(await b.effects())  # on a connection of its own: what was committed before

        assert await deliver(subscriber(b, handlers(look_first)), [placed()]) == [("ack", 1)]
        assert (seen, await b.effects()) == ([[]], ["new"])


async def test_what_a_handler_leaves_running_may_write_once_it_has_ended(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b:
        ended = asyncio.Event()
        left: list[asyncio.Task[Any]] = []

        async def afterwards() -> None:
            await ended.wait()
            await write_apart(b, "afterwards")

        async def in_a_hurry(event: OrderPlaced, session: AsyncSession) -> None:
            left.append(asyncio.create_task(afterwards()))
            await effect(session, "handled")

        assert await deliver(subscriber(b, handlers(in_a_hurry)), [placed()]) == [("ack", 1)]
        ended.set()
        await left[0]
        assert await b.effects() == ["handled", "afterwards"]
