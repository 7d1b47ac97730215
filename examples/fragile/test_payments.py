"""The first test fails and says why; the second passes."""

import payments
from sqlalchemy import text

gateway = payments.Gateway()


async def create_tables(road):
    async with road.session() as session, session.begin():
        await session.execute(text("CREATE TABLE payments (order_id VARCHAR(40), cents INTEGER)"))


async def place_three_orders(road):
    for number in (1, 2, 3):
        async with road.session() as session, session.begin():
            road.add(session, payments.OrderPlaced(order_id=f"o-{number}", cents=100 * number))


def charges():
    return gateway.charges


def build_with(service):
    def build(database_url):
        gateway.reset()  # each run begins with a gateway that has charged nobody
        return service(database_url, gateway)

    return build


def test_fragile_payments_survive(survives):
    survives(build_with(payments.fragile), place_three_orders, setup=create_tables, outcome=charges)


def test_repaired_payments_survive(survives):
    survives(build_with(payments.repaired), place_three_orders, setup=create_tables, outcome=charges)
