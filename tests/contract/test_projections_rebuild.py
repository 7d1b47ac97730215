"""A rebuild makes a second table beside the one that serves, misses nothing that happens meanwhile, and swaps."""

import asyncio
import uuid
from contextlib import aclosing
from typing import Any

import pytest
from sqlalchemy import Column, String, text

from postroad.errors import OperationRefused, UnsupportedByBroker
from postroad.eventstore import EventStoreSource
from postroad.projections import BrokerSource, state
from postroad.projections.rebuild import Rebuild
from postroad.testing.office import RecordingBroker
from tests.support.projections import (
    GROUP,
    HISTORY,
    NAME,
    SERVED,
    Catalog,
    Listed,
    VideoDeleted,
    VideoSaved,
    VideoShared,
    VideoViewed,
    catalog,
    make_table,
    message,
    saved,
    viewed,
)


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


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_on_sqlite_a_view_reads_the_new_table_and_one_that_is_broken_is_in_nobodys_way(videos: Catalog) -> None:
    await videos.write(VideoSaved("v1", "t"))
    async with videos.road.store.transaction() as connection:
        for statement in (
            "CREATE VIEW titles AS SELECT title FROM video_search",
            "CREATE TABLE gone (n)",
            "CREATE VIEW broken AS SELECT n FROM gone",
            "DROP TABLE gone",
        ):
            await connection.exec_driver_sql(statement)
    try:
        await videos.rebuild(videos.outbox()).run()
        async with videos.road.store.reading() as connection:
            assert (await connection.exec_driver_sql("SELECT title FROM titles")).scalars().all() == ["t"]
    finally:
        async with videos.road.store.transaction() as connection:
            for view in ("titles", "broken"):
                await connection.exec_driver_sql(f"DROP VIEW {view}")


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
@pytest.mark.parametrize("page", [1, 500])
async def test_a_rebuild_reads_the_event_store_when_the_outbox_has_long_been_cleared(
    videos: Catalog, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.stores.history._PAGE", page)
    async with videos.road.session() as session, session.begin():
        told = [
            VideoSaved("a", "a 1"),
            VideoSaved("b", "b 1"),
            VideoViewed("a"),
            VideoDeleted("b"),
            VideoSaved("c", "c 1"),
        ]
        await videos.road.events.append(session, told)
    await videos.run("DELETE FROM postroad_outbox")
    history = EventStoreSource(videos.store, "video")
    assert await history.size() == 5
    assert (await videos.rebuild(history).run()).events == 5
    assert await videos.rows() == SERVED


async def test_the_next_page_is_read_while_one_is_worked_on_and_nothing_is_left_running(
    videos: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.stores.history._PAGE", 2)
    await videos.write(*(VideoSaved(f"v{n}", "t") for n in range(5)))
    read, asked, done = videos.store.read, 0, asyncio.Event()

    async def noted(*of: Any, **values: Any) -> Any:
        nonlocal asked
        asked += 1
        result = await read(*of, **values)
        if asked == 2:
            done.set()
        return result

    monkeypatch.setattr(videos.store, "read", noted)
    before = asyncio.all_tasks()
    async with aclosing(videos.outbox().read()) as events:
        assert (await anext(events)).aggregate_id == "v0"
        await done.wait()
        assert [(await anext(events)).aggregate_id for _ in range(2)] == ["v1", "v2"]
    assert asyncio.all_tasks() == before


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
    """Workers write without a pause, three rebuilds and more go on: in the end each row is at its last version."""
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
        rebuilds = 0
        while rebuilds < 3 or min(reached.values()) <= 3:
            done = await videos.rebuild(Listed(history)).run()
            assert done.swapped
            assert not done.differences.lost
            rebuilds += 1
    finally:
        stop.set()
        await asyncio.gather(*workers, reader)
        for other in others:
            await other.road.aclose()
    assert {video: row[1:] for video, row in (await videos.rows()).items()} == {
        video: (version - 1, version) for video, version in reached.items()
    }


async def test_workers_that_take_turns_do_not_keep_a_rebuild_waiting(videos: Catalog) -> None:
    """There is always one of them at work: who asks for a moment without any must get it all the same."""
    await videos.deliver(*HISTORY)
    stop = asyncio.Event()

    async def work(turn: int) -> None:
        await asyncio.sleep(turn * 0.01)
        while not stop.is_set():
            async with videos.store.transaction() as connection:
                await state.fence(videos.store, connection, NAME)
                await asyncio.sleep(0.15)

    workers = [] if videos.store.one_writer else [asyncio.create_task(work(turn)) for turn in range(15)]
    try:
        async with asyncio.timeout(30):
            assert (await videos.rebuild(Listed(HISTORY)).run()).swapped
    finally:
        stop.set()
        await asyncio.gather(*workers)


async def test_a_second_rebuild_at_once_is_refused(videos: Catalog) -> None:
    await videos.deliver(*HISTORY)

    async def second() -> None:
        with pytest.raises(OperationRefused, match="is being rebuilt already"):
            await videos.rebuild(Listed(HISTORY)).run()

    assert (await videos.rebuild(Listed(HISTORY, second)).run()).swapped
    assert await videos.rows() == SERVED


async def test_a_source_that_does_not_tell_of_all_rows_replaces_nothing(videos: Catalog) -> None:
    await videos.deliver(*HISTORY, saved("d", 1))
    with pytest.raises(OperationRefused, match=r"1 rows are not in it and 1 are older in it \(first: d\)"):
        await videos.rebuild(Listed([saved("a", 1), saved("c", 1)])).run()
    assert (await videos.rows()).keys() == {"a", "c", "d"}
    assert await videos.tables() == set()
    done = await videos.rebuild(Listed([saved("a", 1), saved("c", 1)])).run(accept_loss=True)
    assert (done.differences.extra, done.differences.ahead) == (1, 1)
    assert (await videos.rows()).keys() == {"a", "c"}


async def test_a_tombstone_that_the_source_has_forgotten_goes_on_guarding(videos: Catalog) -> None:
    await videos.deliver(*HISTORY)
    known = [one for one in HISTORY if one.aggregate_id != "b"]
    assert (await videos.rebuild(Listed(known)).run()).swapped
    await videos.deliver(saved("b", 1, "late"))
    assert await videos.rows() == SERVED
    assert await videos.versions() == {"a": 2, "b": 2, "c": 1}


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


async def test_an_aggregate_whose_events_are_in_two_places_is_read_until_no_gap_is_left(videos: Catalog) -> None:
    first = [saved("a", 1), viewed("a", 4), viewed("a", 5)]
    second = [viewed("a", 2), viewed("a", 3), viewed("a", 6)]
    assert (await videos.rebuild(Listed([*first, *second])).run()).swapped
    assert await videos.rows() == {"a": ("a 1", 5, 6)}


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


@pytest.mark.parametrize(
    ("store_kind", "setting"),
    [("mariadb", "SELECT @@SESSION.lock_wait_timeout"), ("sqlite", "PRAGMA legacy_alter_table")],
)
async def test_whoever_gets_the_connection_of_a_swap_gets_it_as_it_was(videos: Catalog, setting: str) -> None:
    await videos.run("CREATE TABLE one (id INT)")
    async with videos.store.transaction() as connection:
        before = await connection.scalar(text(setting))
        await videos.store.swap(connection, "", live="two", shadow="one", old="")
        assert await connection.scalar(text(setting)) == before
    await videos.run("DROP TABLE two")


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
