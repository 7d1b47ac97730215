"""What the pages and the API read: the same questions, the same masked answers."""

import re
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote
from uuid import UUID

from postroad import consistency, operations
from postroad.app import Postroad
from postroad.dashboard.access import Door, Role, User
from postroad.dashboard.jobs import Jobs
from postroad.dashboard.mask import Mask
from postroad.dashboard.watch import Watch
from postroad.errors import BrokerError, OperationRefused
from postroad.inbox.records import Records
from postroad.message import parse_id, rfc3339
from postroad.operations import doctor, results

PAGE: Final = 50
TRACE_ID: Final = "{trace_id}"


@dataclass(frozen=True, slots=True)
class Checked:
    at: datetime
    actor: str
    report: consistency.Report


@dataclass(frozen=True, slots=True)
class Compared:
    at: datetime
    actor: str
    losses: Sequence[consistency.Loss]
    """The first of them."""


@dataclass(frozen=True, slots=True)
class Examined:
    at: datetime
    actor: str
    report: doctor.Report


@dataclass(frozen=True, slots=True)
class Consistency:
    """The last of each, wherever it was made."""

    checked: Checked | None
    compared: Compared | None


@dataclass(frozen=True)
class Desk:
    road: Postroad
    door: Door
    mask: Mask
    watch: Watch
    trace_url: str = ""
    jobs: Jobs = field(default_factory=Jobs)


@dataclass(frozen=True, slots=True)
class EventPage:
    events: Sequence[operations.OutboxEvent]
    next: str
    """The `after` of the next page; empty on the last one."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """What one group did with an event."""

    group: str
    state: str
    """As in the inbox; "not here" if the group has no record of it, "dead" if the broker holds it as dead."""
    retry_count: int = 0
    error: str = ""
    received_at: datetime | None = None
    processed_at: datetime | None = None
    next_retry_at: datetime | None = None
    handlers: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class EventView:
    detail: operations.OutboxDetail
    arrivals: Sequence[Arrival]
    editable: bool
    trace: str
    """Where its trace is shown; empty if nobody traced it, or nobody has said where."""
    broker_delays: bool
    """Whether the broker keeps a delayed event until its time; else the outbox does."""


@dataclass(frozen=True, slots=True)
class DeadPage:
    letters: Sequence[operations.DeadEvent]
    next: str
    """The `after` of the next page; empty on the last one."""


@dataclass(frozen=True, slots=True)
class RecordView:
    """What a group knows of an event, whoever sent it."""

    detail: operations.InboxDetail
    state: str
    """As in the inbox; "dead" if the broker holds it as dead."""
    letter: str
    """The dead letter's id."""
    payload_from: str
    """record, dead letter or outbox; empty if it is in none of them."""
    ours: bool
    """Whether it is in an outbox of this service."""
    handlers: Sequence[str]
    others: Sequence[operations.InboxRecord]
    """What the other groups here made of it."""


def filter_of(desk: Desk, query: Mapping[str, str], user: User) -> operations.Filter:
    state = query.get("state", "").upper()
    if state and state not in operations.STATES:
        raise OperationRefused(f"state is {state!r}. It can be {', '.join(operations.STATES)}.")
    return operations.Filter(
        state=state,
        type=query.get("type", "").strip(),
        key=query.get("key", "").strip(),
        text=query.get("text", "").strip(),
        since=moment(query, "since"),
        until=moment(query, "until"),
        # Nobody may find out by searching what is hidden from him: in payloads, much may be from who only looks.
        payloads=not desk.mask.rules and user.may(Role.OPERATOR),
    )


def moment(query: Mapping[str, str], name: str) -> datetime | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise OperationRefused(f"{name} is {text!r}. Write a time such as 2026-11-17T03:00.") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def cursor(at: datetime, id: object) -> str:
    return f"{rfc3339(at)}~{id}"


def parse_cursor(text: str) -> tuple[datetime, UUID | str] | None:
    if not text:
        return None
    at, _, id = text.partition("~")
    try:
        return datetime.fromisoformat(at), event_id(id)
    except ValueError:
        raise OperationRefused(f"after is {text!r}, which is no place in a list. Take it from a page.") from None


def event_id(text: str) -> UUID | str:
    try:
        return parse_id(text)
    except ValueError:
        return text


def own_id(text: str) -> UUID:
    """For what is done to events that Postroad has written itself."""
    try:
        return parse_id(text)
    except ValueError as error:
        raise OperationRefused(f"id: {error}. Copy the whole id from the list.") from None


