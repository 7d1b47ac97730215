"""Every planted fault is found, a sound system shows none, and what is being written is never taken for a fault."""

import asyncio
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from postroad import Postroad
from postroad.consistency.window import PIECE, Window, ranges
from postroad.errors import ConfigurationError
from postroad.operations import audit
from postroad.testing import FaultyBroker
from tests.support.genesis import ProposeTheme, SessionStarted, StartSession, change, genesis
from tests.support.harm import OLD, at, forget, found, lived, of


@pytest.mark.spec("G8")
async def test_a_sound_system_shows_nothing(road: Postroad) -> None:
    await lived(road)
    report = await road.check(grace=0)
    assert (report.findings, report.commands, report.events) == ([], 6, 8)
    assert report.handled == 6
    assert report.consistent


@pytest.mark.spec("G8")
async def test_a_completed_command_without_its_event_is_found(road: Postroad) -> None:
    id = uuid4()
    (event,) = await road.execute(StartSession("s-9"), command_id=id)
    await forget(road, "{domain_events}", event.id)
    (finding,) = (await found(road))["orphaned_command"]
    assert (finding.count, finding.ids) == (1, [str(id)])


@pytest.mark.spec("G8")
async def test_so_is_one_that_a_person_once_had_tried_again(road: Postroad) -> None:
    """Only what repair has run again, in vain, is left at that."""
    id = uuid4()
    (event,) = await road.execute(StartSession("s-9"), command_id=id)
    await forget(road, "{domain_events}", event.id)
    async with road.store.transaction() as connection:
        await audit.record(road.store, connection, actor="ada", action="command.retry", subject=str(id))
    assert "orphaned_command" in await found(road)


@pytest.mark.spec("G8")
async def test_an_event_without_an_outbox_row_is_found(road: Postroad) -> None:
    _, second, _ = await lived(road)
    await forget(road, "postroad_outbox", second)
    (finding,) = (await found(road))["missing_outbox"]
    assert (finding.where, finding.count, finding.ids) == ("postroad_outbox", 1, [str(second)])


@pytest.mark.spec("G8")
async def test_a_gap_in_an_aggregates_versions_is_found(road: Postroad) -> None:
    _, second, _ = await lived(road)
    await forget(road, "{domain_events}", second)
    (finding,) = (await found(road))["version_gap"]
    assert (finding.count, finding.ids) == (1, ["session/s-0 v3"])


@pytest.mark.spec("G8")
async def test_an_event_that_a_group_never_saw_is_found(road: Postroad) -> None:
    _, second, _ = await lived(road)
    await forget(road, "{inbox}", second)
    (finding,) = (await found(road))["unseen"]
    assert (finding.where, finding.count, finding.ids) == ("readers", 1, [str(second)])


@pytest.mark.spec("G8")
async def test_what_was_sent_before_a_group_began_is_not_missed(road: Postroad) -> None:
    first, _, _ = await lived(road)
    await forget(road, "{inbox}", first)
    await change(road, "UPDATE {handlers} SET first_seen = '2099-01-01 00:00:00'")
    assert not await found(road)


@pytest.mark.spec("G8")
async def test_what_a_group_does_not_handle_any_more_is_not_missed(road: Postroad, tmp_path: Path) -> None:
    _, second, _ = await lived(road)
    await forget(road, "{inbox}", second)
    async with genesis(road.database_url, f"embedded:{tmp_path / 'broker.db'}") as fewer:

        @fewer.on(SessionStarted, group="readers")
        async def read(event: SessionStarted) -> None: ...

        assert "unseen" not in await found(fewer)


@pytest.mark.spec("G8")
async def test_what_is_younger_than_the_grace_is_not_missed(road: Postroad) -> None:
    _, second, _ = await lived(road)
    await forget(road, "{inbox}", second)
    assert not await found(road, grace=300.0)


@pytest.mark.spec("G8")
async def test_an_event_handled_after_a_later_one_is_found(road: Postroad) -> None:
    first, _, _ = await lived(road)
    later = {"postgresql": "processed_at + interval '1 hour'", "mysql": "processed_at + INTERVAL 1 HOUR"}
    moved = later.get(road.store.dialect, "'9' || substr(processed_at, 2)")
    await change(road, f"UPDATE {{inbox}} SET processed_at = {moved} {at(road, first)}")
    (finding,) = (await found(road))["out_of_order"]
    assert (finding.where, finding.count, finding.ids) == ("readers", 1, [str(first)])


@pytest.mark.spec("G8")
async def test_one_fact_handled_under_two_ids_is_found(road: Postroad) -> None:
    first, second, _ = await lived(road)
    await change(road, f"UPDATE {{inbox}} SET version = 1 {at(road, second)}")
    (finding,) = (await found(road))["doubled"]
    assert (finding.count, set(finding.ids) <= {str(first), str(second)}) == (1, True)


