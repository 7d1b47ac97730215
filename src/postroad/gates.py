"""Whether work may be taken: what people have paused or drained, as this process has read it last."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final
from uuid import UUID

from postroad.stores.base import Store

GROUP, OUTBOX, WORKER = "group", "outbox", "worker"
"""What can be told to stand still."""
LOOK_EVERY: Final = 1.0
"""Seconds."""


class Gate:
    """Open, shut, or shut for good."""

    def __init__(self) -> None:
        self.is_open, self.for_good = True, False
        self.changed = asyncio.Event()
        """Set once, at the next change; then there is another."""

    def let(self, *, through: bool, for_good: bool = False) -> None:
        if (through, for_good) != (self.is_open, self.for_good):
            self.is_open, self.for_good = through, for_good
            self.changed.set()
            self.changed = asyncio.Event()


class Gates:
    def __init__(self, store: Store, workers: Collection[UUID]) -> None:
        self._store, self._workers = store, {(WORKER, str(id)) for id in workers}
        self._shut: set[tuple[str, str]] = set()
        self._gates: dict[tuple[str, str], Gate] = {}
        self.drained = False

    def of(self, kind: str, name: str = "") -> Gate:
        """Without a name: for what only a drain ends."""
        if (kind, name) not in self._gates:
            self._gates[kind, name] = Gate()
            self._set((kind, name))
        return self._gates[kind, name]

    async def look(self) -> None:
        """Also before the first message is taken: what was paused stays so when a worker is started anew."""
        self._shut = {(row.kind, row.name) for row in (await self._store.read("pauses")).rows}
        self.drained = self.drained or not self._workers.isdisjoint(self._shut)
        for subject in self._gates:
            self._set(subject)

    def _set(self, subject: tuple[str, str]) -> None:
        through = not self.drained and subject not in self._shut
        self._gates[subject].let(through=through, for_good=self.drained)


async def while_open(gate: Gate, stop: asyncio.Event, work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Work that ends when its gate shuts, and begins anew when it opens; until `stop`, or shut for good."""
    while not (stop.is_set() or gate.for_good):
        changed = gate.changed
        if not gate.is_open:
            await _first(changed, stop)
            continue
        halt = asyncio.Event()
        watching = asyncio.create_task(_tell(halt, changed, stop))
        try:
            await work(halt)
        finally:
            watching.cancel()


async def _tell(halt: asyncio.Event, *any_of: asyncio.Event) -> None:
    await _first(*any_of)
    halt.set()


async def _first(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
