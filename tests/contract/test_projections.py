"""What an event does to a read model: old never overwrites new, deleted stays deleted, a gap is never jumped."""

import asyncio
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from postroad.inbox import Status
from postroad.message import Message
from postroad.projections import projection
from postroad.projections.fold import change
from tests.support.projections import (
    GROUP,
    NAME,
    Catalog,
    VideoShared,
    VideoViewed,
    deleted,
    message,
    saved,
    viewed,
)


@pytest.mark.spec("P11")
async def test_a_row_follows_its_events(videos: Catalog) -> None:
    await videos.deliver(saved("a", 1), saved("b", 1), saved("a", 2, "new title"))
    assert await videos.rows() == {"a": ("new title", 0, 2), "b": ("b 1", 0, 1)}


@pytest.mark.spec("P11")
async def test_an_older_event_never_overwrites_a_newer_one(videos: Catalog) -> None:
    await videos.deliver(saved("a", 3, "third"))
    assert await videos.deliver(saved("a", 2, "second")) == [("ack", 2)]
    assert await videos.deliver(saved("a", 3, "another third")) == [("ack", 3)]
    assert await videos.rows() == {"a": ("third", 0, 3)}


@pytest.mark.spec("P11")
async def test_the_guard_holds_though_the_newer_one_comes_between_look_and_write(videos: Catalog) -> None:
    """The statement decides, not what was read before it: here nothing is read at all."""
    await videos.deliver(saved("a", 9, "ninth"))
    for version in (8, 7):
        await videos.deliver(saved("a", version), saved("b", version))
    assert await videos.rows() == {"a": ("ninth", 0, 9), "b": ("b 8", 0, 8)}


@pytest.mark.spec("P11")
async def test_a_duplicate_changes_nothing(videos: Catalog) -> None:
    await videos.deliver(saved("a", 1))
    one = viewed("a", 2)
    await videos.deliver(one, one)
    await videos.deliver(one)
    again = message(VideoViewed("a"), 2)  # the same change under another id: what the inbox cannot know
    assert await videos.deliver(again) == [("ack", 2)]
    assert await videos.rows() == {"a": ("a 1", 1, 2)}


@pytest.mark.spec("P11")
async def test_a_deleted_row_is_not_brought_back_by_an_older_event(videos: Catalog) -> None:
    await videos.deliver(saved("a", 1), saved("b", 1))
    await videos.deliver(deleted("a", 3), deleted("c", 2))
    await videos.deliver(saved("a", 2), saved("c", 1), saved("b", 2))
    assert await videos.rows() == {"b": ("b 2", 0, 2)}
    assert await videos.versions() == {"a": 3, "b": 2, "c": 2}
    await videos.deliver(saved("a", 4, "back again"))
    assert await videos.rows() == {"a": ("back again", 0, 4), "b": ("b 2", 0, 2)}


async def test_a_deleted_row_keeps_nothing_of_what_it_was(videos: Catalog) -> None:
    await videos.deliver(saved("a", 1, "a secret", 5))
    await videos.deliver(deleted("a", 2), viewed("a", 3))
    async with videos.store.reading() as connection:
        (row,) = (await connection.execute(text(f"SELECT title, views, version FROM {NAME}"))).all()
    assert tuple(row) == (None, None, 3)


async def test_a_change_applies_upon_the_version_right_before_it(videos: Catalog) -> None:
    await videos.deliver(saved("a", 1), viewed("a", 2), viewed("a", 3))
    await videos.deliver(viewed("a", 4))
    await videos.deliver(viewed("b", 1))  # there is no version before the first
    assert await videos.rows() == {"a": ("a 1", 3, 4), "b": (None, 1, 1)}


async def test_a_change_whose_predecessor_is_missing_waits_for_it(videos: Catalog) -> None:
    await videos.deliver(saved("a", 1))
    late = viewed("a", 3)
    assert await videos.deliver(late) == [("retry", 60.0, 3)]
    assert await videos.rows() == {"a": ("a 1", 0, 1)}
    record = await videos.road.inbox.find(GROUP, late.id)
    assert record is not None
    assert record.error_msg == (
        "VersionGap: video_search has 'a' at version 1; version 2 is missing before 3. "
        "Handle what is missing first, then this one again."
    )
    assert await videos.deliver(viewed("a", 2)) == [("ack", 2)]
    await videos.run("UPDATE postroad_inbox SET next_retry_at = '2000-01-01 00:00:00' WHERE status = 2")
    assert await videos.deliver(late) == [("ack", 3)]
    assert await videos.rows() == {"a": ("a 1", 2, 3)}


