"""What is due: for each key its oldest unsent events, in order, key after key through our shards."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import msgspec
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.message import Message, ordering_key, shard_of
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable

_UNSHARDED_AT_ONCE: Final = 500
_decode_attributes = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class Due:
    """An outbox row in a relay's hands, with the epoch under which it was read."""

    message: Message
    shard: int
    epoch: int
    attempts: int


Run = Sequence[Due]
"""The next events of one key, oldest first."""


class DueReader:
    """Walks the keys of each shard in turn and starts over at the end, so that no key can starve another."""

    def __init__(self, store: Store, outbox: OutboxTable, batch: int) -> None:
        self._store, self._outbox, self._batch = store, outbox, batch
        self._after: dict[int, str] = {}

    async def read(self, epochs: dict[int, int]) -> list[Run]:
        if not epochs:
            return []
        shards = sorted(epochs)
        depth = math.ceil(self._batch / len(shards))
        async with self._store.reading() as connection:
            found = await self._store.execute(
                connection,
                "read_due",
                outbox=self._outbox,
                shards=shards,
                after=[self._after.get(shard, "") for shard in shards],
                depth=depth,
                most=self._batch,
            )
        runs = self._runs(found.rows, epochs)
        wrapped = self._move_on(shards, found.rows, depth)
        # Nothing ahead of the cursor, but perhaps behind it.
        return runs if runs or not wrapped else await self.read(epochs)

    def _runs(self, rows: Sequence[Row[Any]], epochs: dict[int, int]) -> list[Run]:
        runs = []
        for (shard, _), group in groupby(rows, key=lambda row: (row.shard, row.ordering_key)):
            run = [self._due(row, epochs[shard]) for row in group if row.event_id is not None]
            if run:
                runs.append(run)
        return runs

    def _move_on(self, shards: Sequence[int], rows: Sequence[Row[Any]], depth: int) -> bool:
        """Advance the cursors; whether any of them had to start over."""
        seen: dict[int, set[str]] = {}
        for row in rows:
            seen.setdefault(row.shard, set()).add(row.ordering_key)
        wrapped = False
        for shard in shards:
            keys = seen.get(shard, ())
            if len(keys) == depth:
                self._after[shard] = max(keys)
            elif self._after.pop(shard, None) is not None:
                wrapped = True
        return wrapped

    def _due(self, row: Row[Any], epoch: int) -> Due:
        extras = _decode_attributes(row.attributes) if row.attributes else {}
        payload = row.payload
        message = Message(
            id=self._store.id_out(row.event_id),
            type=row.event_type,
            topic=row.topic or self._outbox.topic,
            aggregate_type=row.aggregate_type,
            aggregate_id=str(row.aggregate_id),
            version=row.version,
            occurred_at=self._store.time_out(row.occurred_at),  # type: ignore[arg-type]
            payload=payload.encode() if isinstance(payload, str) else bytes(payload),
            schema_version=row.schema_version or 1,
            content_type=row.content_type or "application/json",
            tenant=row.tenant_id or "",
            headers=extras.pop("headers", {}),
            correlation_id=row.correlation_id,
            causation_id=row.causation_id,
            deliver_at=self._store.time_out(row.deliver_at),
            **extras,
        )
        return Due(message, row.shard, epoch, row.attempts)

    async def adopt_foreign_rows(self) -> int:
        """Rows that other programs wrote into an adopted table get their key, shard and version here."""
        async with self._store.transaction() as connection:
            found = await self._store.execute(connection, "unsharded", outbox=self._outbox, most=_UNSHARDED_AT_ONCE)
            for row in found.rows:
                aggregate = {"aggregate_type": row.aggregate_type, "aggregate_id": str(row.aggregate_id)}
                key = ordering_key(**aggregate)
                await self._store.execute(
                    connection,
                    "assign_shard",
                    outbox=self._outbox,
                    event_id=row.event_id,
                    ordering_key=key,
                    shard=shard_of(key),
                    version=row.version or await self._allocate(connection, aggregate),
                )
        return len(found.rows)

    async def _allocate(self, connection: AsyncConnection, aggregate: dict[str, str]) -> int:
        await self._store.execute(connection, "version_next", **aggregate)
        return int((await self._store.execute(connection, "version_read", **aggregate)).rows[0].version)
