"""What the page shows: products, orders, and each event from the outbox to its consumer."""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from datetime import datetime
from time import monotonic
from typing import Any, Final

from sqlalchemy import ColumnClause, RowMapping, String, cast, literal_column, select

from examples.marketplace import catalog
from examples.marketplace.events import TOPIC
from examples.marketplace.schema import event_consume_log, outbox_events
from examples.marketplace.shop import Shop
from postroad.errors import PostroadError

_LOOK_EVERY: Final = 0.3
_DEAD_EVERY: Final = 1.5
_EVENTS: Final = 40
_HEARTBEAT_LOOKS: Final = 30
# Two of the columns that adopting the table has added.
_DELIVER_AT: Final[ColumnClause[Any]] = literal_column("outbox_events.deliver_at")
_LAST_ERROR: Final[ColumnClause[Any]] = literal_column("outbox_events.last_error")


class Flow:
    """One look serves every open page."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._looking = asyncio.Lock()
        self._seen, self._seen_at = "", -math.inf
        self._dead: list[dict[str, Any]] = []
        self._dead_at = -math.inf

    async def changes(self) -> AsyncIterator[str]:
        """A picture whenever it differs from the one before. A closed page ends it: the server cancels us."""
        before, idle = "", 0
        while True:
            now = await self.latest()
            idle += 1
            if now != before:
                before, idle = now, 0
                yield f"data: {now}\n\n"
            elif idle >= _HEARTBEAT_LOOKS:
                # Without a word now and then, a proxy would take the line for dead.
                idle = 0
                yield ": still here\n\n"
            await asyncio.sleep(_LOOK_EVERY)

    async def latest(self) -> str:
        async with self._looking:
            if monotonic() - self._seen_at >= _LOOK_EVERY:
                self._seen = json.dumps(await self._picture(), default=str, ensure_ascii=False)
                self._seen_at = monotonic()
            return self._seen

    async def _picture(self) -> dict[str, Any]:
        shop = self._shop
        async with shop.road.store.reading() as connection:
            # First: no order below is older than what an event here is shown to have changed.
            events = (await connection.execute(_recent())).mappings().all()
            products = await catalog.all_products(connection, 24)
            orders = [dict(row) for row in await catalog.latest_orders(connection, 24)]
            buyers = sorted({order["buyer_id"] for order in orders})
            credits = [await catalog.credit_of(connection, buyer) for buyer in buyers]
        for order in orders:
            order["pay_before"] = order["create_time"] + shop.orders.payment_time
        return {
            "products": [_plain(row) for row in products],
            "orders": [_plain(row) for row in orders],
            "credits": credits,
            "events": [_plain(row) for row in events],
            "dead": await self._dead_letters(),
            "broken": sorted(shop.consumers.broken),
            "payment_seconds": shop.settings.payment_time.total_seconds(),
            "database": shop.road.store.address,
            "broker": shop.road.broker.address,
        }

    async def _dead_letters(self) -> list[dict[str, Any]]:
        """Not with every look: RabbitMQ shows a queue's messages only by handing them out and taking them back."""
        if monotonic() - self._dead_at >= _DEAD_EVERY:
            try:
                letters = await self._shop.road.broker.dead_letters(TOPIC, limit=10)
            except PostroadError:
                letters = ()  # the broker is away; the events that wait for it show that
            self._dead = [
                {
                    "id": letter.id,
                    "event_id": letter.attributes.get("event_id", ""),
                    "event_type": letter.attributes.get("event_type", ""),
                    "reason": letter.reason,
                }
                for letter in letters
            ]
            self._dead_at = monotonic()
        return self._dead


def _recent() -> Any:
    sent, log = outbox_events, event_consume_log
    return (
        select(
            sent.c.id,
            sent.c.event_id,
            sent.c.event_type,
            sent.c.aggregate_id,
            sent.c.status,
            sent.c.retry_count,
            # Postroad writes these columns too, in its own way: as text they are the same everywhere.
            cast(sent.c.create_time, String(40)).label("create_time"),
            cast(_DELIVER_AT, String(40)).label("deliver_at"),
            _LAST_ERROR.label("last_error"),
            log.c.consumer,
        )
        .outerjoin(log, log.c.event_id == sent.c.event_id)
        .order_by(sent.c.id.desc())
        .limit(_EVENTS)
    )


def _plain(row: RowMapping | dict[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
