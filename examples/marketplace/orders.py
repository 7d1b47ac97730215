"""What an order may become. The only place where an order or a product changes its status.

    pending ──pay──▶ paid ──ship──▶ shipped ──complete──▶ completed
       └──cancel, time-out──▶ cancelled

Each step is one conditional UPDATE: it counts only if it changed exactly one row. Whoever comes second, be it a
payment, a time-out message or the sweep, finds no row to change, and has no effect. The product is reserved by the
order's own transaction (on_sale → sold), never by an event: that is what keeps two buyers apart.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import RowMapping, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from examples.marketplace import credit
from examples.marketplace.events import (
    CreatedFacts,
    OrderCreated,
    OrderEvent,
    OrderPaid,
    OrderStatusChanged,
    OrderTimeout,
    PaidFacts,
    StatusFacts,
    TimeoutFacts,
    step,
)
from examples.marketplace.refusals import NotAllowed, OrderNotFound, ProductNotFound, ProductSold, WrongStatus
from examples.marketplace.schema import orders, products
from postroad import Postroad


class OrderStatus(StrEnum):
    PENDING = "pending"
    PAID = "paid"
    SHIPPED = "shipped"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


class ProductStatus(StrEnum):
    ON_SALE = "on_sale"
    SOLD = "sold"


NEXT: Final = {
    OrderStatus.PENDING: frozenset({OrderStatus.PAID, OrderStatus.CANCELLED}),
    OrderStatus.PAID: frozenset({OrderStatus.SHIPPED}),
    OrderStatus.SHIPPED: frozenset({OrderStatus.COMPLETED}),
    OrderStatus.COMPLETED: frozenset[OrderStatus](),
    OrderStatus.CANCELLED: frozenset[OrderStatus](),
}
_TIME_OF: Final = {
    OrderStatus.PAID: orders.c.pay_time,
    OrderStatus.SHIPPED: orders.c.ship_time,
    OrderStatus.COMPLETED: orders.c.complete_time,
    OrderStatus.CANCELLED: orders.c.cancel_time,
}
BY_BUYER: Final = "buyer"
BY_TIMEOUT: Final = "timeout"
QUANTITY: Final = 1
"""Second-hand: there is one of each."""


class Orders:
    """The steps, each in the caller's transaction."""

    def __init__(self, road: Postroad, payment_time: timedelta, now: Callable[[], datetime]) -> None:
        self._road, self.payment_time, self._now = road, payment_time, now

    async def place(self, session: AsyncSession, buyer_id: int, product_id: int, trace_id: str) -> RowMapping:
        product = await _product(session, product_id)
        if product["seller_id"] == buyer_id:
            raise NotAllowed("Nobody can buy from themselves.")
        if not await _flip(session, product_id, ProductStatus.ON_SALE, ProductStatus.SOLD):
            raise ProductSold(product_id)
        now = self._now()
        total: Decimal = product["price"] * QUANTITY
        placed = await session.execute(
            insert(orders).values(
                buyer_id=buyer_id,
                seller_id=product["seller_id"],
                product_id=product_id,
                quantity=QUANTITY,
                price=product["price"],
                total_amount=total,
                status=OrderStatus.PENDING,
                create_time=now,
            )
        )
        order_id = int(placed.inserted_primary_key[0])  # type: ignore[attr-defined]
        await session.execute(update(orders).where(orders.c.id == order_id).values(order_no=order_no(now, order_id)))
        order = await find(session, order_id)
        created = CreatedFacts(
            order_id=order_id,
            order_no=order["order_no"],
            buyer_id=buyer_id,
            seller_id=order["seller_id"],
            product_id=product_id,
            quantity=QUANTITY,
            price=order["price"],
            total_amount=total,
        )
        self._tell(session, OrderCreated.of(created, trace_id=trace_id, at=now))
        due = TimeoutFacts(order_id=order_id, order_no=order["order_no"], create_time=now)
        self._tell(session, OrderTimeout.of(due, trace_id=trace_id, at=now), delay=self.payment_time)
        return order

    async def pay(self, session: AsyncSession, buyer_id: int, order_id: int, trace_id: str) -> RowMapping:
        order = await self._advance(session, order_id, OrderStatus.PAID, buyer_id=buyer_id)
        facts = PaidFacts(
            order_id=order_id, order_no=order["order_no"], pay_time=order["pay_time"], amount=order["total_amount"]
        )
        self._tell(session, OrderPaid.of(facts, trace_id=trace_id, at=order["pay_time"]))
        return order

    async def ship(self, session: AsyncSession, seller_id: int, order_id: int, trace_id: str) -> RowMapping:
        order = await self._advance(session, order_id, OrderStatus.SHIPPED, seller_id=seller_id)
        self._tell_status(session, order, OrderStatus.PAID, order["ship_time"], trace_id)
        return order

    async def complete(self, session: AsyncSession, buyer_id: int, order_id: int, trace_id: str) -> RowMapping:
        order = await self._advance(session, order_id, OrderStatus.COMPLETED, buyer_id=buyer_id)
        await credit.recalculate(session, buyer_id)
        self._tell_status(session, order, OrderStatus.SHIPPED, order["complete_time"], trace_id)
        return order

    async def cancel(self, session: AsyncSession, buyer_id: int, order_id: int) -> RowMapping:
        order = await self._advance(session, order_id, OrderStatus.CANCELLED, buyer_id=buyer_id, cancel_reason=BY_BUYER)
        await self._release(session, order)
        return order

    async def close_overdue(self, session: AsyncSession, order_id: int) -> bool:
        """Cancels the order if it is still unpaid and its time is over. Message and sweep both end here."""
        now = self._now()
        closed = await _change(
            session,
            order_id,
            OrderStatus.PENDING,
            OrderStatus.CANCELLED,
            now,
            orders.c.create_time <= now - self.payment_time,
            cancel_reason=BY_TIMEOUT,
        )
        if closed:
            await self._release(session, await find(session, order_id))
        return closed

    async def overdue(self, session: AsyncSession, limit: int) -> list[int]:
        late = (orders.c.status == OrderStatus.PENDING, orders.c.create_time <= self._now() - self.payment_time)
        found = await session.scalars(select(orders.c.id).where(*late).order_by(orders.c.create_time).limit(limit))
        return list(found)

    async def _advance(
        self,
        session: AsyncSession,
        order_id: int,
        to: OrderStatus,
        *,
        buyer_id: int | None = None,
        seller_id: int | None = None,
        **values: Any,
    ) -> RowMapping:
        before = await find(session, order_id)
        if buyer_id not in (None, before["buyer_id"]) or seller_id not in (None, before["seller_id"]):
            raise NotAllowed(f"Order {order_id} is somebody else's.")
        came_from = next(status for status, following in NEXT.items() if to in following)
        if not await _change(session, order_id, came_from, to, self._now(), **values):
            now_is = (await find(session, order_id, locked=True))["status"]
            raise WrongStatus(order_id, now_is, came_from)
        return await find(session, order_id)

    async def _release(self, session: AsyncSession, order: RowMapping) -> None:
        await _flip(session, order["product_id"], ProductStatus.SOLD, ProductStatus.ON_SALE)
        await credit.recalculate(session, order["buyer_id"])

    def _tell_status(
        self, session: AsyncSession, order: RowMapping, old: OrderStatus, at: datetime, trace_id: str
    ) -> None:
        facts = StatusFacts(
            order_id=order["id"],
            order_no=order["order_no"],
            old_status=old,
            new_status=order["status"],
            changed_at=at,
        )
        self._tell(session, OrderStatusChanged.of(facts, trace_id=trace_id, at=at))

    def _tell(self, session: AsyncSession, told: OrderEvent[Any], delay: timedelta | None = None) -> None:
        added = self._road.add(
            session, told, idempotency_key=step(told.payload), correlation_id=told.trace_id, delay=delay
        )
        assert added.id == told.event_id


