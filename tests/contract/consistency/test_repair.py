"""What is repaired is whole again, is audited, and is not repaired twice; without `apply` nothing is touched."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from uuid import UUID, uuid4

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from postroad import Postroad, operations
from postroad.consistency import Repaired, repair
from postroad.inbox import Status
from postroad.inbox.records import Records
from postroad.inbox.scheduler import RetryScheduler
from postroad.stores import Store
from tests.support.genesis import SessionStarted, StartSession, change, genesis, kept
from tests.support.harm import OLD, at, forget, found, lived, of
from tests.support.outbox import APPEND_ONLY


async def mended(road: Postroad, *, apply: bool = True) -> Sequence[Repaired]:
    return await repair(road, apply=apply, grace=0.0, actor="anna")


async def audited(road: Postroad) -> list[tuple[str, str]]:
    return sorted((act.action, act.subject) for act in await operations.acts(road.store))


@pytest.mark.spec("G9")
async def test_missing_outbox_rows_come_back_with_their_id_and_version(road: Postroad) -> None:
    before = await kept(road) if await lived(road) else {}
    ids = [road.store.id_out(row[0]) for row in before["outbox"]]
    for id in ids:
        await forget(road, "postroad_outbox", id)
    (done,) = await mended(road)
    assert (done.kind, done.rows) == ("missing_outbox", len(ids))
    assert await kept(road) == before
    assert await audited(road) == sorted(("repair.outbox", str(id)) for id in ids)
    assert await mended(road) == []
    async with road.running():
        await road.drain()
    assert not await found(road)


@pytest.mark.spec("G9")
async def test_what_comes_back_is_what_it_was(road: Postroad) -> None:
    first, *_ = await lived(road)
    whole = await operations.outbox_event(road.store, road.outboxes, first)
    await forget(road, "postroad_outbox", first)
    await mended(road)
    again = await operations.outbox_event(road.store, road.outboxes, first)
    for name in ("payload", "attributes", "correlation_id", "causation_id", "shard", "tenant", "content_type"):
        assert getattr(again, name) == getattr(whole, name), name
    assert (again.event.key, again.event.version, again.event.state) == (whole.event.key, whole.event.version, "NEW")


@pytest.mark.spec("G9")
async def test_a_dry_run_tells_the_same_and_changes_nothing(road: Postroad) -> None:
    _, second, third = await lived(road)
    id = uuid4()
    (event,) = await road.execute(StartSession("s-9"), command_id=id)
    for table in ("{domain_events}", "postroad_outbox"):
        await forget(road, table, event.id)
    await forget(road, "postroad_outbox", second)
    await change(road, f"UPDATE {{inbox}} SET status = 0, locked_until = {OLD} {at(road, third)}")
    before = await kept(road)
    planned = await mended(road, apply=False)
    assert {one.kind: one.rows for one in planned} == {"missing_outbox": 1, "orphaned_command": 1, "expired_inbox": 1}
    assert (await kept(road), await audited(road)) == (before, [])
    assert await mended(road) == planned
    assert await mended(road) == []


@pytest.mark.spec("G9")
async def test_an_orphaned_command_runs_again_once(road: Postroad) -> None:
    id = uuid4()
    (event,) = await road.execute(StartSession("s-0"), command_id=id)
    await forget(road, "{domain_events}", event.id)
    await forget(road, "postroad_outbox", event.id)
    await change(road, "DELETE FROM {versions}")
    (done,) = await mended(road)
    assert (done.kind, done.rows, done.ids) == ("orphaned_command", 1, [str(id)])
    assert (await kept(road))["commands"] == ["PENDING"]
    assert await audited(road) == [("repair.command", str(id))]
    assert await mended(road) == []
    await road.command_worker.run_once()
    assert [one.event for one in await road.events.caused_by(id)] == [event.event]
    assert not await found(road) or set(await found(road)) == {"late_outbox"}


@pytest.mark.spec("G9")
async def test_what_runs_again_without_an_event_is_left_at_that(road: Postroad) -> None:
    """Its handler may have good reason not to bring about anything."""
    id = uuid4()
    (event,) = await road.execute(StartSession("s-0"), command_id=id)
    for table in ("{domain_events}", "postroad_outbox"):
        await forget(road, table, event.id)
    await mended(road)
    assert (await kept(road))["commands"] == ["PENDING"]
    await change(road, "UPDATE {commands} SET status = 'COMPLETED', finished_at = created_at")
    assert "orphaned_command" not in await found(road)
    assert await mended(road) == []


@pytest.mark.spec("G9")
async def test_a_command_that_left_another_event_than_its_name_promises_is_told_but_not_run_again(
    road: Postroad,
) -> None:
    """It did take effect: it would take effect a second time."""
    id = uuid4()
    await road.execute(StartSession("s-0"), command_id=id)
    await change(road, "UPDATE {domain_events} SET event_type = 'Genesis.Session.Finished'")
    assert "orphaned_command" in await found(road)
    assert await mended(road) == []
    assert (await kept(road))["commands"] == ["COMPLETED"]


@pytest.fixture
async def adding(store: Store, store_url: str) -> AsyncIterator[Postroad]:
    """A service whose command brings about its event with `add`: the event store has nothing of it."""
    async with Postroad("genesis", store_url, "embedded:") as road:
        road.command("Command.Genesis.Session.Start", aggregate="session", key="session_id")(StartSession)

        @road.handles(StartSession)
        async def start(command: StartSession, session: AsyncSession, road: Postroad) -> None:
            road.add(session, SessionStarted(command.session_id, command.title))

        yield road


@pytest.mark.spec("G9")
async def test_a_command_whose_event_only_the_outbox_has_is_not_run_again(adding: Postroad) -> None:
    for number in range(2):
        await adding.execute(StartSession(f"s-{number}"))
    assert "orphaned_command" in await found(adding)
    assert await mended(adding) == []
    # One of them has left nothing at all.
    await change(adding, "DELETE FROM postroad_outbox WHERE aggregate_id = 's-1'")
    (done,) = await mended(adding)
    assert (done.kind, done.rows) == ("orphaned_command", 1)
    assert (await kept(adding))["commands"] == ["COMPLETED", "PENDING"]


@pytest.mark.spec("G9")
async def test_of_a_command_whose_outbox_row_may_be_cleared_away_nobody_can_tell(adding: Postroad) -> None:
    await adding.execute(StartSession("s-0"))
    await change(adding, "DELETE FROM postroad_outbox")
    adding.outbox_retention = 1800.0
    assert await mended(adding) == []
    assert (await kept(adding))["commands"] == ["COMPLETED"]


@pytest.mark.spec("G9")
async def test_what_vanished_processes_hold_is_released_and_done(road: Postroad) -> None:
    first, _, _ = await lived(road)
    await change(road, f"UPDATE {{inbox}} SET status = 0, locked_until = {OLD} {at(road, first)}")
    await change(
        road,
        f"UPDATE {{commands}} SET status = 'PROCESSING', locked_until = {OLD} {of('s-1', 'Finish')}",
    )
    done = await mended(road)
    assert {(one.kind, one.rows) for one in done} == {("expired_inbox", 1), ("expired_command", 1)}
    assert await mended(road) == []
    await RetryScheduler(road.inbox, road.bus).run_once()
    record = await Records(road.store).find("readers", first)
    assert record is not None
    assert record.status is Status.SUCCEEDED
    assert (await audited(road))[-1] == ("repair.inbox_lease", f"readers/{first}")


@pytest.mark.spec("G9")
async def test_a_lease_that_is_held_is_left_alone(road: Postroad) -> None:
    first, *_ = await lived(road)
    held = "'2099-01-01 00:00:00'"
    await change(road, f"UPDATE {{inbox}} SET status = 0, locked_until = {held} {at(road, first)}")
    await change(
        road,
        f"UPDATE {{commands}} SET status = 'PROCESSING', locked_until = {held} {of('s-0', 'Start')}",
    )
    assert await mended(road) == []


@pytest.mark.spec("G9")
async def test_two_who_repair_at_once_add_each_row_once(road: Postroad) -> None:
    await lived(road)
    await change(road, "DELETE FROM postroad_outbox")
    done = await asyncio.gather(mended(road), mended(road))
    assert sum(one.rows for each in done for one in each) == 8
    assert len(await audited(road)) == 8


async def rows_of(road: Postroad, table: str) -> list[UUID]:
    async with road.store.reading() as connection:
        rows = await connection.exec_driver_sql(f"SELECT event_id FROM {table} ORDER BY event_id")
        return [road.store.id_out(row[0]) for row in rows]


@pytest.mark.spec("G9")
async def test_an_append_only_outbox_gets_both_rows_back(store: Store, store_url: str, tmp_path: object) -> None:
    facts, delivery = APPEND_ONLY.name, APPEND_ONLY.delivery
    async with genesis(store_url, f"embedded:{tmp_path}/broker.db", outboxes=[APPEND_ONLY]) as road:
        await road.execute(StartSession("s-0"))
        before = await rows_of(road, facts)
        await change(road, f"DELETE FROM {facts}")
        await change(road, f"DELETE FROM {delivery}")
        await mended(road)
        assert await rows_of(road, facts) == await rows_of(road, delivery) == before
        async with road.running():
            await road.drain()
