"""Wherever a process dies, a connection breaks or a lease ends: the command has its effect once, or not yet."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from postroad import Postroad
from postroad.errors import CommandStillProcessing, LeaseLost, StoreUnavailable, VersionConflict
from postroad.eventstore import DomainEvent
from tests.support.components import ROOT
from tests.support.genesis import (
    ProposeTheme,
    SessionStarted,
    StartSession,
    change,
    expire_leases,
    genesis,
    kept,
)
from tests.support.striking import Killed, Strike

COMMAND = StartSession("s-1", "Dawn")


async def all_points(road: Postroad) -> list[str]:
    """Where an execution can be struck."""
    with Strike().on(road.store) as strike:
        await road.execute(StartSession("s-0"))
    return strike.points


async def check_whole(road: Postroad, id: UUID) -> bool:
    """All of the command or nothing; whether it is done."""
    found = await kept(road)
    assert found["events"] == found["outbox"]
    done = await road.executor.box.find(id)
    assert len([one for one in found["events"] if one[1] == COMMAND.session_id]) <= 1
    completed = done is not None and done.status == "COMPLETED"
    assert completed == bool(await road.events.caused_by(id))
    return completed


def other(road: Postroad) -> Postroad:
    """The same service in another process, as far as the database can tell."""
    return genesis(road.database_url, road.broker_url)


async def emptied(road: Postroad) -> None:
    for table in ("{commands}", "{domain_events}", "{versions}", "postroad_outbox"):
        await change(road, f"DELETE FROM {table}")


@pytest.mark.spec("G2", "G4")
async def test_a_process_may_die_at_any_statement_and_commit(road: Postroad) -> None:
    points = await all_points(road)
    assert {"before command_complete", "after event_append", "before commit", "after commit"} <= set(points)
    done = []
    for at, point in enumerate(points):
        await emptied(road)
        id = uuid4()
        with Strike(at).on(road.store), pytest.raises(Killed):
            await road.execute(COMMAND, command_id=id)
        done.append(await check_whole(road, id))
        await expire_leases(road)
        async with other(road) as successor:
            # By whoever asks again, or by a worker, in turn.
            if at % 2:
                await successor.command_worker.run_once()
            (event,) = await successor.execute(COMMAND, command_id=id)
        assert event.event == SessionStarted("s-1", "Dawn"), point
        assert await check_whole(road, id)
    assert done == sorted(done)  # first it is not, from one point on it is


@pytest.mark.spec("G2", "G4")
async def test_a_connection_may_break_at_any_statement_and_commit(road: Postroad) -> None:
    """Also while the commit is answered: then only whoever looks can know."""
    points = await all_points(road)
    answered = 0
    for at in range(len(points)):
        await emptied(road)
        id = uuid4()
        with Strike(at, lambda: StoreUnavailable("The connection broke.")).on(road.store):
            answered += bool(await patiently(road, id))
        (event,) = await patiently(road, id)
        assert event.event == SessionStarted("s-1", "Dawn")
        assert await check_whole(road, id)
        assert len((await kept(road))["commands"]) == 1
    assert answered >= len(points) - 2


async def patiently(road: Postroad, id: UUID) -> list[DomainEvent]:
    for _ in range(3):
        try:
            return list(await road.execute(COMMAND, command_id=id))
        except (StoreUnavailable, CommandStillProcessing):
            await expire_leases(road)
    return []


@pytest.mark.spec("G4")
async def test_the_lost_answer_to_a_commit_is_asked_for_and_nothing_is_done_twice(road: Postroad) -> None:
    with Strike().on(road.store) as strike:
        await road.execute(StartSession("s-0"))
    last = max(at for at, point in enumerate(strike.points) if point == "after commit")
    with Strike(last, lambda: StoreUnavailable("The connection broke.")).on(road.store):
        (event,) = await road.execute(COMMAND)
    assert event.event == SessionStarted("s-1", "Dawn")
    assert (await kept(road))["commands"] == ["COMPLETED", "COMPLETED"]


# -- leases ----------------------------------------------------------------------------------------------


class Slow(msgspec.Struct, frozen=True):
    session_id: str


def slow(road: Postroad, then: Callable[[], object]) -> tuple[asyncio.Event, asyncio.Event]:
    begun, finish = asyncio.Event(), asyncio.Event()
    road.command("Command.Genesis.Session.Delay", aggregate="session", key="session_id")(Slow)

    @road.handles(Slow)
    async def delay(command: Slow) -> object:
        begun.set()
        await finish.wait()
        return then()

    return begun, finish


@pytest.mark.spec("G4")
@pytest.mark.parametrize("store_kind", ["postgresql", "mariadb"])
async def test_a_holder_that_lost_its_lease_cannot_commit(road: Postroad) -> None:
    begun, finish = slow(road, lambda: SessionStarted("s-1", "too late"))
    id = uuid4()
    first = asyncio.create_task(road.execute(Slow("s-1"), command_id=id))
    await begun.wait()
    await expire_leases(road)
    async with other(road) as successor:
        slow(successor, lambda: SessionStarted("s-1", "in time"))[1].set()
        (event,) = await successor.execute(Slow("s-1"), command_id=id)
    finish.set()
    # It is told what became of the command, not what it had in mind.
    assert [one.id for one in await first] == [event.id]
    assert [one.event.title for one in await road.events.stream("session", "s-1")] == ["in time"]
    assert (await kept(road))["commands"] == ["COMPLETED"]


@pytest.mark.spec("G4")
@pytest.mark.parametrize("store_kind", ["postgresql", "mariadb"])
async def test_the_fence_alone_stops_a_late_commit(road: Postroad) -> None:
    """Where the aggregate's version would not."""
    begun, finish = slow(road, lambda: None)
    id = uuid4()
    first = asyncio.create_task(road.execute(Slow("s-1"), command_id=id))
    await begun.wait()
    await expire_leases(road)
    message = road.executor.envelope(Slow("s-1"), command_id=id, correlation_id=None, tenant=None, user_id=None)
    async with road.store.transaction() as connection:
        await road.executor.box.open(connection, message)
    finish.set()
    with pytest.raises(LeaseLost, match="was taken over from this process; its work was rolled back"):
        await first
    assert (await kept(road))["commands"] == ["PROCESSING"]


