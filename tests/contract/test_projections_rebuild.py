"""A rebuild makes a second table beside the one that serves, misses nothing that happens meanwhile, and swaps."""

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from sqlalchemy import Column, String, event, text

from postroad.errors import LeaseLost, OperationRefused, StoreError, UnsupportedByBroker
from postroad.projections import BrokerSource, Caretaker, state
from postroad.projections.rebuild import Rebuild
from postroad.stores import Store
from postroad.testing.faulty_store import FaultyStore
from postroad.testing.office import RecordingBroker
from tests.support.projections import (
    GROUP,
    NAME,
    Catalog,
    Listed,
    VideoDeleted,
    VideoSaved,
    VideoShared,
    VideoViewed,
    catalog,
    deleted,
    make_table,
    message,
    saved,
    viewed,
)

HISTORY = [saved("a", 1), saved("b", 1), viewed("a", 2), deleted("b", 2), saved("c", 1)]
SERVED = {"a": ("a 1", 1, 2), "c": ("c 1", 0, 1)}


@pytest.fixture
async def videos(store: Store, store_url: str) -> AsyncIterator[Catalog]:
    async with catalog(store_url) as made:
        yield made


async def broken(videos: Catalog) -> None:
    """Something went wrong with the table: rows lost, changed, set back."""
    await videos.run(f"DELETE FROM {NAME} WHERE video_id = 'c'")
    await videos.run(f"UPDATE {NAME} SET title = 'nonsense' WHERE video_id = 'a'")


@pytest.mark.spec("F9")
async def test_a_rebuild_mends_the_table_and_tells_what_it_changed(videos: Catalog) -> None:
    await videos.deliver(*HISTORY)
    await broken(videos)
    done = await videos.rebuild(Listed(HISTORY)).run()
    assert await videos.rows() == SERVED
    assert (done.generation, done.events, done.swapped) == (1, 5, True)
    assert (done.differences.missing, done.differences.differing, done.differences.keys["missing"]) == (1, 1, ["c"])
    assert await videos.tables() == set()
    again = await videos.rebuild(Listed(HISTORY)).run()
    assert (again.generation, bool(again.differences)) == (2, False)


