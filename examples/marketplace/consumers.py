"""What follows from an event. Each consumer reads one queue, and looks at the order before it believes the event.

A handler's effect, its row in `event_consume_log` and Postroad's inbox row commit together. What it raises decides:
anything recoverable is retried and ends with the dead letters at last; PoisonError goes there at once.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from sqlalchemy import RowMapping, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from examples.marketplace import consume_log, texts
from examples.marketplace.events import (
    OrderCreated,
    OrderEvent,
    OrderPaid,
    OrderStatusChanged,
    OrderTimeout,
)
from examples.marketplace.orders import Orders, OrderStatus, find
from examples.marketplace.refusals import OrderNotFound
from examples.marketplace.schema import notifications, order_status_view, shipments, stock_reservations
from postroad import PoisonError, Postroad, TransientError

log = logging.getLogger("marketplace.consumers")

E = TypeVar("E", bound=OrderEvent[Any])


@dataclass(frozen=True, slots=True)
class Queue:
    name: str
    group: str
    """Postroad's consumer group; layout.toml leads its subscription to the queue of this name."""
    consumer: str


INVENTORY: Final = Queue("inventory.update.queue", "inventory", "inventory-consumer")
FULFILLMENT: Final = Queue("order.fulfillment.queue", "fulfillment", "fulfillment-consumer")
STATUS_SYNC: Final = Queue("order.status.sync.queue", "status-sync", "status-sync-consumer")
TIMEOUT: Final = Queue("order.timeout.queue", "timeout", "timeout-consumer")
QUEUES: Final = (INVENTORY, FULFILLMENT, STATUS_SYNC, TIMEOUT)

_PROGRESS: Final = tuple(OrderStatus)


class Consumers:
    def __init__(self, road: Postroad, orders: Orders, now: Callable[[], datetime]) -> None:
        self._road, self._orders, self._now = road, orders, now
        self.broken: set[str] = set()
        """Groups that fail on purpose, so that a person can watch what becomes of their messages."""
        self._listen(OrderCreated, INVENTORY, self.reserve_stock)
        self._listen(OrderPaid, FULFILLMENT, self.prepare_shipment)
        self._listen(OrderStatusChanged, STATUS_SYNC, self.sync_status)
        self._listen(OrderTimeout, TIMEOUT, self.close_overdue)

    def _listen(self, event_class: type[E], queue: Queue, handle: Callable[[E, AsyncSession], Awaitable[None]]) -> None:
        async def consume(event: E, session: AsyncSession) -> None:
            about = facts(event, queue)
            if not await consume_log.record(session, event, queue.consumer, self._now()):
                log.info("%s", texts.ALREADY_HANDLED, extra=about)
                return
            if queue.group in self.broken:
                raise TransientError(f"{queue.consumer} is broken on purpose")
            await handle(event, session)
            log.info("%s consumed", event.event_type, extra=about)

        consume.__qualname__ = handle.__qualname__
        self._road.on(event_class, group=queue.group)(consume)

    async def reserve_stock(self, event: OrderCreated, session: AsyncSession) -> None:
        """The product itself was taken by the order's transaction; this is the warehouse's book."""
        order = await _order(event, session)
        if order["status"] == OrderStatus.CANCELLED:
            return
        if order["product_id"] != event.payload.product_id:
            raise PoisonError(f"{texts.NOT_CONSUMED}: order {order['id']} is for product {order['product_id']}")
        values = {"product_id": event.payload.product_id, "quantity": event.payload.quantity}
        await session.execute(insert(stock_reservations).values(order_id=order["id"], **values))

    async def prepare_shipment(self, event: OrderPaid, session: AsyncSession) -> None:
        order = await _order(event, session)
        if order["status"] in (OrderStatus.SHIPPED, OrderStatus.COMPLETED):
            return  # the seller was faster than the message
        if order["status"] != OrderStatus.PAID or order["total_amount"] != event.payload.amount:
            # The event commits together with the payment: whoever wrote this was not the shop.
            told = f"{order['status']}, {order['total_amount']} due, {event.payload.amount} told"
            raise PoisonError(f"{texts.NOT_CONSUMED}: order {order['id']} is {told}")
        await session.execute(
            insert(shipments).values(order_id=order["id"], status="preparing", create_time=self._now())
        )

    async def sync_status(self, event: OrderStatusChanged, session: AsyncSession) -> None:
        order = await _order(event, session)
        facts = event.payload
        if _progress(order["status"]) < _progress(facts.new_status):
            raise PoisonError(f"{texts.NOT_CONSUMED}: order {order['id']} has never been {facts.new_status}")
        view = order_status_view
        seen = await session.scalar(select(view.c.status).where(view.c.order_id == order["id"]))
        values = {"status": facts.new_status, "changed_at": facts.changed_at}
        if seen is None:
            await session.execute(insert(view).values(order_id=order["id"], **values))
        elif _progress(seen) < _progress(facts.new_status):
            await session.execute(update(view).where(view.c.order_id == order["id"]).values(**values))
        shipped = facts.new_status == OrderStatus.SHIPPED
        await session.execute(
            insert(notifications).values(
                user_id=order["buyer_id"] if shipped else order["seller_id"],
                order_id=order["id"],
                content=f"{order['order_no']}: {facts.old_status} → {facts.new_status}",
                create_time=self._now(),
            )
        )

    async def close_overdue(self, event: OrderTimeout, session: AsyncSession) -> None:
        """Closes nothing that is paid, or not due by this machine's clock; what it leaves, the sweep will see."""
        await _order(event, session)
        closed = await self._orders.close_overdue(session, event.aggregate_id)
        log.info("order %s %s", event.aggregate_id, "timed out" if closed else "needs no closing")


def facts(event: OrderEvent[Any], queue: Queue) -> dict[str, Any]:
    """What every line about an event carries."""
    return {
        "event_id": str(event.event_id),
        "event_type": event.event_type,
        "trace_id": event.trace_id,
        "queue": queue.name,
        "consumer": queue.consumer,
    }


async def _order(event: OrderEvent[Any], session: AsyncSession) -> RowMapping:
    """Locked, so that what is decided here still holds when it commits."""
    try:
        return await find(session, event.aggregate_id, locked=True)
    except OrderNotFound as missing:
        raise PoisonError(f"{texts.NOT_CONSUMED}: {missing}") from None


def _progress(status: str) -> int:
    return _PROGRESS.index(OrderStatus(status))