async def find(session: AsyncSession, order_id: int, *, locked: bool = False) -> RowMapping:
    """`locked` waits for whoever is changing it, and keeps others from it until the commit."""
    wanted = select(orders).where(orders.c.id == order_id)
    found = await session.execute(wanted.with_for_update() if locked else wanted)
    order = found.mappings().one_or_none()
    if order is None:
        raise OrderNotFound(order_id)
    return order


def order_no(moment: datetime, order_id: int) -> str:
    """The time to the second and four digits: 202602041030001234."""
    return f"{moment:%Y%m%d%H%M%S}{order_id % 10_000:04}"


async def _product(session: AsyncSession, product_id: int) -> RowMapping:
    found = await session.execute(select(products).where(products.c.id == product_id))
    product = found.mappings().one_or_none()
    if product is None:
        raise ProductNotFound(product_id)
    return product


async def _flip(session: AsyncSession, product_id: int, old: ProductStatus, new: ProductStatus) -> bool:
    changed = await session.execute(
        update(products).where(products.c.id == product_id, products.c.status == old).values(status=new)
    )
    return changed.rowcount == 1  # type: ignore[attr-defined,no-any-return]


async def _change(
    session: AsyncSession,
    order_id: int,
    old: OrderStatus,
    new: OrderStatus,
    now: datetime,
    *conditions: Any,
    **values: Any,
) -> bool:
    assert new in NEXT[old]
    changed = await session.execute(
        update(orders)
        .where(orders.c.id == order_id, orders.c.status == old, *conditions)
        .values(status=new, **{_TIME_OF[new].name: now}, **values)
    )
    return changed.rowcount == 1  # type: ignore[attr-defined,no-any-return]