@pytest.mark.parametrize("store_kind", ["postgresql", "mariadb"])
async def test_a_lease_is_renewed_while_its_command_takes_long(road: Postroad, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.inbox.keeper._RENEWALS_PER_TTL", 1e9)
    begun, finish = slow(road, lambda: None)
    id = uuid4()
    first = asyncio.create_task(road.execute(Slow("s-1"), command_id=id))
    await begun.wait()
    await expire_leases(road)
    async with asyncio.timeout(30):
        while True:
            found = await road.executor.box.find(id)
            assert found is not None
            if found.locked_until and found.locked_until.year > 2000:
                break
    finish.set()
    assert await first == []


async def test_a_cancelled_command_is_undone_and_may_be_tried_again(road: Postroad) -> None:
    begun, finish = slow(road, lambda: SessionStarted("s-1", "late"))
    id = uuid4()
    task = asyncio.create_task(road.execute(Slow("s-1"), command_id=id))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await kept(road))["commands"] == ["FAILED"]
    finish.set()
    assert len(await road.execute(Slow("s-1"), command_id=id)) == 1


async def test_who_is_cancelled_while_a_command_begins_leaves_it_to_nobody(
    road: Postroad, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, written, told = road.store.change, asyncio.Event(), asyncio.Event()

    async def slow_to_answer(statement: str, **values: Any) -> Any:
        result = await change(statement, **values)
        if statement == "command_begin":
            written.set()
            await told.wait()
        return result

    monkeypatch.setattr(road.store, "change", slow_to_answer)
    id = uuid4()
    task = asyncio.create_task(road.execute(COMMAND, command_id=id))
    await written.wait()
    task.cancel()
    asyncio.get_running_loop().call_soon(told.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await kept(road))["commands"] == ["FAILED"]
    assert len(await road.execute(COMMAND, command_id=id)) == 1


# -- many at once ----------------------------------------------------------------------------------------


@pytest.mark.spec("G4")
async def test_of_many_who_execute_one_command_at_once_one_does(road: Postroad) -> None:
    id = uuid4()
    others = [other(road) for _ in range(3)]
    answers = await asyncio.gather(
        *(one.execute(COMMAND, command_id=id) for one in (road, *others) for _ in range(5)), return_exceptions=True
    )
    answered = [one[0].id for one in answers if isinstance(one, list)]
    assert len(answered) + sum(isinstance(one, CommandStillProcessing) for one in answers) == len(answers)
    assert len(set(answered)) == 1
    found = await kept(road)
    assert (len(found["events"]), found["commands"]) == (1, ["COMPLETED"])
    for one in others:
        await one.aclose()


@pytest.mark.spec("G4")
async def test_of_many_processes_that_execute_one_command_one_does(road: Postroad) -> None:
    id = uuid4()
    script = f"""
import asyncio
from postroad.errors import CommandStillProcessing
from tests.support.genesis import StartSession, genesis

async def ask(road):
    while True:
        try:
            return (await road.execute(StartSession("s-1"), command_id="{id}"))[0].id
        except CommandStillProcessing:
            await asyncio.sleep(0.01)

async def main():
    async with genesis({road.database_url!r}, {road.broker_url!r}) as road:
        print(*await asyncio.gather(*(ask(road) for _ in range(5))))

asyncio.run(main())
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-c", script]
    running = [
        asyncio.to_thread(subprocess.run, command, env=environment, stdout=subprocess.PIPE, text=True, timeout=60)
        for _ in range(2)
    ]
    told = " ".join([done.stdout for done in await asyncio.gather(*running)]).split()
    assert len(told) == 10
    assert len(set(told)) == 1
    assert len((await kept(road))["events"]) == 1


@pytest.mark.spec("G3")
async def test_commands_that_meet_on_one_aggregate_are_repeated_on_fresh_state(road: Postroad) -> None:
    await road.execute(StartSession("s-1"))
    async with other(road) as second:
        done = await asyncio.gather(*(one.execute(ProposeTheme("s-1")) for one in (road, second) for _ in range(6)))
    # Each has counted on from what the others had done: nobody decided on a state that was past.
    assert sorted(events[0].event.number for events in done) == list(range(1, 13))
    assert [one.version for one in await road.events.stream("session", "s-1")] == list(range(1, 14))


@pytest.mark.spec("G3")
async def test_a_conflict_that_does_not_end_is_a_failure(road: Postroad, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.commands.execution._FRESH_STARTS", 3)
    tried = []

    async def conflicting(*_: object, **__: object) -> object:
        tried.append(1)
        raise VersionConflict("session", "s-1", 1)

    monkeypatch.setattr(road.events, "append", conflicting)
    with pytest.raises(VersionConflict):
        await road.execute(StartSession("s-1"))
    assert len(tried) == 3
    assert (await kept(road))["commands"] == ["FAILED"]
