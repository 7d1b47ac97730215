"""What may be done, by whom, with which particulars. Pages and API do the same things through this table."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import quote
from uuid import UUID

import msgspec

from postroad import consistency, operations
from postroad.dashboard import desk as reading
from postroad.dashboard.access import Role, User
from postroad.dashboard.desk import Desk
from postroad.dashboard.jobs import Find
from postroad.errors import OperationRefused
from postroad.operations import audit, doctor, results

S = TypeVar("S", bound="Particulars")


class Particulars(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    reason: str = ""


class SomeEvents(Particulars, frozen=True):
    ids: list[str]


class MatchingEvents(Particulars, frozen=True):
    state: str = "FAILED"
    type: str = ""
    key: str = ""
    text: str = ""
    since: str = ""
    until: str = ""


class OneEvent(Particulars, frozen=True):
    id: str


class Edited(Particulars, frozen=True):
    id: str
    payload: str
    """JSON. What was hidden may stay hidden: it keeps its value."""


class InGroup(Particulars, frozen=True):
    group: str
    id: str


class SomeInGroup(Particulars, frozen=True):
    group: str
    ids: list[str]


class MatchingInGroup(Particulars, frozen=True):
    group: str
    cause: str = ""


class MatchingCommands(Particulars, frozen=True):
    type: str = ""


class SomeDead(Particulars, frozen=True):
    topic: str
    ids: list[str]


class MatchingDead(Particulars, frozen=True):
    topic: str = ""
    group: str = ""
    cause: str = ""


class OneGroup(Particulars, frozen=True):
    group: str


class OneOutbox(Particulars, frozen=True):
    outbox: str


class OneWorker(Particulars, frozen=True):
    worker: str


class OneOwner(Particulars, frozen=True):
    owner: str


@dataclass(frozen=True, slots=True)
class Done:
    message: str
    go: str
    """The page that shows what became of it."""
    job: str = ""


@dataclass(frozen=True, slots=True)
class Act:
    title: str
    role: Role
    takes: type[Particulars]
    run: Callable[[Desk, User, Any], Awaitable[Done]]


async def _retry(desk: Desk, user: User, given: SomeEvents) -> Done:
    if not given.ids:
        raise OperationRefused("ids is empty. Choose at least one event.")
    ids = [reading.event_id(id) for id in given.ids]
    await operations.retry_events(desk.road.store, desk.road.outboxes, ids, actor=user.name, reason=given.reason)
    go = f"/outbox/{quote(given.ids[0], safe='')}" if len(ids) == 1 else "/outbox"
    return Done(f"{_count(len(ids), 'event')} will be tried again", go)


async def _retry_matching(desk: Desk, user: User, given: MatchingEvents) -> Done:
    road, wanted = desk.road, reading.retryable(desk, msgspec.structs.asdict(given), user)

    async def find() -> Sequence[Any]:
        return await operations.retryable_ids(road.store, road.outboxes, wanted)

    async def piece(ids: Any) -> None:
        await operations.retry_events(road.store, road.outboxes, ids, actor=user.name, reason=given.reason)

    return _started(desk, user, "Retry of events", find, piece)


async def _skip(desk: Desk, user: User, given: OneEvent) -> Done:
    road, id = desk.road, reading.event_id(given.id)
    await operations.skip_event(road.store, road.outboxes, id, actor=user.name, reason=given.reason)
    return Done("The event is skipped; its key goes on", f"/outbox/{quote(given.id, safe='')}")


async def _resend(desk: Desk, user: User, given: Edited) -> Done:
    id = reading.own_id(given.id)
    payload = await _restored(desk, given)
    new = await operations.resend_event(desk.road, id, payload, actor=user.name, reason=given.reason)
    return Done("A new event is in the outbox", f"/outbox/{new}")


async def _restored(desk: Desk, given: Edited) -> str:
    """With what the form could only show as hidden."""
    detail = await operations.outbox_event(desk.road.store, desk.road.outboxes, reading.own_id(given.id))
    try:
        edited = msgspec.json.decode(given.payload)
    except msgspec.DecodeError:
        return given.payload  # to be refused with a better reason than ours
    restored = desk.mask.restore(edited, detail.payload)
    return given.payload if restored == edited else msgspec.json.encode(restored).decode()


async def _run_now(desk: Desk, user: User, given: OneEvent) -> Done:
    await operations.run_now(desk.road, reading.own_id(given.id), actor=user.name, reason=given.reason)
    return Done("The event is on its way now", f"/outbox/{given.id}")


async def _inbox_retry(desk: Desk, user: User, given: SomeInGroup) -> Done:
    road, ids = desk.road, _own_ids(given.ids)
    await operations.retry_records(road.store, road.broker, given.group, ids, actor=user.name, reason=given.reason)
    return Done(f"{given.group} will handle {_them(ids)} again", _group(given.group, ids))


async def _inbox_retry_matching(desk: Desk, user: User, given: MatchingInGroup) -> Done:
    road, group = desk.road, given.group

    async def find() -> Sequence[Any]:
        ids = [one.event_id for one in await operations.failed_records(road.store, group, given.cause)]
        # Once for all of them: each look at the dead letters reads them to the end.
        letters.update(await operations.letters_of(road.store, road.broker, group, ids))
        return ids

    async def piece(ids: Any) -> None:
        await operations.retry_records(
            road.store, road.broker, group, ids, actor=user.name, reason=given.reason, letters=letters
        )

    letters: dict[UUID, Sequence[operations.DeadEvent]] = {}
    return _started(desk, user, f"Retry in {group}", find, piece)


async def _inbox_discard(desk: Desk, user: User, given: SomeInGroup) -> Done:
    road, ids = desk.road, _own_ids(given.ids)
    await operations.discard_records(road.store, road.broker, given.group, ids, actor=user.name, reason=given.reason)
    return Done(f"{given.group} will not handle {_them(ids)} any more", _group(given.group, ids))


async def _replay(desk: Desk, user: User, given: InGroup) -> Done:
    road, id = desk.road, reading.own_id(given.id)
    await operations.replay_event(
        road.store, road.outboxes, given.group, id, actor=user.name, reason=given.reason, broker=road.broker
    )
    ours = await operations.is_ours(road.store, road.outboxes, id)
    return Done(f"{given.group} will handle it once more", f"/outbox/{id}" if ours else _group(given.group, [id]))


async def _dead_retry(desk: Desk, user: User, given: SomeDead) -> Done:
    road = desk.road
    dead = await operations.find_dead(road.broker, [given.topic], given.ids)
    count = await operations.retry_dead(road.store, road.broker, dead, actor=user.name, reason=given.reason)
    return Done(f"{_count(count, 'dead letter')} given back", "/dead")


async def _dead_retry_matching(desk: Desk, user: User, given: MatchingDead) -> Done:
    road = desk.road

    async def find() -> Sequence[Any]:
        return await reading.own_dead(desk, msgspec.structs.asdict(given))

    async def piece(dead: Any) -> None:
        await operations.retry_dead(road.store, road.broker, dead, actor=user.name, reason=given.reason)

    return _started(desk, user, "Dead letters given back", find, piece)


async def _discard(desk: Desk, user: User, given: SomeDead) -> Done:
    road = desk.road
    dead = await operations.find_dead(road.broker, [given.topic], given.ids)
    count = await operations.discard_dead(road.store, road.broker, dead, actor=user.name, reason=given.reason)
    return Done(f"{_count(count, 'dead letter')} discarded", "/dead")


async def _pause(desk: Desk, user: User, given: OneGroup) -> Done:
    road = desk.road
    await operations.pause_group(road.store, road.groups, given.group, actor=user.name, reason=given.reason)
    return Done(f"{given.group} takes no more within seconds; what is in hand is finished", "/groups")


async def _resume(desk: Desk, user: User, given: OneGroup) -> Done:
    await operations.resume_group(desk.road.store, given.group, actor=user.name, reason=given.reason)
    return Done(f"{given.group} goes on where it stood", "/groups")


async def _pause_outbox(desk: Desk, user: User, given: OneOutbox) -> Done:
    road = desk.road
    await operations.pause_outbox(road.store, road.outboxes, given.outbox, actor=user.name, reason=given.reason)
    return Done(f"Nothing more is sent from {given.outbox} within seconds", "/workers")


async def _resume_outbox(desk: Desk, user: User, given: OneOutbox) -> Done:
    await operations.resume_outbox(desk.road.store, given.outbox, actor=user.name, reason=given.reason)
    return Done(f"{given.outbox} goes on where it stood", "/workers")


async def _drain(desk: Desk, user: User, given: OneWorker) -> Done:
    await operations.drain_worker(desk.road.store, given.worker, actor=user.name, reason=given.reason)
    return Done(f"{given.worker} finishes what is in hand and takes no more", "/workers")


async def _release(desk: Desk, user: User, given: OneOwner) -> Done:
    count = await operations.release_leases(desk.road.store, given.owner, actor=user.name, reason=given.reason)
    return Done(f"{_count(count, 'shard')} of {given.owner} can be taken by others", "/workers")


async def _command_retry(desk: Desk, user: User, given: SomeEvents) -> Done:
    ids = _own_ids(given.ids)
    await operations.retry_commands(desk.road.store, ids, actor=user.name, reason=given.reason)
    go = f"/commands/{ids[0]}" if len(ids) == 1 else "/commands"
    return Done(f"A worker will carry {_them(ids, 'command')} out again", go)


async def _command_retry_matching(desk: Desk, user: User, given: MatchingCommands) -> Done:
    store = desk.road.store

    async def find() -> Sequence[Any]:
        return await operations.failed_commands(store, given.type)

    async def piece(ids: Any) -> None:
        await operations.retry_commands(store, ids, actor=user.name, reason=given.reason)

    return _started(desk, user, "Retry of commands", find, piece)


async def _check(desk: Desk, user: User, given: Particulars) -> Done:
    road = desk.road

    async def piece(_: Any) -> None:
        await results.keep(road.store, results.CHECK, await consistency.check(road), actor=user.name)
        losses = (await consistency.verify(road)).losses
        await results.keep(road.store, results.VERIFY, consistency.shortened(losses), actor=user.name)

    await _asked(desk, user, "consistency.check", given)
    return _started(desk, user, "Check of consistency", _once, piece, "/consistency")


async def _examine(desk: Desk, user: User, given: Particulars) -> Done:
    road = desk.road

    async def piece(_: Any) -> None:
        await results.keep(road.store, results.DOCTOR, await doctor.examine(road), actor=user.name)

    await _asked(desk, user, "doctor.examine", given)
    return _started(desk, user, "The doctor's examination", _once, piece, "/doctor")


async def _asked(desk: Desk, user: User, action: str, given: Particulars) -> None:
    """Who set a job going that only looks; those that change something write it down with each change."""
    store = desk.road.store
    async with store.transaction() as connection:
        await audit.record(
            store, connection, actor=user.name, action=action, subject=desk.road.source, detail=given.reason
        )


async def _once() -> Sequence[Any]:
    return [None]


def _started(desk: Desk, user: User, title: str, find: Find, piece: Any, shows: str = "") -> Done:
    job = desk.jobs.start(title, user.name, find, piece, shows)
    return Done(f"{title} has begun", f"/jobs/{job.id}", job.id)


def _own_ids(ids: Sequence[str]) -> Sequence[UUID]:
    if not ids:
        raise OperationRefused("ids is empty. Choose at least one.")
    return [reading.own_id(id) for id in ids]


def _group(group: str, ids: Sequence[UUID]) -> str:
    page = f"/groups/{quote(group, safe='')}"
    return f"{page}/{ids[0]}" if len(ids) == 1 else page


def _them(ids: Sequence[UUID], noun: str = "event") -> str:
    return "it" if len(ids) == 1 else _count(len(ids), noun)


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


ACTS: Final[Mapping[str, Act]] = {
    "outbox.retry": Act("Try events again", Role.OPERATOR, SomeEvents, _retry),
    "outbox.retry_matching": Act("Try again all events that match", Role.OPERATOR, MatchingEvents, _retry_matching),
    "outbox.skip": Act("Never send an event", Role.ADMIN, OneEvent, _skip),
    "outbox.resend": Act("Send an edited copy of an event", Role.ADMIN, Edited, _resend),
    "outbox.run_now": Act("Deliver a delayed event now", Role.OPERATOR, OneEvent, _run_now),
    "inbox.retry": Act("Handle failed events again", Role.OPERATOR, SomeInGroup, _inbox_retry),
    "inbox.retry_matching": Act(
        "Handle again all of a group that failed", Role.OPERATOR, MatchingInGroup, _inbox_retry_matching
    ),
    "inbox.discard": Act("Give failed events up for good", Role.ADMIN, SomeInGroup, _inbox_discard),
    "inbox.replay": Act("Handle an event once more in one group", Role.OPERATOR, InGroup, _replay),
    "dlq.retry": Act("Give dead letters back", Role.OPERATOR, SomeDead, _dead_retry),
    "dlq.retry_matching": Act("Give back all of ours that match", Role.OPERATOR, MatchingDead, _dead_retry_matching),
    "group.pause": Act("Let a group stand still", Role.OPERATOR, OneGroup, _pause),
    "group.resume": Act("Let a paused group go on", Role.OPERATOR, OneGroup, _resume),
    "outbox.pause": Act("Send nothing more from an outbox", Role.OPERATOR, OneOutbox, _pause_outbox),
    "outbox.resume": Act("Let a paused outbox go on", Role.OPERATOR, OneOutbox, _resume_outbox),
    "worker.drain": Act("Let a worker take no more", Role.OPERATOR, OneWorker, _drain),
    "lease.release": Act("Take the shards of a relay that is gone", Role.OPERATOR, OneOwner, _release),
    "command.retry": Act("Carry out failed commands again", Role.OPERATOR, SomeEvents, _command_retry),
    "command.retry_matching": Act(
        "Carry out again all commands that failed", Role.OPERATOR, MatchingCommands, _command_retry_matching
    ),
    "consistency.check": Act("Look whether everything fits together", Role.OPERATOR, Particulars, _check),
    "doctor.examine": Act("Examine the installation", Role.OPERATOR, Particulars, _examine),
    "dlq.discard": Act("Throw dead letters away", Role.ADMIN, SomeDead, _discard),
}


class Forbidden(OperationRefused):
    """The visitor may come in, but not do this."""


async def do(desk: Desk, user: User, name: str, given: Mapping[str, Any]) -> Done:
    act = ACTS.get(name)
    if act is None:
        raise OperationRefused(f"There is no act {name!r}. There are: {', '.join(ACTS)}.")
    if not user.may(act.role):
        raise Forbidden(f"{act.title} needs the role {act.role.name.lower()}; {user.name} is {user.role.name.lower()}.")
    try:
        particulars = msgspec.convert(given, act.takes)
    except msgspec.ValidationError as error:
        raise OperationRefused(f"{name}: {error}. The API document says what it takes.") from None
    done = await act.run(desk, user, particulars)
    await desk.watch.status(fresh=True)
    return done
