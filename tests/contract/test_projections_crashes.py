"""A rebuild that fails, dies or is taken over leaves a whole table serving, and the next one begins anew."""

import asyncio
import itertools
from contextlib import AsyncExitStack
from typing import Any

import pytest
from sqlalchemy import event, text

from postroad.errors import LeaseLost, OperationRefused, StoreError
from postroad.projections import Caretaker, state
from postroad.testing.faulty_store import FaultyStore
from tests.support.projections import (
    HISTORY,
    NAME,
    SERVED,
    Catalog,
    Listed,
    saved,
)


async def test_one_that_was_taken_over_cannot_go_on(videos: Catalog) -> None:
    await videos.deliver(*HISTORY)
    taken_over = False

    async def successor() -> None:
        nonlocal taken_over
        if not taken_over:
            taken_over = True
            await videos.lapse()
            assert (await videos.rebuild(Listed(HISTORY)).run()).swapped

    with pytest.raises(LeaseLost, match="was given up"):
        await videos.rebuild(Listed([*HISTORY, saved("zombie", 1)], successor)).run()
    assert await videos.rows() == SERVED
    assert await videos.tables() == set()


async def test_one_that_was_taken_over_cannot_write_into_its_successors_table(videos: Catalog) -> None:
    await videos.deliver(*HISTORY)
    begun, go_on = asyncio.Event(), asyncio.Event()
    successors: list[asyncio.Task[Any]] = []

    async def pause() -> None:
        begun.set()
        await go_on.wait()

    async def taken_over() -> None:
        if not successors:
            await videos.lapse()
            successors.append(asyncio.create_task(videos.rebuild(Listed(HISTORY, pause)).run()))
            await begun.wait()

    with pytest.raises(LeaseLost, match="was given up"):
        await videos.rebuild(Listed([*HISTORY, saved("zombie", 1)], taken_over)).run()
    go_on.set()
    assert (await successors[0]).swapped
    assert await videos.rows() == SERVED


async def test_a_rebuild_that_died_is_given_up_and_the_next_begins_anew(videos: Catalog) -> None:
    await videos.deliver(*HISTORY)

    async def die() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await _die(videos, die)
    assert await videos.tables() == {"shadow"}
    await videos.deliver(saved("d", 1))
    assert await _journal(videos) == 1
    assert await Caretaker(videos.store).run_once() == 0
    await videos.lapse()
    assert await Caretaker(videos.store).run_once() == 1
    assert await _journal(videos) == 0
    await videos.deliver(saved("e", 1))
    assert await _journal(videos) == 0  # nobody needs it
    await videos.rebuild(Listed([*HISTORY, saved("d", 1), saved("e", 1)])).run()
    assert (await videos.rows()).keys() == {"a", "c", "d", "e"}
    assert await videos.tables() == set()


async def _nothing() -> bool:
    return False


async def _die(videos: Catalog, die: Any) -> None:
    """As a process that is killed: nothing is cleaned up."""
    rebuild = videos.rebuild(Listed(HISTORY, die))
    rebuild._give_up = _nothing  # type: ignore[method-assign]
    await rebuild.run()


async def _journal(videos: Catalog) -> int:
    async with videos.store.reading() as connection:
        return int(await connection.scalar(text("SELECT COUNT(*) FROM postroad_projection_journal")))


async def test_what_is_noted_late_is_not_taken_for_read(videos: Catalog) -> None:
    """An earlier position may be committed after a later one has been read."""
    if videos.store.one_writer:
        return  # positions are committed in order
    async with AsyncExitStack() as late:
        connection = await late.enter_async_context(videos.store.transaction())
        await state.note(videos.store, connection, NAME, [saved("late", 1)])
        async with videos.store.transaction() as other:
            await state.note(videos.store, other, NAME, [saved("early", 1)])

        class CommitsBetween(FaultyStore):
            async def execute(self, connection: Any, statement: str, /, outbox: Any = None, **values: Any) -> Any:
                if statement == "journal_forget":
                    await late.aclose()
                return await super().execute(connection, statement, outbox, **values)

        async with videos.store.transaction() as reading:
            found = await state.noted(CommitsBetween(videos.store), reading, NAME, 10)
    async with videos.store.transaction() as reading:
        found += await state.noted(videos.store, reading, NAME, 10)
    assert [message.aggregate_id for message in found] == ["early", "late"]


STATEMENTS = [
    "projection_begin", "projection_lock", "projection_advance", "journal_page", "journal_forget", "projection_end",
    "audit_add",
]  # fmt: skip


@pytest.mark.parametrize("fate", ["unavailable", "lost_commit"])
async def test_a_failure_at_any_statement_of_ours_leaves_a_whole_table_serving(videos: Catalog, fate: str) -> None:
    """As if the process had died there: nothing is cleaned up. The next rebuild begins anew."""
    await videos.deliver(*HISTORY)
    faulty = FaultyStore(videos.store)
    history, numbers, failures = list(HISTORY), itertools.count(), 0

    async def live() -> None:
        if len(history) == begun:  # once: it is noted, and in the source of later rebuilds
            history.append(saved(f"live{next(numbers)}", 1))
            await videos.deliver(history[-1])

    for statement in STATEMENTS:
        for before in itertools.count():
            faulty.script(statement, *["none"] * before, fate)
            begun = len(history)
            rebuild = videos.rebuild(Listed(history, live))
            rebuild._store, rebuild._give_up = faulty, _nothing  # type: ignore[method-assign]
            try:
                await rebuild.run()
                break  # it takes fewer of them
            except StoreError:
                failures += 1
            finally:
                faulty._scripts.clear()
            served = {one.aggregate_id: (one.aggregate_id + " 1", 0, 1) for one in history[len(HISTORY) :]}
            assert await videos.rows() == SERVED | served
            await videos.lapse()
    assert failures > len(STATEMENTS)
    assert await videos.tables() == set()
    assert await _journal(videos) == 0


async def test_a_crash_at_any_statement_of_the_swap_leaves_a_whole_table_serving(videos: Catalog) -> None:
    """Each statement in turn fails that goes to the database while the tables are created, compared and renamed."""
    await videos.deliver(*HISTORY)
    engine = videos.store.engine.sync_engine
    seen, fail_at = 0, 0

    def count(*given: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == fail_at:
            raise RuntimeError("crashed here")

    event.listen(engine, "before_cursor_execute", count)
    crashes = 0
    while True:
        fail_at += 1
        rebuild = videos.rebuild(Listed(HISTORY))
        rebuild._give_up = _nothing  # type: ignore[method-assign]
        seen = 0
        try:
            done = await rebuild.run()
        except (RuntimeError, OperationRefused):
            crashes += 1
        else:
            if done.swapped and seen < fail_at:
                break
        finally:
            seen = -10_000
        assert await videos.rows() == SERVED
        assert await videos.deliver(saved("a", 1, "old")) == [("ack", 1)]
        await videos.lapse()
    event.remove(engine, "before_cursor_execute", count)
    assert crashes > 8
    assert await videos.rows() == SERVED
    assert await videos.tables() == set()
