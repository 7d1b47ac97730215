"""A payment service that looks right and is not, and its repair."""

import msgspec
from sqlalchemy import text

from postroad import Postroad, event


@event("order.placed", topic="shop.order.events", aggregate="order", key="order_id")
class OrderPlaced(msgspec.Struct, frozen=True):
    order_id: str
    cents: int


class Gateway:
    """Stands for the payment provider, which, as most do, takes an idempotency key."""

    def __init__(self):
        self.charges = []
        self._known = set()

    def reset(self):
        self.charges.clear()
        self._known.clear()

    async def charge(self, order_id, cents, idempotency_key=None):
        if idempotency_key is None or idempotency_key not in self._known:
            self._known.add(idempotency_key)
            self.charges.append((order_id, cents))


PAID = text("INSERT INTO payments VALUES (:order_id, :cents)")


def fragile(database_url, gateway):
    road = Postroad("payments", database_url)

    @road.on(OrderPlaced, group="payments")
    async def charge(event, session):
        await gateway.charge(event.order_id, event.cents)
        await session.execute(PAID, {"order_id": event.order_id, "cents": event.cents})

    return road


def repaired(database_url, gateway):
    road = Postroad("payments", database_url)

    @road.on(OrderPlaced, group="payments")
    async def charge(event, session, message):
        await gateway.charge(event.order_id, event.cents, idempotency_key=message.id)
        await session.execute(PAID, {"order_id": event.order_id, "cents": event.cents})

    return road
