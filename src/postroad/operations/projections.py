"""The read models as a person sees them: how they stand, whether they are right, and the act that rebuilds one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import FromClause, Select

from postroad.app import Postroad
from postroad.errors import BrokerError, ConfigurationError, OperationRefused
from postroad.eventstore import EventStoreSource
from postroad.inbox import Record, Status
from postroad.projections import (
    BrokerSource,
    Differences,
    OutboxSource,
    Projection,
    Rebuild,
    Rebuilt,
    Source,
)
from postroad.projections.differences import compare
from postroad.projections.state import State, states

SOURCES: Final = ("declared", "broker", "outbox", "events")
_PAGE: Final = 500
_MOST_GAPS: Final = 100


@dataclass(frozen=True, slots=True)
class ProjectionStatus:
    name: str
    table: str
    group: str
    state: State | None
    """None until it was first used."""
    behind: int | None
    """Messages that its group has not handled yet; None if the broker cannot tell."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A change that waits, or was parked, because one before it is missing."""

    event_id: UUID
    key: str
    version: int
    error: str
    parked: bool


@dataclass(frozen=True, slots=True)
class Verified:
    projection: str
    differences: Differences
    gaps: Sequence[Gap]

    @property
    def right(self) -> bool:
        return not self.differences and not self.gaps


async def projections(road: Postroad) -> Sequence[ProjectionStatus]:
    known = {state.name: state for state in await states(road.store)}
    return [
        ProjectionStatus(name, str(one.table.fullname), one.group, known.get(name), await _behind(road, one.group))
        for name, one in sorted(road.projections.items())
    ]


async def _behind(road: Postroad, group: str) -> int | None:
    try:
        depths = [await road.broker.depth(f"{topic}.{group}") for topic in road.registry.topics(group)]
    except (BrokerError, ConfigurationError):
        return None  # it does not answer, or has no such subscription yet
    return sum(depth.messages for depth in depths)


def projection(road: Postroad, name: str) -> Projection:
    if name not in road.projections:
        raise OperationRefused(
            f"There is no projection {name!r}. Declared: {', '.join(sorted(road.projections)) or 'none'}."
        )
    return road.projections[name]


def projection_source(road: Postroad, of: Projection, name: str = "declared", since: datetime | None = None) -> Source:
    """What the projection declares, else the broker."""
    if name == "outbox":
        return OutboxSource(road.store, road.outboxes, of.aggregate)
    if name == "events":
        return EventStoreSource(road.store, of.aggregate)
    if name == "declared" and of.source is not None and since is None:
        return of.source
    return BrokerSource(road.broker, of.topics, of.name, clock=road.clock, since=since)


async def rebuild(
    road: Postroad,
    name: str,
    events: Source,
    *,
    actor: str,
    accept_loss: bool = False,
    tell: Callable[[int, int], None] | None = None,
) -> Rebuilt:
    return await Rebuild(road, projection(road, name), events, tell=tell, actor=actor).run(accept_loss=accept_loss)


async def verify(
    road: Postroad,
    name: str,
    right: Source | Select[Any],
    *,
    tell: Callable[[int, int], None] | None = None,
) -> Verified:
    """Against what a rebuild from a source would make of it; or against a query of the same database."""
    of = projection(road, name)
    if isinstance(right, Select):
        async with road.store.reading() as connection:
            differences = await compare(of, connection, _named(of, right))
    else:
        differences = await Rebuild(road, of, right, tell=tell).verify()
    return Verified(name, differences, await gaps(road, of))


def _named(of: Projection, query: Select[Any]) -> FromClause:
    found = query.subquery("postroad_right")
    if of.key not in found.c:
        raise OperationRefused(
            f"The query has no column {of.key!r}, the key of projection {of.name}. Label one of its columns so."
        )
    return found


async def gaps(road: Postroad, of: Projection) -> Sequence[Gap]:
    found: list[Gap] = []
    after = None
    while len(found) < _MOST_GAPS:
        page = await road.inbox.list(of.group, Status.FAILED, _PAGE, after)
        found += [_gap(record) for record in page if _is_gap(of, record)]
        if len(page) < _PAGE:
            break
        after = page[-1].group, page[-1].event_id
    return found[:_MOST_GAPS]


def _is_gap(of: Projection, record: Record) -> bool:
    return f"VersionGap: {of.name} has" in (record.error_msg or "")


def _gap(record: Record) -> Gap:
    return Gap(record.event_id, record.ordering_key or "", record.version, record.error_msg or "", record.stopped)
