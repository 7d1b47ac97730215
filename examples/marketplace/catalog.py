"""Products on offer, and what is there to be seen of orders and buyers."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from sqlalchemy import RowMapping, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from examples.marketplace import credit
from examples.marketplace.orders import ProductStatus
from examples.marketplace.refusals import ProductNotFound
from examples.marketplace.schema import buyer_credit, orders, products


async def offer(session: AsyncSession, seller_id: int, title: str, price: Decimal, now: datetime) -> RowMapping:
    offered = await session.execute(
        insert(products).values(
            seller_id=seller_id, title=title, price=price, status=ProductStatus.ON_SALE, create_time=now
        )
    )
    product_id = offered.inserted_primary_key[0]  # type: ignore[attr-defined]
    return await product(await session.connection(), product_id)


async def product(connection: AsyncConnection, product_id: int) -> RowMapping:
    found = await connection.execute(select(products).where(products.c.id == product_id))
    one = found.mappings().one_or_none()
    if one is None:
        raise ProductNotFound(product_id)
    return one


async def all_products(connection: AsyncConnection, limit: int = 100) -> Sequence[RowMapping]:
    found = await connection.execute(select(products).order_by(products.c.id.desc()).limit(limit))
    return found.mappings().all()


async def latest_orders(connection: AsyncConnection, limit: int = 50) -> Sequence[RowMapping]:
    found = await connection.execute(select(orders).order_by(orders.c.id.desc()).limit(limit))
    return found.mappings().all()


async def credit_of(connection: AsyncConnection, buyer_id: int) -> dict[str, int]:
    found = await connection.execute(select(buyer_credit).where(buyer_credit.c.buyer_id == buyer_id))
    known = found.mappings().one_or_none()
    clean = {"buyer_id": buyer_id, "completed": 0, "cancelled": 0, "timed_out": 0, "score": credit.FULL}
    return dict(known) if known else clean