async def events(desk: Desk, query: Mapping[str, str], user: User) -> EventPage:
    wanted, after = filter_of(desk, query, user), parse_cursor(query.get("after", ""))
    found = await operations.search(desk.road.store, desk.road.outboxes, wanted, limit=PAGE, after=after)
    return EventPage(found.events, cursor(*found.next) if found.next else "")


def retryable(desk: Desk, query: Mapping[str, str], user: User) -> operations.Filter:
    """What "retry all that match" would act on: parked ones, or those of the state that was asked for."""
    wanted = filter_of(desk, query, user)
    if wanted.state and wanted.state not in operations.RETRYABLE:
        raise OperationRefused(f"What is {wanted.state} cannot be retried. Choose {' or '.join(operations.RETRYABLE)}.")
    return replace(wanted, state=wanted.state or "FAILED")


async def retryable_count(desk: Desk, query: Mapping[str, str], user: User) -> int:
    return await operations.retryable_count(desk.road.store, desk.road.outboxes, retryable(desk, query, user))


async def event(desk: Desk, id: str) -> EventView:
    road = desk.road
    detail = await operations.outbox_event(road.store, road.outboxes, event_id(id))
    return EventView(
        detail=replace(detail, payload=desk.mask(detail.payload), attributes=desk.mask(detail.attributes)),
        arrivals=await _arrivals(desk, detail),
        editable=operations.is_editable(detail),
        trace=_trace(desk, str(detail.attributes.get("trace_id", ""))),
        broker_delays=desk.road.broker.features.delay,
    )


def _trace(desk: Desk, id: str) -> str:
    return desk.trace_url.replace(TRACE_ID, quote(id, safe="")) if id else ""


async def _arrivals(desk: Desk, detail: operations.OutboxDetail) -> Sequence[Arrival]:
    """Of every group that could have it: those that read its topic, and those that have a record of it."""
    road, id = desk.road, detail.event.id
    status = await desk.watch.status()
    found = []
    for group in sorted({*road.groups, *(one.group for one in status.groups)}):
        handlers = [h.name for h in road.registry.handlers(group) if h.event_type.name == detail.event.type]
        record = await Records(road.store).find(group, id) if isinstance(id, UUID) else None
        if record is not None:
            told = (await operations.inbox_record(road.store, group, record.event_id)).record
            state = "dead" if told.state == "failed" and await _is_dead(desk, group, told) else told.state
            found.append(
                Arrival(
                    group, state, told.retry_count, told.error or "",
                    told.received_at, told.processed_at, told.next_retry_at, handlers,
                )
            )  # fmt: skip
        elif handlers:
            found.append(Arrival(group, "not here", handlers=handlers))
    return found


async def _is_dead(desk: Desk, group: str, record: operations.InboxRecord) -> bool:
    return bool(await _letters(desk, group, record))


async def _letters(desk: Desk, group: str, record: operations.InboxRecord) -> Sequence[operations.DeadEvent]:
    try:
        return await operations.dead_of(desk.road.broker, record.topic, group, record.event_id)
    except BrokerError:
        return []


async def dead_letters(desk: Desk, query: Mapping[str, str]) -> DeadPage:
    """Of one topic or of all; `group` and `cause` narrow it further."""
    broker = desk.road.broker
    topics = [query["topic"]] if query.get("topic") else await operations.topics_of(broker)
    group, cause, after = (query.get(name, "") for name in ("group", "cause", "after"))
    found: list[operations.DeadEvent] = []
    async with aclosing(operations.dead_from(broker, topics, after, group=group, cause=cause)) as letters:
        async for letter in letters:
            found.append(letter)
            if len(found) > PAGE:
                break
    shown = await operations.with_attempts(desk.road.store, found[:PAGE])
    more = operations.place_of_dead(found[PAGE - 1]) if len(found) > PAGE else ""
    return DeadPage([masked_dead(desk, one) for one in shown], more)


async def own_dead(desk: Desk, query: Mapping[str, str]) -> Sequence[operations.DeadEvent]:
    """What "retry all that match" would give back."""
    road, narrowed = desk.road, {name: query.get(name, "") for name in ("topic", "group", "cause")}
    return await operations.own_dead(road.store, road.broker, road.groups, **narrowed)


def masked_dead(desk: Desk, dead: operations.DeadEvent) -> operations.DeadEvent:
    attributes: dict[str, str] = desk.mask(dict(dead.attributes))
    return replace(dead, payload=desk.mask(dead.payload), attributes=attributes)


