"""A synthetic event now and then on each route, so that a relay or a consumer that stopped in silence is seen.

It goes the way of every event: outbox, relay, broker, lane. A group acknowledges it without a handler, a record or a
count; only its age is told.
"""

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from postroad.errors import BrokerError, ConfigurationError
from postroad.message import Message, id_from_key
from postroad.naming import check_topic
from postroad.stores.base import id_text
from postroad.stores.tables import OutboxTable

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from postroad.app import Postroad

TYPE: Final = "postroad.canary"
_SETTLED: Final = ("SENT", "SKIPPED")
_KEPT: Final = 3_600.0
_ASKED: Final = 60.0
_LATEST: Final = 1_000
"""Sent events by which a topic is known."""


def is_canary(event_type: str) -> bool:
    return event_type == TYPE


@dataclass(frozen=True)
class Canary:
    """On which topics, and how many seconds lie between two canaries.

    Without topics: on all to which this service has sent an event and which somebody reads, but not where the broker
    holds messages to a schema: a canary fits none.
    """

    topics: tuple[str, ...] = ()
    every: float = 10.0

    def __post_init__(self) -> None:
        if isinstance(self.topics, str):
            raise ConfigurationError('Canary takes the topics to watch, as in Canary(("shop.order.events",)).')
        for topic in self.topics:
            check_topic(topic)
        if not self.every > 0:
            raise ConfigurationError(f"canary.every is {self.every}: it must be more than 0 seconds.")


async def watched_topics(road: "Postroad", table: OutboxTable) -> set[str]:
    """Those that have had a canary: they go on having one, however long nothing else is written."""
    return {row.topic for row in (await road.store.read("canary_topics", table, aggregate_type=TYPE)).rows}


class CanaryWriter:
    """Several processes may run one: their canaries of the same moment are one event."""

    def __init__(self, road: "Postroad", canary: Canary) -> None:
        self._road, self._canary = road, canary
        self._read: frozenset[str] = frozenset()
        self._asked_at = -math.inf

    async def run_once(self) -> None:
        for table in self._road.outboxes:
            for topic in self._canary.topics or sorted(await self._busy(table)):
                await self._let_fly(table, topic)

    async def _busy(self, table: OutboxTable) -> set[str]:
        # Other programs write there, too, and read by their own means.
        if table.adopted:
            return set()
        sent = (await self._road.store.read("topics_sent", table, most=_LATEST)).rows
        written = {row.topic for row in sent} | await watched_topics(self._road, table)
        # The broker would refuse it, and refused events stand in somebody's way.
        written -= {schema.topic for schema in self._road.schemas}
        return written & await self._read_topics() if written else set()

    async def _read_topics(self) -> frozenset[str]:
        now = self._road.clock.monotonic()
        if now - self._asked_at >= _ASKED:
            try:
                self._read = frozenset(one.topic for one in await self._road.broker.subscriptions())
                self._asked_at = now
            except BrokerError:
                pass  # In an outage those that we know are still read.
        return self._read

    async def _let_fly(self, table: OutboxTable, topic: str) -> None:
        store, outbox = self._road.store, self._road.outbox
        async with store.transaction() as connection:
            found = await store.execute(connection, "canaries", outbox=table, aggregate_type=TYPE, aggregate_id=topic)
            await self._forget(connection, table, [row for row in found.rows if self._is_old(row)])
            # One that has not left yet tells enough; in a long outage more would only pile up.
            if any(row.state not in _SETTLED for row in found.rows):
                return
            row = outbox.row(self._message(table, topic), table)
            await store.execute(connection, "add_event", outbox=table, **row)
        outbox.wakes[table].committed()

    def _message(self, table: OutboxTable, topic: str) -> Message:
        now = self._road.clock.now()
        moment = int(now.timestamp() / self._canary.every)
        id = id_from_key(self._road.source, TYPE, f"{table.name}/{topic}/{self._canary.every:g}/{moment}")
        return Message(
            id=id,
            type=TYPE,
            topic=topic,
            aggregate_type=TYPE,
            aggregate_id=topic,
            version=None,
            occurred_at=now,
            payload=b"{}",
            source_service=self._road.source,
            correlation_id=str(id),
        )

    def _is_old(self, row: Any) -> bool:
        settled_at = self._road.store.time_out(row.published_at)
        return settled_at is not None and settled_at < self._road.clock.now() - timedelta(seconds=_KEPT)

    async def _forget(self, connection: "AsyncConnection", table: OutboxTable, rows: list[Any]) -> None:
        ids = [id_text(row.event_id) for row in rows]
        for statement in ("prune_facts", "prune_sent") if table.append_only else ("prune_sent",):
            if ids:
                await self._road.store.execute(connection, statement, outbox=table, ids=ids)
