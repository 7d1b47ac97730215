"""The fallback: looks for orders whose time is over, for the day the delayed message does not come.

Both may fire for the same order; the conditional update lets one of them win.
"""

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from examples.marketplace.shop import Shop

log = logging.getLogger("marketplace.sweep")


class OrderTimeoutJob:
    def __init__(self, shop: "Shop", interval: float, batch: int) -> None:
        self._shop, self._interval, self._batch = shop, interval, batch

    async def run_once(self) -> int:
        """How many orders it closed. Each in a transaction of its own: one that fails holds up no other."""
        closed = 0
        orders = self._shop.orders
        while found := await self._shop.transact(lambda session: orders.overdue(session, self._batch)):
            for order_id in found:
                closed += await self._shop.transact(partial(orders.close_overdue, order_id=order_id))
            if len(found) < self._batch:
                break
        if closed:
            log.info("closed %d orders whose time was over", closed)
        return closed

    async def run(self) -> None:
        """Until cancelled. A database that is away is no reason to stop: the next look may find it."""
        while True:
            try:
                await self.run_once()
            except Exception:
                log.exception("the sweep failed; next look in %g s", self._interval)
            await asyncio.sleep(self._interval)
