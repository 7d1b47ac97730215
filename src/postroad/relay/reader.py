"""What is due: for each key its oldest unsent events, in order, key after key through our shards."""

import math
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import groupby, takewhile
from typing import Any, Final

import msgspec
from sqlalchemy.engine import Row

from postroad.message import SHARDS, Message
from postroad.relay.payloads import Payloads
from postroad.relay.run_length import RunLength
from postroad.retry import describe
from postroad.stores.base import Store
from postroad.stores.rows import message_of
from postroad.stores.tables import OutboxTable

_DEEPEST: Final = 500
"""Keys per shard in one read; MySQL stops a recursion at 1,000."""
_LONGEST_RUN: Final = 8
MOST_BYTES: Final = 16 * 1024 * 1024
"""Payload in one look; a larger message goes alone."""


class Due(msgspec.Struct, frozen=True, gc=False):
    """An outbox row in a relay's hands, with the epoch under which it was read."""

    message: Message
    row_id: Any
    """The event id as the table holds it: what other programs wrote need not look like ours."""
    key: str
    """What it must stay in order with: its aggregate's, or one of its own if it is delayed."""
    shard: int
    epoch: int
    attempts: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row that cannot become a message. It must not stop the others, so it is parked, with its key."""

    row_id: Any
    key: str
    epoch: int
    reason: str


Run = Sequence[Due]
"""The next events of one key to one topic, oldest first."""


@dataclass(frozen=True, slots=True)
class Look:
    runs: list[Run] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    more: bool = False
    """Whether there are keys that it did not reach."""

    def __bool__(self) -> bool:
        return bool(self.runs or self.unreadable)


class DueReader:
    """Walks the keys of each shard in turn and starts over at the end, so that no key can starve another."""

    def __init__(
        self, store: Store, outbox: OutboxTable, batch: int, *, runs: bool = True, holds_delayed: bool = False
    ) -> None:
        """`holds_delayed`: such an event stays here until it is due, because the broker cannot keep it."""
        self._store, self._outbox, self._batch = store, outbox, batch
        self._holds_delayed = holds_delayed
        self._run = RunLength(batch, _LONGEST_RUN if runs else 1)
        self._after: dict[int, str] = {}
        self._last_shard = -1
        self._payloads = Payloads(store, outbox, MOST_BYTES, most_rows=batch + SHARDS)

    async def read(
        self,
        epochs: dict[int, int],
        wanted: Callable[[str], bool] = lambda topic: True,
        pages: float = math.inf,
        busy: Set[str] = frozenset(),
    ) -> Look:
        """What can be sent to the wanted topics, of keys that are not busy. Only a full round through all keys may
        find nothing: a thousand parked keys, or keys of a topic that is out, must not hide the one behind them."""
        begun = dict(self._after)
        started_over: set[int] = set()
        ahead = sorted(epochs, key=lambda shard: (shard <= self._last_shard, shard))
        while ahead and pages > 0:
            pages -= 1
            keys = math.ceil(self._batch / self._run.now)
            few = keys if self._run.now > 1 else len(ahead)
            shards, later = ahead[:few], ahead[few:]
            depth = min(math.ceil(keys / len(shards)), _DEEPEST)
            rows = await self._read_due(shards, depth)
            self._run.found(len(rows))
            self._last_shard = shards[-1]
            ahead = later + self._move_on(shards, rows, depth, begun, started_over)
            idle = [row for row in rows if row.ordering_key not in busy] if busy else rows
            if look := await self._sort_out(idle, epochs, wanted):
                return replace(look, more=bool(ahead))
        return Look()

    async def _read_due(self, shards: Sequence[int], depth: int) -> Sequence[Row[Any]]:
        found = await self._store.read(
            "read_due",
            self._outbox,
            shards=list(shards),
            after=[self._after.get(shard, "") for shard in shards] if self._after else [],
            depth=depth,
            most=self._batch,
            inline=self._payloads.inline,
        )
        return found.rows

    def _move_on(
        self,
        shards: Sequence[int],
        rows: Sequence[Row[Any]],
        depth: int,
        begun: dict[int, str],
        started_over: set[int],
    ) -> list[int]:
        """Advance the cursors; the shards that still have keys we did not look at in this round."""
        seen: dict[int, set[str]] = {}
        for row in rows:
            seen.setdefault(row.shard, set()).add(row.ordering_key)
        ahead = []
        # Those without a cursor in which nothing was found are at their end already.
        for shard in sorted(seen.keys() | self._after.keys() & set(shards)):
            keys, from_key = seen.get(shard, ()), begun.get(shard, "")
            if len(keys) >= depth:
                self._after[shard] = max(keys)
                if not (shard in started_over and self._after[shard] >= from_key):
                    ahead.append(shard)
            else:
                self._after.pop(shard, None)
                if from_key and shard not in started_over:
                    started_over.add(shard)
                    ahead.append(shard)
        return ahead

    async def _sort_out(self, rows: Sequence[Row[Any]], epochs: dict[int, int], wanted: Callable[[str], bool]) -> Look:
        look = Look()
        chosen = self._payloads.within_bounds(list(self._sendable(rows, wanted)))
        large = await self._payloads.fetch(chosen)
        for of_key in chosen:
            run: list[Due] = []
            for row in of_key:
                payload = large.get(row.event_id, row.payload)
                if payload is None and row.size is not None:
                    break  # gone since we looked: what comes after it waits for the next look
                try:
                    run.append(self._due(row, payload, epochs[row.shard]))
                except (ValueError, TypeError, msgspec.MsgspecError) as error:
                    if not run:
                        reason = f"the row is no message: {describe(error)}"
                        look.unreadable.append(Unreadable(row.event_id, row.ordering_key, epochs[row.shard], reason))
                    break
            if run:
                look.runs.append(run)
        return look

    def _sendable(self, rows: Sequence[Row[Any]], wanted: Callable[[str], bool]) -> Iterator[Sequence[Row[Any]]]:
        """Key by key, its next rows to one topic."""
        for _, group in groupby(rows, key=lambda row: (row.shard, row.ordering_key)):
            # A head that waits or is parked is listed for the cursor only.
            of_key = [row for row in group if row.event_id is not None and self._may_leave(row)]
            if of_key and wanted(self._topic(of_key[0])):
                # Another topic has its own connection and its own outages: what goes there waits for the next
                # look, when everything before it is confirmed.
                first = self._topic(of_key[0])
                yield list(takewhile(lambda row, first=first: self._topic(row) == first, of_key))  # type: ignore[misc]

    def _may_leave(self, row: Row[Any]) -> bool:
        """By the clock of those who write: its time was reckoned by theirs."""
        due = self._store.time_out(row.deliver_at) if self._holds_delayed else None
        return due is None or due <= self._store.clock.now()

    def _topic(self, row: Row[Any]) -> str:
        return row.topic or self._outbox.topic

    def _due(self, row: Row[Any], payload: Any, epoch: int) -> Due:
        message = message_of(row, payload, self._store, self._outbox)
        # Whatever is no text shows here, where it can be parked, and not inside the broker's adapter.
        "".join(message.attributes().values())
        return Due(message, row.event_id, row.ordering_key, row.shard, epoch, row.attempts)
