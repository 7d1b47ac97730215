"""Commands that were written down: carried out in order, tried again when it helps, taken over from the dead."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from sqlalchemy import text

from postroad import BusinessError, Postroad
from postroad.commands import CommandRecord, CommandStatus
from postroad.commands.box import Held
from postroad.errors import (
    AggregateNotFound,
    InvalidCommand,
    PermissionDenied,
    StoreUnavailable,
    ValidationFailed,
)
from postroad.logs import JsonFormatter
from postroad.retry import Retry
from postroad.testing import VirtualClock
from tests.support.genesis import (
    FinishSession,
    ProposeTheme,
    SessionStarted,
    StartSession,
    change,
    expire_leases,
    genesis,
    kept,
)
from tests.support.striking import Strike


class Try(msgspec.Struct, frozen=True):
    session_id: str
    step: int = 0


def trying(road: Postroad, act: Callable[[Try], Awaitable[object]]) -> None:
    road.command("Command.Genesis.Session.Try", aggregate="session", key="session_id")(Try)

    @road.handles(Try)
    async def try_(command: Try) -> object:
        return await act(command)


async def submitted(road: Postroad, *commands: object) -> list[UUID]:
    async with road.session() as session, session.begin():
        return [(await road.submit(session, command)).id for command in commands]


async def found(road: Postroad, id: UUID) -> CommandRecord:
    record = await road.executor.box.find(id)
    assert record is not None
    return record


async def make_due(road: Postroad) -> None:
    """As if every pause had passed."""
    await change(road, "UPDATE {commands} SET next_retry_at = '2000-01-01 00:00:00' WHERE next_retry_at IS NOT NULL")


@pytest.mark.spec("G6")
async def test_a_command_that_fails_is_tried_again_after_1_5_and_15_seconds(road: Postroad) -> None:
    async def fail(_: Try) -> object:
        raise RuntimeError("not now")

    trying(road, fail)
    (id,) = await submitted(road, Try("s-1"))
    for failures, wait in enumerate((1, 5, 15), 1):
        assert await road.command_worker.run_once() == 1
        record = await found(road, id)
        assert (record.status, record.retry_count) == (CommandStatus.FAILED, failures)
        assert record.next_retry_at is not None
        assert record.finished_at is not None
        # By the database's clock, read twice in one statement.
        assert abs(record.next_retry_at - record.finished_at - timedelta(seconds=wait)) < timedelta(seconds=0.5)
        assert await road.command_worker.run_once() == 0  # not yet
        await make_due(road)
    assert await road.command_worker.run_once() == 1
    record = await found(road, id)
    assert (record.status, record.retry_count, record.next_retry_at) == (CommandStatus.FAILED, 4, None)
    assert record.error_message == "exceeded maxRetry (4 attempts): RuntimeError: not now"
    assert await road.command_worker.run_once() == 0


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_a_failure_is_told_with_fields_to_search_for(road: Postroad, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_: Try) -> object:
        raise RuntimeError("not now")

    trying(road, fail)
    (id,) = await submitted(road, Try("s-1"))
    assert await road.command_worker.run_once() == 1
    (told,) = [json.loads(JsonFormatter().format(one)) for one in caplog.records if "not now" in one.getMessage()]
    record = await found(road, id)
    assert (told["event_id"], told["event_type"]) == (str(id), "Command.Genesis.Session.Try")
    assert (told["aggregate_id"], told["correlation_id"]) == ("s-1", record.correlation_id)
    assert (told["attempt"], told["outcome"], "topic" in told) == (1, "failed", False)


@pytest.mark.spec("G6")
async def test_the_intervals_are_kept_to_the_second(tmp_path: Path) -> None:
    clock, at = VirtualClock(), []
    async with genesis(f"sqlite:///{tmp_path / 'a.db'}", f"embedded:{tmp_path / 'b.db'}", clock=clock) as road:

        async def fail(_: Try) -> object:
            at.append(clock.monotonic())
            raise RuntimeError("not now")

        trying(road, fail)
        await road.migrate()
        await submitted(road, Try("s-1"))
        for _ in range(60):
            await road.command_worker.run_once()
            clock.shift(0.5)
    assert at == [0, 1, 6, 21]


@pytest.mark.spec("G6")
@pytest.mark.parametrize(
    "error",
    [InvalidCommand, ValidationFailed, AggregateNotFound, PermissionDenied, BusinessError],
    ids=lambda e: e.__name__,
)
@pytest.mark.parametrize("store_kind", ["postgresql"])
async def test_kinds_of_errors_that_no_retry_would_mend_are_not_retried(road: Postroad, error: type[Exception]) -> None:
    async def fail(_: Try) -> object:
        raise error("Try again, a temporary failure")  # it is the class that counts, not the words

    trying(road, fail)
    (id,) = await submitted(road, Try("s-1"))
    assert await road.command_worker.run_once() == 1
    record = await found(road, id)
    assert (record.status, record.retry_count, record.next_retry_at) == (CommandStatus.FAILED, 1, None)


@pytest.mark.spec("G6")
@pytest.mark.parametrize("store_kind", ["postgresql"])
async def test_words_like_those_of_a_refusal_do_not_keep_a_command_from_being_retried(road: Postroad) -> None:
    async def fail(_: Try) -> object:
        raise RuntimeError("Permission denied: Invalid payload, Aggregate not found")

    trying(road, fail)
    (id,) = await submitted(road, Try("s-1"))
    await road.command_worker.run_once()
    assert (await found(road, id)).next_retry_at is not None


@pytest.mark.spec("G6")
async def test_a_payload_that_can_no_longer_be_read_is_not_retried(road: Postroad) -> None:
    (id,) = await submitted(road, StartSession("s-1"))
    async with road.store.transaction() as connection:
        await connection.execute(text(road.store.fill("UPDATE {commands} SET payload = :none")), {"none": b"{}"})
    await road.command_worker.run_once()
    record = await found(road, id)
    assert record.next_retry_at is None
    assert (record.error_message or "").startswith("InvalidCommand: Command.Genesis.Session.Start")


@pytest.mark.spec("P6")
async def test_commands_of_one_aggregate_run_in_the_order_in_which_they_were_submitted(road: Postroad) -> None:
    ran: list[tuple[str, int]] = []
    broken = True

    async def act(command: Try) -> object:
        if broken and command == Try("s-1", 1):
            raise RuntimeError("not now")
        ran.append((command.session_id, command.step))
        return None

    trying(road, act)
    await submitted(road, *(Try(id, step) for step in range(3) for id in ("s-1", "s-2")))
    while await road.command_worker.run_once():
        pass
    # The second of the first session waits for its next try, and the third waits behind it; nobody else does.
    assert ran.count(("s-1", 0)) == 1
    assert [step for id, step in ran if id == "s-1"] == [0]
    assert [step for id, step in ran if id == "s-2"] == [0, 1, 2]
    broken = False
    await make_due(road)
    while await road.command_worker.run_once():
        pass
    assert [step for id, step in ran if id == "s-1"] == [0, 1, 2]


async def test_a_command_that_failed_for_good_holds_nobody_up(road: Postroad) -> None:
    first, second = await submitted(road, ProposeTheme("s-1"), StartSession("s-1"))
    while await road.command_worker.run_once():
        pass
    assert (await found(road, first)).status is CommandStatus.FAILED
    assert (await found(road, second)).status is CommandStatus.COMPLETED


async def test_two_workers_share_the_commands_and_keep_the_order(road: Postroad) -> None:
    await submitted(road, StartSession("s-1"), *(ProposeTheme("s-1") for _ in range(5)), StartSession("s-2"))
    async with genesis(road.database_url, road.broker_url) as second:
        while sum(await asyncio.gather(road.command_worker.run_once(), second.command_worker.run_once())):
            pass
    assert (await kept(road))["commands"] == ["COMPLETED"] * 7
    stream = await road.events.stream("session", "s-1")
    assert [type(one.event).__name__ for one in stream] == ["SessionStarted"] + ["ThemeProposed"] * 5


@pytest.mark.spec("G4")
async def test_a_worker_takes_over_from_one_that_died(road: Postroad) -> None:
    (id,) = await submitted(road, StartSession("s-1"))
    (record,) = await road.executor.box.due(road.commands.handled, 10)
    async with road.store.transaction() as connection:
        assert await road.executor.box.take(record, connection)
    assert await road.command_worker.run_once() == 0
    await expire_leases(road)
    assert await road.command_worker.run_once() == 1
    assert (await found(road, id)).status is CommandStatus.COMPLETED


async def test_of_those_who_saw_the_same_command_one_takes_it(road: Postroad) -> None:
    await submitted(road, StartSession("s-1"))
    box = road.executor.box
    (record,) = await box.due(road.commands.handled, 10)
    async with road.store.transaction() as connection:
        assert await box.take(record, connection)
        assert not await box.take(record, connection)
        # Nor, while the lease lasts, one who has seen that somebody has it.
        assert not await box.take(replace(record, epoch=1, status=CommandStatus.PROCESSING), connection)
    # Nor one who has not seen that it was given back, or has failed, and waits for its next try.
    assert await box.release(Held(record.message, 0, 1), 60.0)
    assert not await _takes(road, record)
    released = await found(road, record.command_id)
    assert await _takes(road, released)
    assert await box.fail(Held(record.message, 0, 2), RuntimeError("no"), Retry(60.0), 1)
    assert not await _takes(road, replace(released, epoch=2, status=CommandStatus.PROCESSING))


async def _takes(road: Postroad, record: CommandRecord) -> bool:
    async with road.store.transaction() as connection:
        return await road.executor.box.take(record, connection) is not None


async def test_an_outage_costs_no_attempt(road: Postroad, caplog: pytest.LogCaptureFixture) -> None:
    (id,) = await submitted(road, StartSession("s-1"))
    with Strike().on(road.store) as strike:
        await road.command_worker.run_once()
    at = strike.points.index("before command_complete")
    (id,) = await submitted(road, StartSession("s-2"))
    with caplog.at_level(logging.WARNING), Strike(at, lambda: StoreUnavailable("away")).on(road.store):
        await road.command_worker.run_once()
    record = await found(road, id)
    assert (record.status, record.retry_count) == (CommandStatus.PENDING, 0)
    await make_due(road)
    await road.command_worker.run_once()
    assert (await found(road, id)).status is CommandStatus.COMPLETED


async def test_a_type_that_nobody_handles_here_waits_for_who_does(road: Postroad) -> None:
    async with genesis(road.database_url, road.broker_url) as other:
        trying(other, lambda command: _started(command))
        (id,) = await submitted(other, Try("s-1"))
        assert await road.command_worker.run_once() == 0
        assert (await found(road, id)).status is CommandStatus.PENDING
        assert await other.command_worker.run_once() == 1


async def _started(command: Try) -> object:
    return SessionStarted(command.session_id, "")


@pytest.mark.parametrize("store_kind", ["sqlite", "postgresql"])
async def test_a_running_service_carries_out_what_is_submitted_and_drains_it(road: Postroad) -> None:
    async with road.running():
        await submitted(road, StartSession("s-1"), ProposeTheme("s-1"), FinishSession("s-1"))
        await road.drain()
        assert (await kept(road))["commands"] == ["COMPLETED"] * 3
    assert road.command_worker.completed == 3
    async with road.running(groups=()):
        await submitted(road, ProposeTheme("s-1"))
    assert (await kept(road))["commands"] == ["COMPLETED"] * 3 + ["PENDING"]


@pytest.mark.parametrize("store_kind", ["sqlite", "postgresql"])
async def test_a_worker_that_is_stopped_finishes_what_it_has_begun(road: Postroad) -> None:
    begun, finish, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def act(command: Try) -> object:
        begun.set()
        await finish.wait()
        return SessionStarted(command.session_id, "")

    trying(road, act)
    (id,) = await submitted(road, Try("s-1"))
    running = asyncio.create_task(road.command_worker.run(stop))
    await begun.wait()
    stop.set()
    finish.set()
    await running
    assert (await found(road, id)).status is CommandStatus.COMPLETED
