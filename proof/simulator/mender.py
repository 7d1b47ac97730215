"""When all is at rest, something is lost, as if somebody had deleted rows; and who mends it is not spared any fault."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError

from postroad.consistency import Loss, repair, resend
from postroad.consistency.check import FIRST, Look
from postroad.consistency.window import window
from postroad.errors import PostroadError
from proof.simulator.books import Stored, history, rows_of
from proof.simulator.ledger import Ask
from proof.simulator.process import Process
from proof.simulator.tills import KEPT, Desk

if TYPE_CHECKING:
    from proof.simulator.world import World

_HOUR = 3_600.0
_AT_ONCE = 2
"""Who repair the same."""


class Mender:
    """What it is for outlives its lives."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._lost: set[str] = set()
        """Events whose outbox rows were deleted."""
        self.planted = self.done = False

    def plant(self, ask: Ask) -> None:
        """Of the tills, the very first event and the very last, as if neither had been sent. The last is taken out of
        the view; the first is not, and must not get into it again. Of a booking, one group's effect and record."""
        self.planted = True
        if events := sorted(history(ask), key=lambda event: (event.version, event.till)):
            self._lost = {events[0].id, events[-1].id}
            for id in sorted(self._lost):
                ask(f"DELETE FROM postroad_outbox WHERE event_id = '{id}' RETURNING 1")
                ask(f"DELETE FROM postroad_inbox WHERE consumer_group = 'view' AND event_id = '{id}' RETURNING 1")
            self._set_back(ask, events)
        latest = "SELECT event_id FROM effect WHERE consumer_group = 'picky' ORDER BY version DESC, account LIMIT 1"
        for (id,) in ask(latest):
            for table in ("effect", "postroad_inbox"):
                ask(f"DELETE FROM {table} WHERE consumer_group = 'picky' AND event_id = '{id}' RETURNING 1")

    def _set_back(self, ask: Ask, events: list[Stored]) -> None:
        *before, last = events
        if (row := rows_of(before).get(last.till)) is None:
            ask(f"DELETE FROM till WHERE till = '{last.till}' RETURNING 1")
            return
        names = ("balance", "moves", "version", "deleted")
        values = ("NULL" if value is None else str(value) for value in row)
        changes = ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
        ask(f"UPDATE till SET {changes} WHERE till = '{last.till}' RETURNING 1")

    async def run(self, process: Process, desk: Desk) -> None:
        """Again and again, also when there is nothing left to do: that must change nothing."""
        road: Any = desk
        whole: dict[str, Any] = {"grace": 0.0, "since": KEPT, "actor": "mender"}
        while not (self.done and self._world.fates.calm):
            await desk.clock.sleep(desk.random.random())
            try:
                self.done = not (await repair(road, **whole) or await self._send_again(road))
                repairs = (process.spawn(repair(road, apply=True, **whole)) for _ in range(_AT_ONCE))
                await asyncio.gather(*repairs)
            except (PostroadError, SQLAlchemyError, RuntimeError):
                pass  # the last of them is the adapter's

    async def _send_again(self, road: Any) -> bool:
        """What groups have not seen; whether there was anything."""
        unseen = [
            Loss(group, "", "", 0, 0, ids)
            async for kind, group, _, ids in Look(road, await window(road, _HOUR, 0.0), FIRST)._groups()
            if kind == "unseen" and ids
        ]
        await resend(road, unseen, actor="mender")
        return bool(unseen)

    def violations(self, ask: Ask) -> Iterator[str]:
        """What was lost is repaired once, and nothing else is."""
        lines = Counter(id for (id,) in ask("SELECT subject FROM postroad_audit WHERE action = 'repair.outbox'"))
        for id in sorted(lines.keys() | self._lost):
            if lines[id] != (wanted := int(id in self._lost)):
                yield f"contradicted: the outbox row of {id} was repaired {lines[id]} times instead of {wanted}"