async def test_a_gap_that_stays_is_parked_and_says_which_versions_are_missing(videos: Catalog) -> None:
    await videos.deliver(saved("a", 1))
    late = viewed("a", 5)
    await videos.deliver(late)
    await videos.run("UPDATE postroad_inbox SET next_retry_at = '2000-01-01 00:00:00' WHERE status = 2")
    ((verdict, reason, _),) = await videos.deliver(late)
    assert verdict == "dead"
    assert "versions 2 to 4 are missing before 5" in reason
    assert await videos.rows() == {"a": ("a 1", 0, 1)}
    # Never skipped: what builds upon it does not pass either. A whole row needs no predecessor.
    later = viewed("a", 6)
    assert (await videos.deliver(later))[0][0] == "retry"
    await videos.run("UPDATE postroad_inbox SET next_retry_at = '2000-01-01 00:00:00' WHERE next_retry_at IS NOT NULL")
    assert (await videos.deliver(later))[0][0] == "dead"
    await videos.deliver(saved("a", 7, "whole"))
    assert await videos.rows() == {"a": ("whole", 0, 7)}


async def test_a_gap_within_a_batch_costs_the_others_nothing(videos: Catalog) -> None:
    verdicts = await videos.deliver(saved("a", 1), viewed("a", 3), saved("b", 1), viewed("b", 2))
    assert sorted(verdict[0] for verdict in verdicts) == ["ack", "ack", "ack", "retry"]
    assert await videos.rows() == {"a": ("a 1", 0, 1), "b": ("b 1", 1, 2)}


@pytest.mark.spec("F7")
async def test_row_and_inbox_record_commit_together_or_not_at_all(videos: Catalog) -> None:
    await videos.run("INSERT INTO video_search (video_id, version, deleted) VALUES ('x', 1, :no)", no=False)
    one, bad = saved("a", 1), saved("b", 1, "t" * 201)
    if videos.store.dialect == "sqlite":  # which takes texts of any length
        await videos.run(
            "CREATE TRIGGER refuse BEFORE INSERT ON video_search WHEN length(NEW.title) > 200"
            " BEGIN SELECT RAISE(ABORT, 'too long'); END"
        )
    verdicts = await videos.deliver(one, bad)
    assert sorted(verdict[0] for verdict in verdicts) == ["ack", "retry"]
    assert (await videos.rows()).keys() == {"a", "x"}
    records = {record.event_id: record.status for record in await videos.road.inbox.list(GROUP)}
    assert records == {one.id: Status.SUCCEEDED, bad.id: Status.FAILED}


async def test_events_of_different_types_share_one_batch(videos: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    async def counting(*given: Any) -> None:
        sizes.append(len(given[-1]))
        await change(*given)

    monkeypatch.setattr(projection, "change", counting)
    await videos.deliver(*(one for n in range(20) for one in (saved(f"v{n}", 1), viewed(f"v{n}", 2))))
    assert sizes == [40]
    assert set((await videos.rows()).values()) == {(f"v{n} 1", 1, 2) for n in range(20)}


async def test_workers_that_race_for_one_row_leave_the_newest(videos: Catalog) -> None:
    messages = [saved("a", version) for version in range(1, 21)]
    random.Random(7).shuffle(messages)
    others = [Catalog(str(videos.road.database_url)) for _ in range(3)]
    try:
        workers = [videos, *others]
        await asyncio.gather(*(w.deliver(*messages[n::4]) for n, w in enumerate(workers)))
        assert await videos.rows() == {"a": ("a 20", 0, 20)}
    finally:
        for other in others:
            await other.road.aclose()


async def test_the_next_change_waits_for_one_that_is_under_way_and_finds_no_gap(videos: Catalog) -> None:
    await videos.deliver(saved("a", 1))
    async with videos.store.transaction() as connection:
        await change(videos.videos, videos.table, videos.store, connection, [(VideoViewed("a"), viewed("a", 2))])
        next_one = asyncio.create_task(videos.deliver(viewed("a", 3)))
        await asyncio.wait({next_one}, timeout=0.3)
    assert await next_one == [("ack", 3)]
    assert await videos.rows() == {"a": ("a 1", 2, 3)}


async def test_other_handlers_of_the_group_are_not_disturbed(videos: Catalog) -> None:
    await videos.deliver(saved("a", 1), message(VideoShared("a"), 2))
    assert videos.effects == ["a"]


@pytest.mark.spec("P11")
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_any_order_and_repetition_of_whole_rows_gives_the_same_table(
    videos: Catalog, data: st.DataObject
) -> None:
    history: list[Message] = []
    for video in "abc":
        for version in range(1, data.draw(st.integers(1, 4)) + 1):
            gone = data.draw(st.booleans())
            history.append(deleted(video, version) if gone else saved(video, version, f"{video}{version}"))
    await videos.run(f"DELETE FROM {NAME}")
    await videos.deliver(*history)
    expected = await videos.rows(), await videos.versions()
    for _ in range(2):
        shuffled = data.draw(st.permutations(history)) + data.draw(st.lists(st.sampled_from(history), max_size=4))
        await videos.run(f"DELETE FROM {NAME}")
        await videos.run("DELETE FROM postroad_inbox")
        for at in range(0, len(shuffled), 3):
            await videos.deliver(*shuffled[at : at + 3])
        assert (await videos.rows(), await videos.versions()) == expected
