"""Mend what can be mended without guessing. Each act has the guards of the normal path, and is audited with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.consistency.check import FIRST, Look
from postroad.consistency.window import DAY, GRACE, PIECE, ranges, window
from postroad.errors import OperationRefused
from postroad.eventstore.record import message_of
from postroad.inbox.record import pack
from postroad.operations import audit
from postroad.operations.outbox import outbox_message
from postroad.stores.tables import OutboxTable

if TYPE_CHECKING:
    from postroad.app import Postroad

_DELIVERY: Final = ("ordering_key", "shard")
Place = tuple[str, str]
"""A kind of fault, and the outbox or group where it is."""


@dataclass(frozen=True, slots=True)
class Repaired:
    kind: str
    where: str
    rows: int
    """That were changed; before `apply`, that would be."""
    ids: Sequence[str]
    """The first of them."""


async def repair(
    road: "Postroad",
    *,
    apply: bool = False,
    since: float | timedelta = DAY,
    grace: float = GRACE,
    actor: str = "",
) -> Sequence[Repaired]:
    """What would be done; with `apply`, what was done, in rows changed. A second run changes nothing more."""
    look = Look(road, await window(road, since, grace), PIECE)
    work = _Repair(look, apply, actor or audit.this_user())
    await work.missing_outbox()
    await work.orphaned_commands()
    await work.expired_commands()
    await work.expired_inbox()
    return [Repaired(*place, rows, work.ids[place]) for place, rows in work.rows.items()]


class _Repair:
    def __init__(self, look: Look, apply: bool, actor: str) -> None:
        self.look, self.road, self.store, self.apply, self.actor = look, look.road, look.store, apply, actor
        self.rows: dict[Place, int] = {}
        self.ids: dict[Place, list[str]] = {}

    async def missing_outbox(self) -> None:
        """By aggregate, all that it lacks in one transaction: none becomes visible before its predecessor."""
        for outbox in self.road.outboxes:
            for piece in ranges(await self.look.events_span()):
                rows = await self.look.missing(outbox, piece)
                for aggregate in dict.fromkeys((row.aggregate_type, row.aggregate_id) for row in rows):
                    async with self.store.transaction() if self.apply else self.store.reading() as connection:
                        await self._add(connection, outbox, *aggregate)

    async def _add(self, connection: AsyncConnection, outbox: OutboxTable, type: str, id: str) -> None:
        aggregate: dict[str, Any] = {"aggregate_type": type, "aggregate_id": id}
        version = (await self.store.execute(connection, "events_version", **aggregate)).rows[0].version
        if self.apply:
            # Locks the counter, as every writer does: what is missing is asked for again behind the lock.
            await self.store.execute(connection, "version_follow", **aggregate, version=version)
        since = max(self.look.window.since, self.look.window.kept_since)
        belonging = self.look.belonging(outbox)
        found = await self.store.execute(connection, "repair_missing_events", outbox, **aggregate, since=since)
        for row in found.rows:
            if (row.event_type in belonging["types"]) == bool(belonging["within"]):
                await self._add_row(connection, outbox, row)

    async def _add_row(self, connection: AsyncConnection, outbox: OutboxTable, row: Any) -> None:
        message = message_of(row, self.store)
        if self.apply:
            values = self.road.outbox.row(message, outbox) | {"attributes": row.attributes}
            if outbox.payload != "bytes":
                values["payload"] = message.payload.decode()
            facts = {name: value for name, value in values.items() if name not in _DELIVERY}
            if outbox.append_only:
                await self.store.execute(connection, "repair_outbox_fact", outbox, **facts)
                delivery = {name: values[name] for name in ("event_id", "version", *_DELIVERY)}
                await self.store.execute(connection, "repair_outbox_delivery", outbox, **delivery)
            else:
                await self.store.execute(connection, "repair_outbox_row", outbox, **values)
            await self._audit(connection, "repair.outbox", str(message.id), f"{outbox.name}, version {message.version}")
        self._count("missing_outbox", outbox.name, str(message.id))

    async def orphaned_commands(self) -> None:
        for piece in ranges(await self.look.commands_span()):
            # Before that, what it added to the outbox may have been cleared away, and nobody can tell.
            async for rows in self.look.orphaned(piece, self.look.window.kept_from):
                ids = [self.store.id_out(row.id) for row in rows]
                sent = await self._added_events(ids)
                for id in ids:
                    if str(id) in sent or (await self.store.read("events_caused", causation_id=str(id))).rows:
                        continue  # it left other events: run again, it would take effect a second time
                    detail = "completed without any event; runs again"
                    await self._act("orphaned_command", "repair.command", str(id), detail, command_id=id)

    async def _added_events(self, commands: Sequence[UUID]) -> set[str]:
        """Those whose handlers wrote to an outbox, by `road.add` for instance."""
        found: set[str] = set()
        for outbox in self.road.outboxes if commands else ():
            asked = await self.store.read("outbox_caused", outbox, causes=[str(id) for id in commands])
            found |= {row.cause for row in asked.rows}
        return found

    async def expired_commands(self) -> None:
        until = self.look.window.until
        for row in await self.look.rows("check_expired_commands", until=until):
            id = self.store.id_out(row.id)
            values = {"command_id": id, "epoch": row.epoch, "until": until}
            await self._act("expired_command", "repair.command_lease", str(id), "its holder has vanished", **values)

    async def expired_inbox(self) -> None:
        window = self.look.window
        for row in await self.look.rows("check_expired_inbox", until=window.until):
            id, group = self.store.id_out(row.id), row.consumer_group
            values = {"group": group, "event_id": id, "epoch": row.epoch, "until": window.until, "now": window.now}
            await self._act(
                "expired_inbox", "repair.inbox_lease", f"{group}/{id}", "its handler has vanished",
                **values, message=await self._message(id),
            )  # fmt: skip

    async def _message(self, id: UUID) -> bytes | None:
        """As this service's outbox has it; another service's event comes from the broker again."""
        try:
            return pack(await outbox_message(self.store, self.road.outboxes, id))
        except OperationRefused:
            return None

    async def _act(self, kind: str, action: str, subject: str, detail: str, **values: Any) -> None:
        """Changes the row if it is still as it was found; counts what was changed, not what was wanted."""
        if self.apply:
            async with self.store.transaction() as connection:
                changed = await self.store.execute(connection, action.replace(".", "_"), **values)
                if not changed.rowcount:
                    return
                await self._audit(connection, action, subject, detail)
        self._count(kind, "", subject)

    async def _audit(self, connection: AsyncConnection, action: str, subject: str, detail: str) -> None:
        await audit.record(self.store, connection, actor=self.actor, action=action, subject=subject, detail=detail)

    def _count(self, kind: str, where: str, subject: str) -> None:
        self.rows[kind, where] = self.rows.get((kind, where), 0) + 1
        ids = self.ids.setdefault((kind, where), [])
        if len(ids) < FIRST:
            ids.append(subject)
