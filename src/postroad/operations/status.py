"""How it stands, in one look: what waits, what runs, what has failed, and who is at work."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from postroad.brokers.base import Broker, Subscription, depth_as_told
from postroad.errors import BrokerError
from postroad.gates import GROUP, OUTBOX, WORKER
from postroad.inbox.records import Counts, Records
from postroad.operations.commands import CommandView, command_page
from postroad.operations.dead_letters import DeadEvent, dead_page, with_attempts
from postroad.operations.inbox import InboxRecord, stopped_records
from postroad.operations.leases import Lease, leases
from postroad.operations.outbox import event_id_of
from postroad.operations.pauses import Pause, pauses
from postroad.operations.together import together
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable

RECENT: Final = 3_600.0
"""Seconds that count as "recently"."""
MOST_COUNTED: Final = 10_000
MOST_DEAD: Final = 1_000
_ALIVE: Final = 15.0
"""Seconds of silence, as long as a relay's lease or three beats of a worker, after which nobody is counted on."""
_REMEMBERED: Final = 3_600.0
_BROKER_PATIENCE: Final = 5.0
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    name: str
    waiting: int
    scheduled: int
    """Delayed, and not due yet: no backlog. Where the broker keeps such events, it is soon theirs: see the groups."""
    next_due: datetime | None
    """Of the scheduled."""
    retrying: int
    parked: int
    sent_recently: int
    """In the last hour; no more than 10,000 are counted."""
    oldest_unsent: datetime | None
    """When it was written or, if it is delayed, was due."""
    oldest_unsent_age: float | None
    oldest_waiting_age: float | None
    """Of those that are neither parked nor being retried."""
    shards_without_owner: int
    paused: Pause | None = None


@dataclass(frozen=True, slots=True)
class ParkedKey:
    """A key that stands still until a person retries or skips its first event."""

    outbox: str
    key: str
    event_id: str
    type: str
    attempts: int
    error: str
    waiting_behind: int


@dataclass(frozen=True, slots=True)
class GroupStatus:
    group: str
    backlog: int | None
    """Messages the broker has for it and may deliver; None when the broker was not asked."""
    scheduled: int | None
    """Those that the broker keeps until their time: delayed events, and on RabbitMQ what waits for its next try."""
    oldest_age: float | None
    running: int
    waiting: int
    """Failed, and to be tried again by themselves."""
    refused: int
    """Answered with a "no" by their handler, or discarded by a person."""
    failed: int
    """For good, and not among the dead letters: `postroad inbox retry` is for them."""
    highest_retry_count: int
    dead_letters: int | None
    """Out of the first 1,000 of all groups."""
    paused: Pause | None = None


@dataclass(frozen=True, slots=True)
class CommandCounts:
    """No more than 10,000 of each are counted."""

    pending: int
    processing: int
    failed: int


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    id: str
    kind: str
    name: str
    detail: str
    running_for: float
    """Seconds since it began; of one that is gone, until it was heard of last."""
    silent_for: float
    gone: bool
    """Silent for so long that it must have died; one that left in order is not listed at all."""
    draining: Pause | None = None
    """Told to take nothing more; it is listed until it has finished what is in hand."""


@dataclass(frozen=True, slots=True)
class Status:
    database: str
    broker: str
    broker_trouble: str
    outboxes: Sequence[OutboxStatus]
    parked: Sequence[ParkedKey]
    groups: Sequence[GroupStatus]
    failed: Sequence[InboxRecord]
    """What will not be tried again by itself and is not among the dead letters: failed for good, or refused."""
    commands: CommandCounts
    failed_commands: Sequence[CommandView]
    """The newest; those with a next try go on by themselves."""
    dead_letters: Sequence[DeadEvent]
    workers: Sequence[WorkerStatus]
    leases: Sequence[Lease]


