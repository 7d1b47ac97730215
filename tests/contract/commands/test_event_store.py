"""Domain events: one history per aggregate, and one order of all that no late committer can slip behind."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from postroad import Postroad
from postroad.errors import ConfigurationError, NoTransaction, UnknownEventType, VersionConflict
from postroad.eventstore import EventStore
from postroad.stores import open_store
from tests.support.genesis import (
    FinishSession,
    LibraryExtended,
    Session,
    SessionFinished,
    SessionStarted,
    StartSession,
    ThemeProposed,
    change,
    genesis,
    kept,
)
from tests.support.outbox import Opened

START = SessionStarted("s-1", "Dawn")


async def append(road: Postroad, *events: object, expected: int | None = None) -> None:
    async with road.session() as session, session.begin():
        await road.events.append(session, events, expected=expected)


async def positions(road: Postroad, after: int = 0) -> list[tuple[int | None, str]]:
    return [(one.position, one.message.aggregate_id) for one in await road.events.all(after=after)]


@pytest.mark.spec("G2", "G3")
async def test_an_aggregates_events_are_numbered_and_its_state_grows_from_them(road: Postroad) -> None:
    await append(road, START, ThemeProposed("s-1", 1), expected=0)
    await append(road, SessionStarted("s-2", "Dusk"), ThemeProposed("s-1", 2))
    stream = await road.events.stream("session", "s-1")
    assert [(one.version, one.event) for one in stream] == [
        (1, START),
        (2, ThemeProposed("s-1", 1)),
        (3, ThemeProposed("s-1", 2)),
    ]
    assert [one.version for one in await road.events.stream("session", "s-1", after=2)] == [3]
    assert await road.events.load(Session, "session", "s-1") == (Session(True, 2), 3)
    assert await road.events.load(Session, "session", "nobody") == (Session(), 0)
    found = await kept(road)
    assert found["events"] == found["outbox"]


async def test_an_aggregate_may_also_change_itself(road: Postroad) -> None:
    class Counting:
        seen = 0

        def evolve(self, event: object) -> None:
            self.seen += 1

    await append(road, START, ThemeProposed("s-1", 1))
    state, version = await road.events.load(Counting, "session", "s-1")
    assert (state.seen, version) == (2, 2)


@pytest.mark.spec("G3")
async def test_whoever_read_another_version_is_told(road: Postroad) -> None:
    await append(road, START, ThemeProposed("s-1", 1))
    for expected in (0, 1):
        with pytest.raises(VersionConflict, match=f"'s-1' has already reached version {expected + 1}"):
            await append(road, ThemeProposed("s-1", 2), expected=expected)
    # Nobody can have read that: there would be a gap.
    with pytest.raises(ConfigurationError, match="`expected` is 3, but session 's-1' is at version 2"):
        await append(road, ThemeProposed("s-1", 2), expected=3)
    assert len((await kept(road))["events"]) == 2


@pytest.mark.spec("G3")
@pytest.mark.parametrize("store_kind", ["postgresql", "mariadb"])
async def test_of_two_who_write_the_same_version_at_once_one_is_told(road: Postroad) -> None:
    await append(road, START)
    async with genesis(road.database_url, road.broker_url) as other, road.session() as session, session.begin():
        await road.events.append(session, [ThemeProposed("s-1", 1)], expected=1)
        late = asyncio.create_task(append(other, ThemeProposed("s-1", 2), expected=1))
        done, _ = await asyncio.wait({late}, timeout=0.2)
        assert not done  # it waits to see what becomes of the first
        await session.commit()
        with pytest.raises(VersionConflict):
            await late


@pytest.mark.spec("G3")
async def test_the_table_itself_lets_no_version_stand_twice(road: Postroad) -> None:
    """Also where the counter of versions is gone."""
    await append(road, START)
    await change(road, "DELETE FROM {versions}")
    await change(road, "DELETE FROM postroad_outbox")
    with pytest.raises(VersionConflict):
        await append(road, ThemeProposed("s-1", 1), expected=0)
    assert (await kept(road))["outbox"] == []


async def test_events_are_appended_through_a_plain_connection_too(road: Postroad) -> None:
    async with road.store.engine.begin() as connection:
        done = await road.events.append(connection, [START, LibraryExtended("all", "s-1")])
        assert [one.version for one in await road.events.stream("session", "s-1", target=connection)] == [1]
    assert [one.event for one in await road.events.all()] == [one.event for one in done]


async def test_appending_without_a_transaction_or_an_aggregate_is_refused(road: Postroad) -> None:
    async with road.session() as session:
        with pytest.raises(NoTransaction, match=r"await road\.events\.append\(session, events\)"):
            await road.events.append(session, [START])
        async with session.begin():
            with pytest.raises(ConfigurationError, match="belongs to no aggregate's history"):
                await road.events.append(session, [Opened("office")])
            with pytest.raises(ConfigurationError, match="the events are of several"):
                await road.events.append(session, [START, LibraryExtended("all", "s-1")], expected=0)


async def test_an_event_whose_class_is_gone_is_told_by_name(road: Postroad) -> None:
    await append(road, START)
    await change(road, "UPDATE {domain_events} SET event_type = 'Genesis.Session.Forgotten'")
    with pytest.raises(UnknownEventType, match=r"Genesis\.Session\.Forgotten is stored, but no @event declares it"):
        await road.events.all()


# -- the order of all --------------------------------------------------------------------------------------


@pytest.mark.spec("G3")
@pytest.mark.parametrize("store_kind", ["postgresql", "mariadb"])
async def test_who_commits_late_comes_behind_what_was_read_and_keeps_nobody_waiting(
    database_url: str, tmp_path: Path
) -> None:
    """Five transactions draw their numbers in one order and commit in another, and somebody reads all the while."""
    # In a new database: where rows of the same keys have just been deleted, InnoDB locks their neighbours too.
    async with genesis(database_url, f"embedded:{tmp_path / 'broker.db'}") as road, AsyncExitStack() as open:
        await road.migrate()
        sessions = [await open.enter_async_context(road.session()) for _ in range(5)]
        for number, session in enumerate(sessions):
            await session.begin()
            await road.events.append(session, [SessionStarted(f"s-{number}", "")])
        read: list[tuple[int | None, str]] = []
        for number in (3, 0, 4, 2, 1):
            async with asyncio.timeout(10):  # the others are still open
                assert await positions(road, after=len(read)) == []
                await sessions[number].commit()
                read += await positions(road, after=len(read))
            assert read[-1] == (len(read), f"s-{number}")
        assert await positions(road) == read
        assert len(read) == 5


@pytest.mark.parametrize("store_kind", ["sqlite", "postgresql", "mariadb"])
async def test_readers_that_number_at_once_agree(road: Postroad) -> None:
    """Writers and readers together; each reader follows to the end and has seen all, once, in the same order."""
    writers, each = 4, 8
    roads = [genesis(road.database_url, road.broker_url) for _ in range(3)]
    written = asyncio.Event()

    async def write(number: int) -> None:
        for _ in range(each):
            await append(road, SessionFinished(f"s-{number}"))

    async def follow(reader: Postroad) -> list[object]:
        seen: list[tuple[int | None, object]] = []
        while True:
            over = written.is_set()
            fresh = await reader.events.all(after=len(seen), limit=3)
            seen += [(one.position, one.id) for one in fresh]
            if over and not fresh:
                assert [position for position, _ in seen] == list(range(1, len(seen) + 1))
                return [id for _, id in seen]
            await asyncio.sleep(0)

    following = [asyncio.create_task(follow(reader)) for reader in roads]
    await asyncio.gather(*(write(number) for number in range(writers)))
    written.set()
    first, *others = await asyncio.gather(*following)
    assert all(one == first for one in others)
    assert len(set(first)) == writers * each
    for one in roads:
        await one.aclose()


async def test_two_who_looked_at_the_same_moment_give_no_position_twice(road: Postroad) -> None:
    await append(road, *(SessionStarted(f"s-{number}", "") for number in range(3)))
    rows = (await road.store.read("events_unnumbered", limit=10)).rows
    behind = EventStore(open_store(road.database_url), road.outbox, road.upcasters)
    await append(road, SessionStarted("s-9", ""))
    assert [one.message.aggregate_id for one in await behind.all()] == ["s-0", "s-1", "s-2", "s-9"]
    # The one that looked first numbers last: what is numbered stays so, and nothing is given twice.
    for last in (0, 100):
        await road.store.change("events_number", seqs=[row.seq for row in rows], last=last)
    await append(road, SessionStarted("s-10", ""))
    unnumbered = (await road.store.read("events_unnumbered", limit=10)).rows
    with pytest.raises(Exception, match="did not take a statement of ours"):
        await road.store.change("events_number", seqs=[row.seq for row in unnumbered], last=0)
    assert [position for position, _ in await positions(road)] == [1, 2, 3, 4, 5]
    await behind._store.aclose()


@pytest.mark.spec("G3")
async def test_effects_come_after_their_causes_in_the_order_of_all(road: Postroad) -> None:
    for number in range(3):
        await append(road, SessionStarted(f"s-{number}", ""))
        await append(road, SessionFinished(f"s-{number}"), LibraryExtended("all", f"s-{number}"))
    kinds = [type(one.event).__name__ for one in await road.events.all()]
    assert kinds == ["SessionStarted", "SessionFinished", "LibraryExtended"] * 3


@pytest.mark.spec("G5")
async def test_the_events_of_one_flow_are_found(road: Postroad) -> None:
    await road.execute(StartSession("s-1"), correlation_id="flow-1")
    await road.execute(FinishSession("s-1"), correlation_id="flow-1")
    await road.execute(StartSession("s-2"), correlation_id="flow-2")
    assert [one.message.type for one in await road.events.correlated("flow-1")] == [
        "Genesis.Session.Started",
        "Genesis.Session.Finished",
        "Genesis.Library.Extended",
    ]


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_a_long_flow_is_found_to_its_end(road: Postroad) -> None:
    await road.execute(StartSession("s-1"), correlation_id="flow-1")
    columns = (
        "event_type, aggregate_type, aggregate_id, topic, schema_version, payload, content_type, correlation_id, "
        "occurred_at"
    )
    await change(
        road,
        "WITH RECURSIVE numbers(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < 10001) "
        f"INSERT INTO {{domain_events}} (event_id, aggregate_version, {columns}) "
        f"SELECT printf('00000000-0000-7000-8000-%012d', n), n, {columns} FROM {{domain_events}}, numbers",
    )
    assert len(await road.events.correlated("flow-1")) == 10_001
