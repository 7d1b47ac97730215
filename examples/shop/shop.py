"""A small shop: an order is placed, then paid; three groups react, each in its own way, each exactly once.

Everything is the default: a SQLite file and the embedded broker. `DATABASE_URL` and `BROKER_URL` change that.
"""

import msgspec
from sqlalchemy import ForeignKey, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from postroad import Message, Postroad, RelayOptions, event

# A short lease, so that the demo need not wait long for the shards of a relay it has killed.
road = Postroad(source="shop", relay=RelayOptions(lease=3.0))


@event("order.placed", topic="shop.order.events", aggregate="order", key="order_id")
class OrderPlaced(msgspec.Struct, frozen=True):
    order_id: int
    customer: str
    cents: int


@event("order.paid", topic="shop.order.events", aggregate="order", key="order_id")
class OrderPaid(msgspec.Struct, frozen=True):
    order_id: int
    cents: int


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    cents: Mapped[int]
    paid: Mapped[bool] = mapped_column(default=False)


class Effect(Base):
    """What a group did, in the order in which it did it: the demo counts its rows."""

    __tablename__ = "effects"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    consumer: Mapped[str]
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))
    version: Mapped[int]


class Revenue(Base):
    """A read model: money received, counted once however often a message arrives."""

    __tablename__ = "revenue"
    day: Mapped[str] = mapped_column(primary_key=True)
    cents: Mapped[int]


# -- the writing side --------------------------------------------------------------------------------


async def place_order(session: AsyncSession, order_id: int, customer: str, cents: int) -> None:
    session.add(Order(id=order_id, customer=customer, cents=cents))
    road.add(session, OrderPlaced(order_id=order_id, customer=customer, cents=cents))


async def pay_order(session: AsyncSession, order_id: int) -> None:
    order = await session.get_one(Order, order_id)
    order.paid = True
    road.add(session, OrderPaid(order_id=order_id, cents=order.cents))


# -- the consuming side ------------------------------------------------------------------------------


@road.on(OrderPlaced, group="receipts", commit_every=50)
@road.on(OrderPaid, group="receipts", commit_every=50)
async def write_receipt(event: OrderPlaced | OrderPaid, session: AsyncSession, message: Message) -> None:
    session.add(Effect(consumer="receipts", order_id=event.order_id, version=message.version))


@road.on(OrderPlaced, group="shipping", commit_every=50)
@road.on(OrderPaid, group="shipping", commit_every=50)
async def prepare_parcel(event: OrderPlaced | OrderPaid, session: AsyncSession, message: Message) -> None:
    session.add(Effect(consumer="shipping", order_id=event.order_id, version=message.version))


@road.on(OrderPlaced, group="accounting", commit_every=50)
async def open_account(event: OrderPlaced, session: AsyncSession, message: Message) -> None:
    session.add(Effect(consumer="accounting", order_id=event.order_id, version=message.version))


@road.on(OrderPaid, group="accounting", commit_every=50)
async def count_revenue(event: OrderPaid, session: AsyncSession, message: Message) -> None:
    session.add(Effect(consumer="accounting", order_id=event.order_id, version=message.version))
    await session.execute(
        text(
            "INSERT INTO revenue VALUES ('today', :cents)"
            " ON CONFLICT (day) DO UPDATE SET cents = revenue.cents + :cents"
        ),
        {"cents": event.cents},
    )


async def create_tables() -> None:
    await road.migrate()
    async with road.store.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