@dataclass(slots=True)
class _Wire:
    """The broker's side; empty where it could not be asked."""

    trouble: str = ""
    backlog: dict[str, int] = field(default_factory=dict)
    scheduled: dict[str, int] = field(default_factory=dict)
    oldest: dict[str, datetime] = field(default_factory=dict)
    uncounted: dict[str, list[str]] = field(default_factory=dict)
    """Groups whose backlog the broker cannot tell, or has not told in time; and their subscriptions."""
    dead: Sequence[DeadEvent] = ()
    asked: bool = False

    @property
    def dead_ids(self) -> set[tuple[str, str]]:
        return {(dead.group, dead.event_id) for dead in self.dead}


async def status(
    store: Store,
    outboxes: Sequence[OutboxTable],
    broker: Broker | None = None,
    *,
    groups: Sequence[str] = (),
    examples: int = 20,
) -> Status:
    """`examples` bounds the lists of parked keys, failed records, commands and dead letters, not the counts."""
    wire = await _ask(broker) if broker else _Wire()
    counts = await Records(store).counts()
    still = {(one.kind, one.name): one for one in await pauses(store)}
    names = sorted({*groups, *counts, *wire.backlog, *wire.uncounted, *await known_groups(store)})
    return Status(
        database=store.address,
        broker=broker.address if broker else "",
        broker_trouble=wire.trouble,
        outboxes=[await _outbox(store, outbox, still.get((OUTBOX, outbox.name))) for outbox in outboxes],
        parked=[key for outbox in outboxes for key in await parked_keys(store, outbox, examples)],
        groups=[_group(store, name, counts, wire, still.get((GROUP, name))) for name in names],
        failed=await _failed(store, wire, examples),
        commands=await _commands(store),
        failed_commands=await command_page(store, status="FAILED", limit=examples),
        dead_letters=await with_attempts(store, wire.dead[:examples]),
        workers=[replace(one, draining=still.get((WORKER, one.id))) for one in await workers(store)],
        leases=await leases(store),
    )


async def _outbox(store: Store, outbox: OutboxTable, paused: Pause | None) -> OutboxStatus:
    async with store.reading() as connection:
        unsent = (await store.execute(connection, "outbox_counts", outbox=outbox, now=store.clock.now())).rows
        sent = await store.execute(connection, "outbox_sent_count", outbox=outbox, seconds=RECENT, most=MOST_COUNTED)
        free = await store.execute(connection, "shards_free", outbox_name=outbox.name)
    events = {row.state: int(row.events) for row in unsent}
    since = {row.state: moment for row in unsent if (moment := store.time_out(row.oldest))}
    next_due = since.pop("SCHEDULED", None)
    oldest = min(since.values(), default=None)
    return OutboxStatus(
        name=outbox.name,
        waiting=events.get("NEW", 0),
        scheduled=events.get("SCHEDULED", 0),
        next_due=next_due,
        retrying=events.get("RETRY", 0),
        parked=events.get("FAILED", 0),
        sent_recently=int(sent.rows[0].events),
        oldest_unsent=oldest,
        oldest_unsent_age=_age(store, oldest),
        oldest_waiting_age=_age(store, since.get("NEW")),
        shards_without_owner=int(free.rows[0].shards),
        paused=paused,
    )


async def parked_keys(store: Store, outbox: OutboxTable, limit: int) -> Sequence[ParkedKey]:
    async with store.reading() as connection:
        rows = (await store.execute(connection, "outbox_parked", outbox=outbox, limit=limit)).rows
    return [
        ParkedKey(
            outbox=outbox.name,
            key=row.ordering_key or "",
            event_id=str(event_id_of(store, outbox, row.event_id)),
            type=row.event_type,
            attempts=row.attempts,
            error=row.last_error or "",
            waiting_behind=int(row.behind),
        )
        for row in rows
    ]


async def known_groups(store: Store) -> Sequence[str]:
    async with store.reading() as connection:
        return [row.consumer_group for row in (await store.execute(connection, "groups_known")).rows]


async def _failed(store: Store, wire: _Wire, limit: int) -> Sequence[InboxRecord]:
    found = await stopped_records(store, limit + len(wire.dead))
    return [one for one in found if (one.group, str(one.event_id)) not in wire.dead_ids][:limit]