async def causes(desk: Desk) -> Sequence[operations.Cause]:
    """A broker that is out does not hide what the database knows."""
    road = desk.road
    try:
        return await operations.causes(road.store, road.outboxes, road.broker)
    except BrokerError:
        return await operations.causes(road.store, road.outboxes, None)


async def records(desk: Desk, group: str, query: Mapping[str, str]) -> Sequence[operations.InboxRecord]:
    after = (group, own_id(query["after"])) if query.get("after") else None
    failed, cause = query.get("failed") == "1", query.get("cause", "")
    return await operations.inbox_page(
        desk.road.store, group=group, failed=failed, cause=cause, limit=PAGE, after=after
    )


async def record(desk: Desk, group: str, id: str) -> RecordView:
    road, event_id = desk.road, own_id(id)
    detail = await operations.inbox_record(road.store, group, event_id)
    letters = await _letters(desk, group, detail.record) if detail.record.state == "failed" else []
    ours = await operations.is_ours(road.store, road.outboxes, event_id)
    source = "record" if detail.message is not None else ""
    if not source and letters:
        source, detail = "dead letter", replace(detail, message=letters[0].attributes, payload=letters[0].payload)
    elif not source and ours:
        kept = await operations.outbox_event(road.store, road.outboxes, event_id)
        source, detail = "outbox", replace(detail, payload=kept.payload)
    return RecordView(
        detail=replace(detail, message=desk.mask(detail.message), payload=desk.mask(detail.payload)),
        state="dead" if letters else detail.record.state,
        letter=letters[0].id if letters else "",
        payload_from=source,
        ours=ours,
        handlers=[one.name for one in road.registry.handlers(group) if one.event_type.name == detail.record.type],
        others=[one for one in await operations.records_of(road.store, event_id) if one.group != group],
    )


async def recorded(desk: Desk, id: str) -> str:
    """A group that has handled, or failed to handle, an event from another service's outbox; empty if none has."""
    road = desk.road
    if await operations.is_ours(road.store, road.outboxes, event_id(id)):
        return ""
    return next((one.group for one in await operations.records_of(road.store, event_id(id))), "")


async def commands(desk: Desk, query: Mapping[str, str]) -> Sequence[operations.CommandView]:
    status = query.get("status", "").upper()
    if status and status not in operations.COMMAND_STATES:
        raise OperationRefused(f"status is {status!r}. It can be {', '.join(operations.COMMAND_STATES)}.")
    after = own_id(query["after"]) if query.get("after") else None
    kind = query.get("type", "").strip()
    return await operations.command_page(desk.road.store, status=status, type=kind, limit=PAGE, after=after)


async def command(desk: Desk, id: str) -> operations.CommandDetail:
    detail = await operations.command_detail(desk.road.store, own_id(id))
    return replace(detail, payload=desk.mask(detail.payload))


async def history(desk: Desk, type: str, id: str, query: Mapping[str, str]) -> Sequence[operations.OutboxEvent]:
    road = desk.road
    return await operations.aggregate_history(
        road.store, road.outboxes, type, id, limit=PAGE, before=_before(query, operations.LAST_VERSION)
    )


async def scheduled(desk: Desk, query: Mapping[str, str]) -> Sequence[operations.OutboxEvent]:
    after = parse_cursor(query.get("after", ""))
    return await operations.scheduled(desk.road.store, desk.road.outboxes, limit=PAGE, after=after)


async def audit(desk: Desk, query: Mapping[str, str]) -> Sequence[operations.Act]:
    subject, before = query.get("subject", "").strip(), _before(query, operations.NEWEST_ACT)
    return await operations.acts(desk.road.store, subject=subject, limit=PAGE, before=before)


def _before(query: Mapping[str, str], newest: int) -> int:
    return int(text) if re.fullmatch("[0-9]{1,18}", text := query.get("before", "")) else newest


async def consistent(desk: Desk) -> Consistency:
    checked = await results.last(desk.road.store, results.CHECK, consistency.Report)
    compared = await results.last(desk.road.store, results.VERIFY, list[consistency.Loss])
    return Consistency(Checked(*checked) if checked else None, Compared(*compared) if compared else None)


async def examined(desk: Desk) -> Examined | None:
    found = await results.last(desk.road.store, results.DOCTOR, doctor.Report)
    return Examined(*found) if found else None


async def chain(desk: Desk, id: str) -> operations.Trace:
    """By a correlation id, or by the id of any event or command in it; without steps if there is nothing."""
    try:
        return await operations.trace_of(desk.road.store, desk.road.outboxes, id)
    except OperationRefused:
        return operations.Trace(id, [])
