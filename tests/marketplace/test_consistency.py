"""Whether the frozen outbox, whose ids are text, is compared with what the consumers have records of."""

import pytest
from sqlalchemy import text

from examples.marketplace.schema import shipments
from examples.marketplace.shop import Shop
from tests.support.marketplace import PLACES, eventually, outbox, paid_order, rows


@pytest.mark.parametrize(("store_kind", "broker_kind"), PLACES[:2])
@pytest.mark.spec("G8")
async def test_a_loss_in_the_shop_is_no_all_clear(shop: Shop) -> None:
    async with shop.running(sweep=False):
        for _ in range(3):
            await paid_order(shop)
        await eventually(lambda: three_shipped(shop))
        await eventually(lambda: consistent(shop))
    sent = {row["event_id"] for row in await outbox(shop, status="SENT")}
    async with shop.road.session() as session, session.begin():
        await session.execute(text("DELETE FROM postroad_inbox"))
    unseen = (await shop.road.check(grace=0)).of("unseen")
    told = {id for one in unseen for id in one.ids}
    assert told
    assert told <= sent
    assert {one.where for one in unseen} == {"fulfillment", "inventory"}


async def three_shipped(shop: Shop) -> bool:
    return len(await rows(shop, shipments)) == 3


async def consistent(shop: Shop) -> bool:
    return (await shop.road.check(grace=0)).consistent
