"""What came of what: the commands and events of one flow, from its beginning, with the links that do not hold."""

import heapq
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from postroad.errors import OperationRefused
from postroad.message import parse_id
from postroad.operations.outbox import event_id_of
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable

LONGEST: Final = 10_000
_PAGE: Final = 1_000
_HANDLED: Final = ("processing", "succeeded", "failed")


@dataclass(frozen=True, slots=True)
class Handled:
    """What became of an event in one group here."""

    group: str
    state: str
    """processing, succeeded, waiting (for its next try), refused (with a "no") or failed (for good)"""
    at: datetime | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Step:
    kind: str
    """command or event"""
    id: str
    type: str
    key: str
    version: int | None
    at: datetime
    state: str
    """A command's status or an outbox row's state; KEPT: in the event store only; RECEIVED: from another service."""
    correlation_id: str | None
    causation_id: str | None
    error: str | None = None
    handled: Sequence[Handled] = ()


@dataclass(frozen=True, slots=True)
class BrokenLink:
    step: Step
    reason: str


@dataclass(frozen=True, slots=True)
class Trace:
    correlation_id: str
    steps: Sequence[Step]
    """In order: each after its cause, else by time."""
    broken: Sequence[BrokenLink] = ()
    truncated: bool = False
    """There is more of it: commands, events and outbox rows are read up to 10,000 of each."""

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    @property
    def roots(self) -> Sequence[Step]:
        """Those that nothing here has caused."""
        here = {step.id for step in self.steps}
        return [step for step in self.steps if step.causation_id not in here]

    def caused_by(self, id: str) -> Sequence[Step]:
        return [step for step in self.steps if step.causation_id == id]


async def trace(store: Store, outboxes: Sequence[OutboxTable], correlation_id: str) -> Trace:
    """All there is of a flow in this database; without steps if there is nothing."""
    look = _Look(store, outboxes)
    steps, truncated = await look.flow(correlation_id)
    causes = await look.causes(steps.values())
    for id, received in (await look.received(causes.missing)).items():
        # Its own cause is known where it was written; its flow is that of what it has brought about here.
        steps[id] = replace(received, correlation_id=correlation_id)
    handled = await look.handled([step.id for step in steps.values() if step.kind == "event"])
    whole = [replace(step, handled=handled.get(step.id, ())) for step in steps.values()]
    return Trace(correlation_id, _in_order(whole), _broken(whole, causes.correlations, steps), truncated)


async def trace_of(store: Store, outboxes: Sequence[OutboxTable], id: str) -> Trace:
    """The flow with this correlation id, or the one to which this event or command belongs."""
    found = await trace(store, outboxes, id)
    if found.steps:
        return found
    look, uuid = _Look(store, outboxes), _uuid(id)
    known = [uuid] if uuid else []
    for correlation in (await look.correlations(known)).values():
        return await trace(store, outboxes, str(correlation))
    received = await look.received(known)
    if not received:
        raise _unknown(id)
    handled = await look.handled(list(received))
    return Trace(id, [replace(step, handled=handled.get(step.id, ())) for step in received.values()])


async def orphans(store: Store, outboxes: Sequence[OutboxTable], since: datetime) -> Sequence[BrokenLink]:
    """Domain events that nothing caused, causes that are not here, and flows that change on the way."""
    look = _Look(store, outboxes)
    found: dict[str, BrokenLink] = {}
    async for steps in look.since(since):
        causes = await look.causes(steps)
        broken = _broken(steps, causes.correlations, await look.received(causes.missing))
        found |= {one.step.id: one for one in [*_uncaused(steps), *broken]}
    return sorted(found.values(), key=lambda one: (one.step.at, one.step.id))


@dataclass(frozen=True, slots=True)
class _Causes:
    correlations: Mapping[str, str | None]
    """Of the causes that are here, by their ids."""
    missing: Sequence[UUID]