async def _commands(store: Store) -> CommandCounts:
    rows = (await store.read("command_counts", most=MOST_COUNTED)).rows
    counts = {row.status.lower(): int(row.commands) for row in rows}
    return CommandCounts(*(counts.get(status, 0) for status in ("pending", "processing", "failed")))


async def workers(store: Store) -> Sequence[WorkerStatus]:
    async with store.reading() as connection:
        rows = (await store.execute(connection, "workers_alive", ttl=_REMEMBERED)).rows
        now = await store.server_time(connection)
    return [_worker(store, row, now) for row in rows]


def _worker(store: Store, row: Any, now: datetime) -> WorkerStatus:
    started, seen = store.time_out(row.started_at), store.time_out(row.seen_at)
    assert started is not None  # the columns are NOT NULL
    assert seen is not None
    silent = max(0.0, (now - seen).total_seconds())
    gone = silent > _ALIVE
    return WorkerStatus(
        id=str(store.id_out(row.id)),
        kind=row.kind,
        name=row.name,
        detail=row.detail,
        running_for=max(0.0, ((seen if gone else now) - started).total_seconds()),
        silent_for=silent,
        gone=gone,
    )


async def _ask(broker: Broker) -> _Wire:
    """A broker that is down is part of the answer, not a reason to give none."""
    wire = _Wire()
    try:
        async with asyncio.timeout(_BROKER_PATIENCE):
            subscriptions = await broker.subscriptions()
            for subscription in subscriptions:
                wire.uncounted.setdefault(_group_of(subscription), []).append(subscription.name)
            # First: people must deal with these, and counting may take all the time there is.
            wire.dead = await _dead(broker, sorted({subscription.topic for subscription in subscriptions}))
            wire.asked = True
            for group in list(wire.uncounted):
                await _count(broker, group, wire)
    except TimeoutError:
        wire.trouble = f"{broker.address} did not answer within {_BROKER_PATIENCE:g} s."
    except BrokerError as error:
        wire.trouble = str(error)
    return wire


async def _dead(broker: Broker, topics: Sequence[str]) -> Sequence[DeadEvent]:
    """Several topics at once: to find nothing takes Pub/Sub two seconds for each."""
    few = asyncio.Semaphore(_AT_ONCE)

    async def look(topic: str) -> Sequence[DeadEvent]:
        async with few:
            return await dead_page(broker, [topic], limit=MOST_DEAD)

    pages = await together(map(look, topics))
    return [dead for page in pages for dead in page][:MOST_DEAD]


async def _count(broker: Broker, group: str, wire: _Wire) -> None:
    told = [await depth_as_told(broker, subscription) for subscription in wire.uncounted[group]]
    depths = [depth for depth in told if depth is not None]
    if len(depths) < len(told):
        return
    wire.scheduled[group] = sum(depth.delayed for depth in depths)
    wire.backlog[group] = sum(depth.messages for depth in depths) - wire.scheduled[group]
    if moments := [depth.oldest for depth in depths if depth.oldest]:
        wire.oldest[group] = min(moments)
    del wire.uncounted[group]


def _group_of(subscription: Subscription) -> str:
    return subscription.name.removeprefix(f"{subscription.topic}.")


def _group(store: Store, name: str, counts: Mapping[str, Counts], wire: _Wire, paused: Pause | None) -> GroupStatus:
    own = counts.get(name, Counts())
    counted = wire.asked and name not in wire.uncounted
    return GroupStatus(
        group=name,
        backlog=wire.backlog.get(name, 0) if counted else None,
        scheduled=wire.scheduled.get(name, 0) if counted else None,
        oldest_age=_age(store, wire.oldest.get(name)),
        running=own.processing,
        waiting=own.waiting,
        refused=own.refused,
        # Each dead letter with an id has a record; those whose message had none do not count here.
        failed=max(0, own.failed - sum(group == name and bool(id) for group, id in wire.dead_ids)),
        highest_retry_count=own.highest_retry_count,
        dead_letters=sum(dead.group == name for dead in wire.dead) if wire.asked else None,
        paused=paused,
    )


def _age(store: Store, since: datetime | None) -> float | None:
    return None if since is None else max(0.0, (store.clock.now() - since).total_seconds())
