"""Compare the stages with each other, piece by piece; nothing is changed, and only first ids are kept."""

from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from postroad.consistency.readmodels import behind
from postroad.consistency.report import KINDS, Finding, Report
from postroad.consistency.sent import foreign, heard_since, recorded, sent
from postroad.consistency.unreadable import unreadable, unreadable_dead
from postroad.consistency.window import DAY, GRACE, Window, ranges, window
from postroad.errors import BrokerError
from postroad.events import declared, declared_names
from postroad.retry import describe
from postroad.stores.tables import OutboxTable

if TYPE_CHECKING:
    from postroad.app import Postroad

FIRST: Final = 20
"""Ids that are told of each kind of finding."""
Found = tuple[str, str, int, list[str]]
Tell = Callable[[str], None]


async def check(
    road: "Postroad",
    *,
    since: float | timedelta = DAY,
    grace: float = GRACE,
    first: int = FIRST,
    tell: Tell = lambda kind: None,
) -> Report:
    """What does not fit together among what was written in the last `since` seconds.

    What is younger than `grace` seconds may be on its way and is not missed. `tell` hears of each kind and piece.
    """
    look = Look(road, await window(road, since, grace), first)
    counts: dict[tuple[str, str], int] = {}
    ids: dict[tuple[str, str], list[str]] = {}
    async for kind, where, count, some in look.all():
        tell(kind)
        if count:
            counts[kind, where] = counts.get((kind, where), 0) + count
            kept = ids.setdefault((kind, where), [])
            kept.extend(some[: first - len(kept)])  # no more: there may be millions
    findings = [Finding(*place, count, ids[place]) for place, count in counts.items()]
    findings.sort(key=lambda one: (list(KINDS).index(one.kind), one.where))
    return Report(
        look.window.since,
        look.window.until,
        look.commands,
        look.events,
        findings,
        look.not_looked_at,
        look.handled,
    )


