"""How far a buyer can be trusted: always counted anew from the orders, so it can be repeated without harm."""

from typing import Final

from sqlalchemy import case, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from examples.marketplace.schema import buyer_credit, orders

FULL: Final = 100
COST_OF_CANCELLING: Final = 5
COST_OF_NOT_PAYING: Final = 10


def score(cancelled: int, timed_out: int) -> int:
    return max(0, FULL - COST_OF_CANCELLING * cancelled - COST_OF_NOT_PAYING * timed_out)


async def open_account(session: AsyncSession, buyer_id: int) -> None:
    """So that there is a row to lock; most buyers have one already."""
    if await session.scalar(select(buyer_credit.c.buyer_id).where(buyer_credit.c.buyer_id == buyer_id)) is None:
        clean = {"completed": 0, "cancelled": 0, "timed_out": 0, "score": FULL}
        ignoring = (
            insert(buyer_credit).prefix_with("IGNORE", dialect="mysql").prefix_with("OR IGNORE", dialect="sqlite")
        )
        await session.execute(ignoring.values(buyer_id=buyer_id, **clean))


async def recalculate(session: AsyncSession, buyer_id: int) -> None:
    await open_account(session, buyer_id)
    # Locked before counting: of two orders that end at the same time, the second must count the first.
    await session.execute(select(buyer_credit.c.buyer_id).where(buyer_credit.c.buyer_id == buyer_id).with_for_update())
    timed_out = orders.c.cancel_reason == "timeout"
    counted = await session.execute(
        select(
            func.coalesce(func.sum(case((orders.c.status == "completed", 1), else_=0)), 0),
            func.coalesce(func.sum(case(((orders.c.status == "cancelled") & ~timed_out, 1), else_=0)), 0),
            func.coalesce(func.sum(case(((orders.c.status == "cancelled") & timed_out, 1), else_=0)), 0),
        ).where(orders.c.buyer_id == buyer_id)
    )
    completed, cancelled, late = (int(count) for count in counted.one())
    await session.execute(
        update(buyer_credit)
        .where(buyer_credit.c.buyer_id == buyer_id)
        .values(completed=completed, cancelled=cancelled, timed_out=late, score=score(cancelled, late))
    )