@pytest.mark.spec("F9")
async def test_the_inbox_that_has_seen_it_all_does_not_keep_a_rebuild_from_the_brokers_events(
    videos: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with videos.road.running():
        await videos.write(VideoSaved("a", "one"), VideoSaved("b", "two"), VideoShared("a"))
        await videos.write(VideoViewed("b"), VideoDeleted("a"))
        await videos.road.drain()
    assert videos.effects == ["a"]
    handled = len(await videos.road.inbox.list(GROUP))
    await videos.run(f"DELETE FROM {NAME}")
    source = BrokerSource(videos.road.broker, videos.videos.topics, NAME, clock=videos.road.clock)
    done = await videos.rebuild(source).run()
    assert await videos.rows() == {"b": ("two", 1, 2)}
    assert done.events == 5
    # Effects off: nobody else's handler ran, nothing was written, and the group's own place is where it was.
    assert videos.effects == ["a"]
    assert len(await videos.road.inbox.list(GROUP)) == handled
    assert [s.name for s in await videos.road.broker.subscriptions()] == [f"catalog.video.events.{GROUP}"]


@pytest.mark.spec("F9")
async def test_a_rebuild_reads_the_owners_outbox(videos: Catalog) -> None:
    await videos.write(*(VideoSaved(f"v{n}", "t") for n in range(1_100)))
    await videos.write(VideoViewed("v7"), VideoDeleted("v8"), VideoShared("v9"))
    source = videos.outbox()
    assert await source.size() == 1_103
    done = await videos.rebuild(source).run()
    assert done.events == 1_103
    rows = await videos.rows()
    assert len(rows) == 1_099
    assert rows["v7"] == ("t", 1, 2)
    assert "v8" not in rows


@pytest.mark.spec("F9")
async def test_what_happens_while_it_runs_is_in_both_tables(videos: Catalog) -> None:
    """Events are applied to the live table at every moment of the rebuild, also to rows the source has passed."""
    await videos.deliver(*HISTORY)
    steps = iter(range(1, 100))

    async def live() -> None:
        step = next(steps)
        await videos.deliver(viewed("a", step + 2), saved("d", step))

    done = await videos.rebuild(Listed(HISTORY, live)).run()
    assert await videos.rows() == SERVED | {"a": ("a 1", 6, 7), "d": ("d 5", 0, 5)}
    assert not done.differences


@pytest.mark.spec("F9")
async def test_nothing_is_lost_between_catching_up_and_the_swap_under_live_writes(videos: Catalog) -> None:
    """Workers write without a pause, three rebuilds go on: in the end each row is at its last version."""
    others = [Catalog(str(videos.road.database_url)) for _ in range(2)]
    stop = asyncio.Event()
    history, reached = [], {"x": 0, "y": 0, "z": 0}

    async def work(worker: Catalog, video: str) -> None:
        while not stop.is_set():
            reached[video] += 1
            one = saved(video, 1, "t") if reached[video] == 1 else viewed(video, reached[video])
            history.append(one)
            assert await worker.deliver(one) == [("ack", one.version)]

    async def read() -> None:
        """Never half-built: once there, a row is there in every moment."""
        seen: dict[str, Any] = {}
        while not stop.is_set():
            rows = await videos.rows()
            assert seen.keys() <= rows.keys()
            assert all(rows[video][2] >= seen[video][2] for video in seen)
            seen = rows

    workers = [asyncio.create_task(work(w, v)) for w, v in zip([videos, *others], "xyz", strict=True)]
    reader = asyncio.create_task(read())
    try:
        for _ in range(3):
            done = await videos.rebuild(Listed(history)).run()
            assert done.swapped
            assert not done.differences.lost
    finally:
        stop.set()
        await asyncio.gather(*workers, reader)
        for other in others:
            await other.road.aclose()
    assert {video: row[1:] for video, row in (await videos.rows()).items()} == {
        video: (version - 1, version) for video, version in reached.items()
    }
    assert min(reached.values()) > 3


async def test_a_second_rebuild_at_once_is_refused(videos: Catalog) -> None:
    await videos.deliver(*HISTORY)

    async def second() -> None:
        with pytest.raises(OperationRefused, match="is being rebuilt already"):
            await videos.rebuild(Listed(HISTORY)).run()

    assert (await videos.rebuild(Listed(HISTORY, second)).run()).swapped
    assert await videos.rows() == SERVED


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


async def _nothing() -> None:
    return None


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


async def test_a_source_that_does_not_tell_of_all_rows_replaces_nothing(videos: Catalog) -> None:
    await videos.deliver(*HISTORY, saved("d", 1))
    with pytest.raises(OperationRefused, match=r"1 rows are not in it and 1 are older in it \(first: d\)"):
        await videos.rebuild(Listed([saved("a", 1), saved("c", 1)])).run()
    assert (await videos.rows()).keys() == {"a", "c", "d"}
    assert await videos.tables() == set()
    done = await videos.rebuild(Listed([saved("a", 1), saved("c", 1)])).run(accept_loss=True)
    assert (done.differences.extra, done.differences.ahead) == (1, 1)
    assert (await videos.rows()).keys() == {"a", "c"}


async def test_an_event_that_cannot_be_applied_stops_the_rebuild_and_is_not_skipped(videos: Catalog) -> None:
    await videos.deliver(*HISTORY)
    unreadable = message(VideoSaved("q", "t"), 1, payload=b"{")
    with pytest.raises(OperationRefused, match=f"video.saved {unreadable.id} cannot be read"):
        await videos.rebuild(Listed([*HISTORY, unreadable])).run()
    with pytest.raises(OperationRefused, match=r"1 of its rows lack an event \(.*versions 3 to 8 are missing before 9"):
        await videos.rebuild(Listed([*HISTORY, viewed("a", 9)])).run()
    assert await videos.rows() == SERVED
    # A gap that a later whole row has closed is none.
    assert (await videos.rebuild(Listed([*HISTORY, viewed("a", 9), saved("a", 10)])).run()).swapped


async def test_a_changed_table_gets_its_new_column_by_a_rebuild(videos: Catalog) -> None:
    await videos.deliver(*HISTORY)
    table = make_table()
    table.append_column(Column("upper", String(200)))
    newer = Catalog(str(videos.road.database_url), table=table)
    try:
        newer.videos._rules[VideoSaved] = type(newer.videos._rules[VideoSaved])(
            lambda event: {"title": event.title, "views": 0, "upper": event.title.upper()}, False, frozenset()
        )
        assert (await newer.rebuild(Listed(HISTORY)).run()).swapped
        async with newer.store.reading() as connection:
            found = (await connection.execute(text(f"SELECT upper FROM {NAME} WHERE video_id = 'c'"))).scalar()
        assert found == "C 1"
    finally:
        await newer.road.aclose()


async def test_the_first_build_needs_no_table(videos: Catalog) -> None:
    await videos.run(f"DROP TABLE {NAME}")
    done = await videos.rebuild(Listed(HISTORY)).run()
    assert (done.differences.missing, await videos.rows()) == (2, SERVED)


async def test_whoever_could_read_the_table_can_read_the_new_one(fresh_postgresql_url: str) -> None:
    """Rights belong to a table, not to its name."""
    async with catalog(fresh_postgresql_url) as videos:
        await videos.road.migrate()
        await videos.deliver(*HISTORY)
        role = f"reader_{uuid.uuid4().hex[:8]}"
        await videos.run(f"CREATE ROLE {role}")
        try:
            await videos.run(f"GRANT SELECT ON {NAME} TO {role}")
            await videos.rebuild(Listed(HISTORY)).run()
            async with videos.store.transaction() as connection:
                await connection.execute(text(f"SET LOCAL ROLE {role}"))
                assert await connection.scalar(text(f"SELECT COUNT(*) FROM {NAME}")) == 3
        finally:
            await videos.run(f"DROP OWNED BY {role}")
            await videos.run(f"DROP ROLE {role}")


async def test_a_reader_in_a_long_transaction_delays_the_swap_but_not_the_others(
    videos: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await videos.deliver(*HISTORY)
    drivers = ("postgresql", "mysql")
    for driver in drivers:
        monkeypatch.setattr(f"postroad.stores.{driver}.driver.SWAP_PATIENCE", 1)
    waited = asyncio.Event()

    async def waiting(seconds: float) -> None:
        waited.set()

    monkeypatch.setattr(videos.road.clock, "sleep", waiting, raising=False)
    async with videos.store.reading() as reader:
        await reader.execution_options(isolation_level="REPEATABLE READ") if videos.store.dialect in drivers else None
        assert await reader.scalar(text(f"SELECT COUNT(*) FROM {NAME}")) == 3
        rebuilding = asyncio.create_task(videos.rebuild(Listed(HISTORY)).run())
        if videos.store.dialect in drivers:  # a file's readers hinder nobody
            await waited.wait()
            assert await videos.deliver(saved("d", 1)) == [("ack", 1)]
    assert (await rebuilding).swapped
    assert SERVED.items() <= (await videos.rows()).items()


async def test_verifying_finds_what_is_missing_extra_stale_ahead_and_different(videos: Catalog) -> None:
    history = [*HISTORY, saved("d", 1), saved("e", 2), saved("f", 1)]
    await videos.deliver(*history)
    assert not await videos.rebuild(Listed(history)).verify()
    await broken(videos)
    await videos.run(f"UPDATE {NAME} SET version = 1 WHERE video_id = 'e'")
    await videos.run(f"UPDATE {NAME} SET version = 4 WHERE video_id = 'f'")
    await videos.run(f"INSERT INTO {NAME} (video_id, version, deleted) VALUES ('x', 1, :no)", no=False)
    found = await videos.rebuild(Listed(history)).verify()
    assert found.keys == {"missing": ["c"], "extra": ["x"], "stale": ["e"], "ahead": ["f"], "differing": ["a"]}
    assert (found.rows, found.missing, found.extra, found.stale, found.ahead, found.differing) == (5, 1, 1, 1, 1, 1)
    assert await videos.tables() == set()
    assert "x" in await videos.rows()  # looking replaces nothing


async def test_a_broker_that_keeps_nothing_cannot_be_the_source() -> None:
    with pytest.raises(UnsupportedByBroker, match="The recording broker has no replay"):
        BrokerSource(RecordingBroker(), ["a.events"], NAME, clock=None)  # type: ignore[arg-type]


async def test_progress_is_told_and_stored(videos: Catalog) -> None:
    told: list[tuple[int, int]] = []
    await Rebuild(videos.road, videos.videos, Listed(HISTORY), tell=lambda *given: told.append(given)).run()
    assert told[0] == (5, 5)
    async with videos.store.reading() as connection:
        row = (
            await connection.execute(text("SELECT state, generation, progress, total FROM postroad_projections"))
        ).one()
    assert tuple(row) == ("live", 1, 5, 5)