@pytest.mark.spec("G8")
async def test_what_stands_still_is_found(road: Postroad) -> None:
    first, second, third = await lived(road)
    await change(
        road, f"UPDATE {{commands}} SET status = 'PROCESSING', locked_until = {OLD} WHERE aggregate_id = 's-0'"
    )
    await change(road, f"UPDATE {{commands}} SET status = 'FAILED', next_retry_at = {OLD} WHERE aggregate_id = 's-1'")
    await change(road, f"UPDATE {{inbox}} SET status = 0, locked_until = {OLD} {at(road, first)}")
    await change(road, f"UPDATE {{inbox}} SET status = 2, next_retry_at = {OLD} {at(road, second)}")
    await change(road, f"UPDATE postroad_outbox SET state = 'RETRY', next_attempt_at = {OLD} {at(road, third)}")
    told = {kind: (findings[0].count, findings[0].ids) for kind, findings in (await found(road)).items()}
    assert told.pop("expired_command")[0] == told.pop("late_command")[0] == 3
    assert told == {
        "expired_inbox": (1, [f"readers/{first}"]),
        "late_inbox": (1, [f"readers/{second}"]),
        "late_outbox": (1, [str(third)]),
    }


@pytest.mark.spec("G8")
async def test_what_waits_and_cannot_be_read_is_found(road: Postroad) -> None:
    _, second, third = await lived(road)
    await change(road, f"UPDATE postroad_outbox SET state = 'FAILED', schema_version = 9 {at(road, third)}")
    gone = "status = 'PENDING', command_type = 'Command.Gone.Away'"
    await change(road, f"UPDATE {{commands}} SET {gone} {of('s-0', 'Start')}")
    stored = "status = 2, next_retry_at = NULL, processed_at = NULL"
    broken = {"postgresql": "'\\x00'", "mysql": "x'00'"}.get(road.store.dialect, "x'00'")
    await change(road, f"UPDATE {{inbox}} SET {stored}, message = {broken} {at(road, second)}")
    findings = (await found(road, grace=300.0))["unreadable"]
    assert {one.where: one.count for one in findings} == {"commands": 1, "postroad_outbox": 1, "readers": 1}


@pytest.mark.spec("G8")
async def test_an_outage_of_the_broker_hides_no_other_finding_and_is_no_success(road: Postroad) -> None:
    _, second, _ = await lived(road)
    road.broker = broker = FaultyBroker(road.broker)  # type: ignore[assignment]
    broker.down = True
    report = await road.check(grace=0)
    assert (report.findings, report.consistent) == ([], False)
    (left,) = report.not_looked_at
    assert left.startswith("dead letters: BrokerUnavailable: ")
    await forget(road, "postroad_outbox", second)
    assert [one.kind for one in (await road.check(grace=0)).findings] == ["missing_outbox"]


@pytest.mark.spec("G8")
async def test_what_is_written_meanwhile_is_never_taken_for_a_fault(road: Postroad) -> None:
    over = asyncio.Event()

    async def write() -> None:
        try:
            for number in range(10):
                await road.execute(StartSession(f"w-{number}"))
                await road.execute(ProposeTheme(f"w-{number}"))
        finally:
            over.set()

    async with road.running(), asyncio.TaskGroup() as group:
        group.create_task(write())
        while not over.is_set():
            assert not (await road.check()).findings


def test_a_table_is_read_in_pieces_without_gaps() -> None:
    class Span:
        low, high = 7, 7 + 2 * PIECE

    pieces = list(ranges(Span()))
    assert [piece["low"] for piece in pieces] == [7, 7 + PIECE, 7 + 2 * PIECE]
    assert [piece["high"] for piece in pieces] == [6 + PIECE, 6 + 2 * PIECE, 7 + 2 * PIECE]


async def test_a_window_is_read_in_slices_without_gaps(road: Postroad) -> None:
    now = road.clock.now()
    window = Window(now - timedelta(hours=3), now - timedelta(hours=2.5), now, now)
    slices = list(window.slices())
    assert slices[0]["low"] == window.kept_since
    assert slices[-1]["high"] == now
    assert all(one["high"] == next_["low"] for one, next_ in pairwise(slices))


async def test_a_negative_span_is_refused(road: Postroad) -> None:
    with pytest.raises(ConfigurationError, match="`since` is -1"):
        await road.check(since=-1)


@pytest.mark.spec("G8")
async def test_what_the_outbox_was_cleared_of_is_not_missed(road: Postroad) -> None:
    await road.execute(StartSession("s-0"))
    old = road.store.adapt(road.clock.now() - timedelta(days=8))
    await change(road, f"UPDATE {{domain_events}} SET occurred_at = '{old}'")
    await change(road, "DELETE FROM postroad_outbox")
    assert (await road.check(since=timedelta(days=30), grace=0)).consistent