class Look:
    """One pass over the tables."""

    def __init__(self, road: "Postroad", window: Window, limit: int) -> None:
        self.road, self.store, self.window, self.limit = road, road.store, window, limit
        self.commands = self.events = self.handled = 0
        self.not_looked_at: list[str] = []

    async def all(self) -> AsyncIterator[Found]:
        for part in (self._commands, self._events, self._groups, self._projections, self._late):
            async for found in part():
                yield found
        async for where, id in unreadable(self.road):
            yield "unreadable", where, 1, [id]
        try:
            async for where, id in unreadable_dead(self.road):
                yield "unreadable", where, 1, [id]
        except BrokerError as error:
            # The broker may be out just when somebody checks. What the database has told is true all the same.
            self.not_looked_at.append(f"dead letters: {describe(error)}")

    async def rows(self, statement: str, outbox: OutboxTable | None = None, **values: Any) -> list[Any]:
        return list((await self.store.read(statement, outbox, limit=self.limit, **values)).rows)

    async def commands_span(self) -> Any:
        within: dict[str, Any] = {"since": self.window.since, "until": self.window.now}
        return (await self.store.read("check_commands_span", **within)).rows[0]

    async def events_span(self) -> Any:
        return (await self.store.read("check_events_span", since=self.window.since)).rows[0]

    async def orphaned(self, piece: Mapping[str, Any], since: datetime) -> AsyncIterator[list[Any]]:
        """By command type. One whose event nobody declares can never have it: `postroad names check` tells."""
        within: dict[str, Any] = {"since": since, "until": self.window.now}
        known = set(declared_names())
        for command, event in self.road.commands.events.items():
            if event in known:
                yield await self.rows(
                    "check_orphaned_commands", **piece, **within, command_type=command, event_type=event
                )

    async def missing(self, outbox: OutboxTable, piece: Mapping[str, Any]) -> list[Any]:
        since = max(self.window.since, self.window.kept_since)
        return await self.rows("check_missing_outbox", outbox, **piece, since=since, **self.belonging(outbox))

    def belonging(self, outbox: OutboxTable) -> dict[str, Any]:
        """Which types are written there; the first outbox has all that name no other."""
        others = [name for name in declared_names() if any(kind.outbox for kind in declared(name).values())]
        if outbox == self.road.outboxes[0]:
            return {"types": [name for name in others if self._outbox_of(name) != outbox.name], "within": 0}
        return {"types": [name for name in others if self._outbox_of(name) == outbox.name], "within": 1}

    def _outbox_of(self, name: str) -> str | None:
        return next(iter(declared(name).values())).outbox

    async def _commands(self) -> AsyncIterator[Found]:
        span = await self.commands_span()
        self.commands = span.total
        for piece in ranges(span):
            async for rows in self.orphaned(piece, self.window.since):
                yield self._told("orphaned_command", "", rows)

    async def _events(self) -> AsyncIterator[Found]:
        span = await self.events_span()
        self.events = span.total
        for piece in ranges(span):
            gaps = await self.rows("check_version_gaps", **piece, since=self.window.since)
            places = [f"{row.aggregate_type}/{row.aggregate_id} v{row.version}" for row in gaps]
            yield "version_gap", "", _total(gaps), places
            for outbox in self.road.outboxes:
                yield self._told("missing_outbox", outbox.name, await self.missing(outbox, piece))

    async def _groups(self) -> AsyncIterator[Found]:
        self.handled = (await self.store.read("check_handled_count", since=self.window.since)).rows[0].total
        for group in self.road.groups:
            for kind in ("doubled", "out_of_order"):
                found = await self.rows(f"check_{kind}", group=group, since=self.window.since)
                yield self._told(kind, group, found)
            types = sorted(self.road.registry.types(group))
            for outbox in self.road.outboxes:
                for piece in self.window.slices() if not foreign(outbox) else ():
                    found = await self.rows(
                        "check_unseen", outbox, **piece, group=group, types=types, until=self.window.until
                    )
                    yield self._told("unseen", group, found)
        for outbox in filter(foreign, self.road.outboxes):
            async for told in self._unseen(outbox):
                yield told

    async def _unseen(self, outbox: OutboxTable) -> AsyncIterator[Found]:
        """Which ids consumers see is not written in the table, so the database cannot compare them."""
        heard, until = await heard_since(self.road), self.window.until
        async for page in sent(self.road, outbox, self.window.kept_from, until):
            for group, since in heard.items():
                asked = [one for one in page if one.type in since and since[one.type] <= one.at]
                asked = [one for one in asked if one.due is None or one.due < until]
                have = await recorded(self.road, group, [one.id for one in asked])
                missing = [one.kept for one in asked if one.id not in have]
                yield "unseen", group, len(missing), missing[: self.limit]

    async def _projections(self) -> AsyncIterator[Found]:
        for projection in self.road.projections.values():
            async for rows in behind(self.road, projection, self.window):
                yield "behind_projection", projection.name, len(rows), rows

    async def _late(self) -> AsyncIterator[Found]:
        for kind in ("expired_command", "late_command"):
            yield self._told(kind, "", await self.rows(f"check_{kind}s", until=self.window.until))
        for kind in ("expired_inbox", "late_inbox"):
            rows = await self.rows(f"check_{kind}", until=self.window.until)
            ids = [f"{row.consumer_group}/{self.store.id_out(row.id)}" for row in rows]
            yield kind, "", _total(rows), ids
        for outbox in self.road.outboxes:
            late = await self.rows("check_late_outbox", outbox, until=self.window.until)
            ids = [str(row.id) if outbox.ids == "text" else str(self.store.id_out(row.id)) for row in late]
            yield "late_outbox", outbox.name, _total(late), ids

    def _told(self, kind: str, where: str, rows: list[Any]) -> Found:
        return kind, where, _total(rows), [str(self.store.id_out(row.id)) for row in rows]


def _total(rows: list[Any]) -> int:
    return int(rows[0].total) if rows else 0
