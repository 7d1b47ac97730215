"""A command, its events and their outbox rows are one; the same id is the same command."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from postroad import Postroad
from postroad.commands import CommandRecord, CommandStatus
from postroad.errors import (
    AggregateNotFound,
    CommandConflict,
    CommandStillProcessing,
    ConfigurationError,
    InvalidCommand,
    NoTransaction,
    PermissionDenied,
    ValidationFailed,
)
from tests.support.genesis import (
    FinishSession,
    LibraryExtended,
    ProposeTheme,
    SessionFinished,
    SessionStarted,
    StartSession,
    expire_leases,
    kept,
)


async def record(road: Postroad, id: UUID) -> CommandRecord:
    found = await road.executor.box.find(id)
    assert found is not None
    return found


@pytest.mark.spec("G2")
async def test_a_command_its_events_and_their_outbox_rows_are_kept_together(road: Postroad) -> None:
    (started,) = await road.execute(StartSession("s-1", "Dawn"), user_id="ada", tenant="acme")
    assert started.event == SessionStarted("s-1", "Dawn")
    found = await kept(road)
    assert found["commands"] == ["COMPLETED"]
    assert found["events"] == found["outbox"] == [(road.store.id_in(started.id), "s-1", 1)]
    assert (started.message.tenant, started.message.user_id) == ("acme", "ada")
    done = await record(road, UUID(started.message.causation_id))
    assert (done.status, done.retry_count, done.error_message) == (CommandStatus.COMPLETED, 0, None)
    assert done.finished_at is not None


@pytest.mark.spec("G2")
async def test_events_are_kept_in_the_order_in_which_the_handler_gave_them(road: Postroad) -> None:
    id = uuid4()
    given = await road.execute(FinishSession("s-1"), command_id=id)
    assert [one.event for one in given] == [SessionFinished("s-1"), LibraryExtended("all", "s-1")]
    assert [one.event for one in await road.events.all()] == [one.event for one in given]
    assert await road.execute(FinishSession("s-1"), command_id=id) == given


@pytest.mark.spec("G2")
async def test_a_failure_undoes_everything_and_is_recorded_with_its_reason(road: Postroad) -> None:
    class Doomed(msgspec.Struct, frozen=True):
        session_id: str

    road.command("Command.Genesis.Session.Abandon", aggregate="session", key="session_id")(Doomed)

    @road.handles(Doomed)
    async def abandon(command: Doomed, session: object, road: Postroad) -> None:
        await session.execute(text("INSERT INTO notes VALUES ('half done')"))
        await road.events.append(session, [SessionStarted("s-1", "")])
        raise RuntimeError("the ink\nis out")

    async with road.store.transaction() as connection:
        await connection.exec_driver_sql("CREATE TABLE notes (note VARCHAR(20))")
    id = uuid4()
    with pytest.raises(RuntimeError, match="the ink"):
        await road.execute(Doomed("s-1"), command_id=id)
    failed = await record(road, id)
    assert (failed.status, failed.retry_count) == (CommandStatus.FAILED, 1)
    assert failed.error_message == "RuntimeError: the ink is out"
    assert failed.next_retry_at is None  # whoever waited for the answer has been told
    found = await kept(road)
    assert found["events"] == found["outbox"] == []
    async with road.store.reading() as connection:
        assert (await connection.exec_driver_sql("SELECT count(*) FROM notes")).scalar() == 0


async def test_what_a_handler_appends_by_itself_is_part_of_the_answer(road: Postroad) -> None:
    class Announce(msgspec.Struct, frozen=True):
        session_id: str

    road.command("Command.Genesis.Session.Announce", aggregate="session", key="session_id")(Announce)

    @road.handles(Announce)
    async def announce(command: Announce, session: AsyncSession, road: Postroad) -> SessionFinished:
        await road.events.append(session, [SessionStarted(command.session_id, "")])
        return SessionFinished(command.session_id)

    given = await road.execute(Announce("s-1"))
    assert [one.event for one in given] == [SessionStarted("s-1", ""), SessionFinished("s-1")]


async def test_a_command_that_is_run_again_answers_with_what_it_has_brought_about_before(road: Postroad) -> None:
    class Remind(msgspec.Struct, frozen=True):
        session_id: str

    road.command("Command.Genesis.Session.Remind", aggregate="session", key="session_id")(Remind)
    events: list[object] = [SessionStarted("s-1", "")]

    @road.handles(Remind)
    def remind(command: Remind) -> list[object]:
        return [events.pop()] if events else []

    id = uuid4()
    first = await road.execute(Remind("s-1"), command_id=id)
    await road.store.change("repair_command", command_id=id)
    assert await road.execute(Remind("s-1"), command_id=id) == first
    assert [one.event for one in first] == [SessionStarted("s-1", "")]


@pytest.mark.spec("G4")
async def test_a_completed_command_answers_with_its_earlier_events(road: Postroad) -> None:
    id = uuid4()
    first = await road.execute(StartSession("s-1"), command_id=id)
    assert await road.execute(StartSession("s-1"), command_id=str(id)) == first
    assert (await kept(road))["commands"] == ["COMPLETED"]
    # With another id it is another command, and the aggregate objects.
    with pytest.raises(PermissionDenied):
        await road.execute(StartSession("s-1"))


@pytest.mark.spec("G4")
async def test_a_command_that_somebody_carries_out_is_still_processing(road: Postroad) -> None:
    id = uuid4()
    begun, finish = _slow(road)
    first = asyncio.create_task(road.execute(Slow("s-1"), command_id=id))
    await begun.wait()
    if not road.store.one_writer:  # there, whoever asks waits until it is done
        with pytest.raises(CommandStillProcessing, match=f"{id} is still being processed"):
            await road.execute(Slow("s-1"), command_id=id)
    finish.set()
    (done,) = await first
    assert [one.id for one in await road.execute(Slow("s-1"), command_id=id)] == [done.id]


@pytest.mark.spec("G4")
async def test_while_a_lease_lasts_nobody_else_may_begin(road: Postroad) -> None:
    """Also where its holder has died: nobody can know yet."""
    id = uuid4()
    message = road.executor.envelope(StartSession("s-1"), command_id=id, correlation_id=None, tenant=None, user_id=None)
    async with road.store.transaction() as connection:
        await road.executor.box.open(connection, message)
    with pytest.raises(CommandStillProcessing):
        await road.execute(StartSession("s-1"), command_id=id)
    assert await road.command_worker.run_once() == 0
    await expire_leases(road)
    assert len(await road.execute(StartSession("s-1"), command_id=id)) == 1


@pytest.mark.spec("G4")
async def test_a_failed_command_may_be_tried_again(road: Postroad) -> None:
    id = uuid4()
    for failures in (1, 2):
        with pytest.raises(AggregateNotFound):
            await road.execute(ProposeTheme("s-1"), command_id=id)
        assert (await record(road, id)).retry_count == failures
    await road.execute(StartSession("s-1"))
    (proposed,) = await road.execute(ProposeTheme("s-1"), command_id=id)
    assert proposed.version == 2


@pytest.mark.parametrize("other", [StartSession("s-1", "another title"), ProposeTheme("s-1")])
async def test_one_id_cannot_stand_for_two_commands(road: Postroad, other: object) -> None:
    id = uuid4()
    await road.execute(StartSession("s-1"), command_id=id)
    with pytest.raises(CommandConflict, match=r"stands for another Command\.Genesis\.Session\.Start already"):
        await road.execute(other, command_id=id)
    with pytest.raises(CommandConflict):
        async with road.session() as session, session.begin():
            await road.submit(session, other, command_id=id)


@pytest.mark.spec("G6")
@pytest.mark.parametrize(
    ("command", "id", "told"),
    [
        (StartSession("s-1", 5), None, "Start: field title"),  # type: ignore[arg-type]
        (StartSession("", "x"), None, "field session_id: is empty"),
        (StartSession("s-1", "\0"), None, "field title"),
        (StartSession("s-1"), "not-an-id", "field command_id: 'not-an-id' is neither a UUID nor a ULID"),
    ],
)
async def test_what_cannot_be_stored_is_refused_by_field_and_leaves_nothing(
    road: Postroad, command: object, id: str | None, told: str
) -> None:
    with pytest.raises(InvalidCommand, match=told):
        await road.execute(command, command_id=id)
    assert (await kept(road))["commands"] == []


@pytest.mark.spec("G6")
@pytest.mark.parametrize("field", ["correlation_id", "user_id"])
@pytest.mark.parametrize(("value", "told"), [(5, "is int, not text or UUID"), ("", "must not be empty")])
async def test_whom_a_command_comes_from_is_text_or_a_uuid(road: Postroad, field: str, value: Any, told: str) -> None:
    with pytest.raises(InvalidCommand, match=f"field {field}: {told}"):
        await road.execute(StartSession("s-1"), **{field: value})
    assert (await kept(road))["commands"] == []


@pytest.mark.spec("G6")
async def test_what_the_command_itself_objects_to_is_recorded_as_failed(road: Postroad) -> None:
    id = uuid4()
    with pytest.raises(ValidationFailed, match="StartSession: field title: must not be empty"):
        await road.execute(StartSession("s-1", " "), command_id=id)
    assert (await record(road, id)).status is CommandStatus.FAILED


# -- in somebody else's transaction ----------------------------------------------------------------------


@pytest.mark.spec("G2")
async def test_a_command_that_joins_a_transaction_shares_its_fate(road: Postroad) -> None:
    id = uuid4()
    async with road.session() as session, session.begin() as transaction:
        assert len(await road.execute(StartSession("s-1"), session=session, command_id=id)) == 1
        await transaction.rollback()
    assert await kept(road) == {"commands": [], "events": [], "outbox": []}
    async with road.session() as session, session.begin():
        (started,) = await road.execute(StartSession("s-1"), session=session, command_id=id)
        # What is not committed yet is seen by those who share the transaction.
        assert [one.id for one in await road.execute(StartSession("s-1"), session=session, command_id=id)] == [
            started.id
        ]
        await road.execute(ProposeTheme("s-1"), session=session)
    assert (await kept(road))["commands"] == ["COMPLETED", "COMPLETED"]


@pytest.mark.spec("G2")
async def test_a_joined_command_that_fails_leaves_nothing_if_the_caller_goes_on(road: Postroad) -> None:
    async with road.session() as session, session.begin():
        await road.execute(StartSession("s-1"), session=session)
        with pytest.raises(PermissionDenied):
            await road.execute(StartSession("s-1", "again"), session=session)
    found = await kept(road)
    assert found["commands"] == ["COMPLETED"]
    assert len(found["events"]) == len(found["outbox"]) == 1


async def test_inside_a_handler_a_command_has_to_join_its_transaction(road: Postroad) -> None:
    class Nested(msgspec.Struct, frozen=True):
        session_id: str

    road.command("Command.Genesis.Session.Nest", aggregate="session", key="session_id")(Nested)

    @road.handles(Nested)
    async def nest(command: Nested, road: Postroad) -> None:
        await road.execute(StartSession(command.session_id))

    with pytest.raises(ConfigurationError, match=r"await road.execute\(command, session=session\)"):
        await road.execute(Nested("s-1"))
    assert (await kept(road))["events"] == []


# -- written down for a worker ---------------------------------------------------------------------------


async def test_a_submitted_command_commits_with_the_callers_rows_or_not_at_all(road: Postroad) -> None:
    async with road.session() as session, session.begin() as transaction:
        await road.submit(session, StartSession("s-1"))
        await transaction.rollback()
    assert (await kept(road))["commands"] == []
    id = uuid4()
    for _ in range(2):  # the same again is nothing new
        async with road.session() as session, session.begin():
            assert (await road.submit(session, StartSession("s-1"), command_id=id)).id == id
    async with road.store.engine.begin() as connection:
        await road.submit(connection, ProposeTheme("s-1"))
    async with road.session() as session, session.begin():
        await session.run_sync(lambda sync: road.submit(sync, ProposeTheme("s-1")))
    assert (await kept(road))["commands"] == ["PENDING"] * 3
    while await road.command_worker.run_once():
        pass
    assert (await kept(road))["commands"] == ["COMPLETED"] * 3
    assert [one.version for one in await road.events.stream("session", "s-1")] == [1, 2, 3]


async def test_submitting_outside_a_transaction_or_without_awaiting_is_told(road: Postroad) -> None:
    async with road.session() as session:
        with pytest.raises(NoTransaction, match=r"await road.submit\(session, command\)"):
            road.submit(session, StartSession("s-1"))
        async with session.begin():
            with pytest.warns(RuntimeWarning, match="NOT stored, because its `submit` was never awaited"):
                road.submit(session, StartSession("s-1"))
    with pytest.raises(ConfigurationError, match="cannot write through a str"):
        road.submit("session", StartSession("s-1"))  # type: ignore[arg-type]


class Slow(msgspec.Struct, frozen=True):
    session_id: str


def _slow(road: Postroad) -> tuple[asyncio.Event, asyncio.Event]:
    begun, finish = asyncio.Event(), asyncio.Event()
    road.command("Command.Genesis.Session.Delay", aggregate="session", key="session_id")(Slow)

    @road.handles(Slow)
    async def delay(command: Slow) -> object:
        begun.set()
        await finish.wait()
        return SessionStarted(command.session_id, "late")

    return begun, finish