class _Look:
    def __init__(self, store: Store, outboxes: Sequence[OutboxTable]) -> None:
        self._store, self._outboxes = store, outboxes

    async def flow(self, correlation_id: str) -> tuple[dict[str, Step], bool]:
        """And whether there is more of it."""
        said: dict[str, Any] = {"correlation_id": correlation_id, "limit": LONGEST + 1}
        found = [
            self._commands((await self._store.read("commands_correlated", **said)).rows),
            self._events((await self._store.read("events_correlated", **said)).rows),
        ]
        for table in self._outboxes:
            found.append(self._carried(table, (await self._store.read("outbox_correlated", table, **said)).rows))
        # The event store has the same events; the outbox knows besides how far they have come.
        return {step.id: step for some in found for step in some}, any(len(some) > LONGEST for some in found)

    async def since(self, moment: datetime) -> AsyncIterator[list[Step]]:
        """Page by page, the outboxes last."""
        seq, at = 0, moment
        while rows := (await self._store.read("commands_since", since=moment, after=seq, limit=_PAGE)).rows:
            yield self._commands(rows)
            seq = rows[-1].seq
        seq = 0
        while rows := (await self._store.read("events_since", since=at, after=seq, limit=_PAGE)).rows:
            yield self._events(rows)
            seq, at = rows[-1].seq, self._store.time_out(rows[-1].occurred_at) or at
        for table in self._outboxes:
            id: Any = "" if table.ids == "text" else self._store.adapt(UUID(int=0))
            said: dict[str, Any] = {"since": moment, "limit": _PAGE}
            while rows := (await self._store.read("outbox_caused_since", table, after=id, **said)).rows:
                yield self._carried(table, rows)
                id = rows[-1].event_id

    def _commands(self, rows: Iterable[Any]) -> list[Step]:
        return [self._command(row) for row in rows]

    def _events(self, rows: Iterable[Any]) -> list[Step]:
        return [self._event(row, self._store.id_out(row.event_id), row.aggregate_version) for row in rows]

    def _carried(self, table: OutboxTable, rows: Iterable[Any]) -> list[Step]:
        steps = [(row, self._event(row, event_id_of(self._store, table, row.event_id), row.version)) for row in rows]
        return [replace(step, state=row.state, error=row.last_error) for row, step in steps]

    def _command(self, row: Any) -> Step:
        return Step(
            kind="command",
            id=str(self._store.id_out(row.command_id)),
            type=row.command_type,
            key=f"{row.aggregate_type}/{row.aggregate_id}",
            version=None,
            at=self._store.time_out(row.created_at),  # type: ignore[arg-type]
            state=row.status,
            correlation_id=row.correlation_id,
            causation_id=row.causation_id,
            error=row.error_message,
        )

    def _event(self, row: Any, id: UUID | str, version: int | None) -> Step:
        return Step(
            kind="event",
            id=str(id),
            type=row.event_type,
            key=f"{row.aggregate_type}/{row.aggregate_id}",
            version=version,
            at=self._store.time_out(row.occurred_at),  # type: ignore[arg-type]
            state="KEPT",
            correlation_id=row.correlation_id,
            causation_id=row.causation_id,
        )

    async def causes(self, steps: Iterable[Step]) -> _Causes:
        wanted = {step.causation_id: _uuid(step.causation_id) for step in steps if step.causation_id}
        known = await self.correlations([id for id in wanted.values() if id])
        return _Causes(known, [id for text, id in wanted.items() if id and text not in known])

    async def correlations(self, ids: Sequence[UUID]) -> dict[str, str | None]:
        """Of the commands and events that are here, by id."""
        known: dict[str, str | None] = {}
        if not ids:
            return known
        for row in (await self._store.read("commands_known", ids=list(ids))).rows:
            known[str(self._store.id_out(row.command_id))] = row.correlation_id
        for row in (await self._store.read("events_known", ids=list(ids))).rows:
            known[str(self._store.id_out(row.event_id))] = row.correlation_id
        for table in self._outboxes:
            as_kept: list[Any] = [str(id) for id in ids] if table.ids == "text" else list(ids)
            for row in (await self._store.read("outbox_known", table, ids=as_kept)).rows:
                known[str(event_id_of(self._store, table, row.event_id))] = row.correlation_id
        return known

    async def received(self, ids: Sequence[UUID]) -> dict[str, Step]:
        """Events of other services, as far as the inbox knows them."""
        found = {}
        for row in await self._inbox(ids):
            id = str(self._store.id_out(row.event_id))
            found[id] = Step(
                kind="event",
                id=id,
                type=row.event_type,
                key=row.ordering_key or "",
                version=row.version,
                at=self._store.time_out(row.received_at),  # type: ignore[arg-type]
                state="RECEIVED",
                correlation_id=None,
                causation_id=None,
            )
        return found

    async def handled(self, ids: Sequence[str]) -> Mapping[str, Sequence[Handled]]:
        found: dict[str, list[Handled]] = {}
        for row in await self._inbox([id for text in ids if (id := _uuid(text))]):
            at = self._store.time_out(row.processed_at or row.received_at)
            one = Handled(row.consumer_group, _state(row), at, row.error_msg)
            found.setdefault(str(self._store.id_out(row.event_id)), []).append(one)
        return found

    async def _inbox(self, ids: Sequence[UUID]) -> list[Any]:
        if not ids:
            return []
        groups = [row.consumer_group for row in (await self._store.read("groups_known")).rows]
        return [
            row
            for group in groups
            for row in (await self._store.read("inbox_of_events", group=group, ids=list(ids))).rows
        ]


def _state(row: Any) -> str:
    if row.status == 2 and row.next_retry_at is not None:
        return "waiting"
    if row.status == 2 and row.processed_at is not None:
        return "refused"
    return _HANDLED[row.status]


def _uncaused(steps: Iterable[Step]) -> list[BrokenLink]:
    return [BrokenLink(s, "nothing has caused it") for s in steps if s.kind == "event" and not s.causation_id]


def _broken(
    steps: Iterable[Step], correlations: Mapping[str, str | None], received: Mapping[str, Step]
) -> list[BrokenLink]:
    broken = []
    for step in steps:
        cause = step.causation_id
        if not cause or (cause not in correlations and cause in received):
            continue
        if cause not in correlations:
            broken.append(BrokenLink(step, f"its cause {cause} is not here"))
        elif correlations[cause] != step.correlation_id:
            broken.append(BrokenLink(step, f"its cause {cause} belongs to another flow, {correlations[cause]}"))
    return broken


def _in_order(steps: Sequence[Step]) -> list[Step]:
    """By time, but never before its cause: the clocks of two machines may differ."""
    waiting: dict[str, list[Step]] = {}
    here = {step.id for step in steps}
    ready = [(step.at, step.id, step) for step in steps if step.causation_id not in here]
    for step in steps:
        if step.causation_id in here:
            waiting.setdefault(str(step.causation_id), []).append(step)
    heapq.heapify(ready)
    ordered = []
    while ready:
        step = heapq.heappop(ready)[2]
        ordered.append(step)
        for effect in waiting.pop(step.id, ()):
            heapq.heappush(ready, (effect.at, effect.id, effect))
    # What is its own cause, over some corners, has no beginning.
    return ordered + [step for circle in waiting.values() for step in circle]


def _uuid(text: str | None) -> UUID | None:
    try:
        return parse_id(text or "")
    except ValueError:
        return None


def _unknown(id: str) -> OperationRefused:
    return OperationRefused(
        f"Nothing here has the id or the correlation id {id}. List what there is with: postroad outbox list, "
        "postroad command list"
    )
