"""`event_consume_log`: one row per event that was consumed, written in the transaction of its effect.

Postroad's inbox has already decided that this delivery may have an effect. The log is the agreed table that other teams
read, and it outlives the inbox's rows: an event that comes back after months still finds its row here.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from examples.marketplace.events import OrderEvent
from examples.marketplace.schema import event_consume_log


async def record(session: AsyncSession, event: OrderEvent[Any], consumer: str, now: datetime) -> bool:
    """False: the event was consumed before, and must have no second effect."""
    log = event_consume_log
    known = await session.scalar(select(log.c.id).where(log.c.event_id == str(event.event_id)))
    if known is not None:
        return False
    await session.execute(
        insert(log).values(
            event_id=str(event.event_id),
            event_type=event.event_type,
            consumer=consumer,
            consume_time=now.astimezone(UTC).replace(tzinfo=None, microsecond=0),
        )
    )
    return True
