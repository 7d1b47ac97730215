"""The shop's tables. `outbox_events` and `event_consume_log` are frozen: names, types and indexes are agreed.

Postroad uses `outbox_events` as its outbox: it is adopted, as `postroad db adopt outbox_events` would do it. Columns
that Postroad needs beyond the agreed ones are added; none is renamed or dropped.
"""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Dialect,
    Index,
    Integer,
    MetaData,
    Numeric,
    String,
    Table,
    Text,
    TypeDecorator,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import expression
from sqlalchemy.types import TypeEngine

from examples.marketplace.events import TOPIC
from postroad import OutboxTable, Postroad
from postroad.stores.adopt import apply_adoption, plan_adoption

OUTBOX: Final = OutboxTable(
    "outbox_events",
    columns={
        "occurred_at": "create_time",
        "state": "status",
        "attempts": "retry_count",
        "next_attempt_at": "next_retry_time",
    },
    topic=TOPIC,
    payload="text",
    ids="text",
    arrival="id",
)

FIRST_ORDER: Final = 900_001
_CENT: Final = Decimal("0.01")


class Money(TypeDecorator[Decimal]):
    """DECIMAL(10, 2); on SQLite, which has no decimals, whole cents."""

    impl = Numeric(10, 2)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Integer() if dialect.name == "sqlite" else Numeric(10, 2))

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> Any:
        if value is None or dialect.name != "sqlite":
            return value
        return int(value.quantize(_CENT) * 100)

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | None:
        if value is None:
            return None
        return (Decimal(value) / 100 if dialect.name == "sqlite" else Decimal(value)).quantize(_CENT)


class Moment(TypeDecorator[datetime]):
    """A time in UTC, to the microsecond; the column itself has no zone."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(mysql.DATETIME(fsp=6) if dialect.name == "mysql" else DateTime())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value.astimezone(UTC).replace(tzinfo=None) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value.replace(tzinfo=UTC) if value is not None else None


class _LastChange(expression.ColumnElement[datetime]):
    """The time of the last change, kept by the database: whoever changes a row, it is right."""

    inherit_cache = True


@compiles(_LastChange)
def _now(element: _LastChange, compiler: Any, **_: Any) -> str:
    return "CURRENT_TIMESTAMP"


@compiles(_LastChange, "mysql")
def _now_and_on_update(element: _LastChange, compiler: Any, **_: Any) -> str:
    return "CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"


_ON_SQLITE: Final = (
    # SQLite has no ON UPDATE, and no first number for a counter.
    "CREATE TRIGGER IF NOT EXISTS outbox_events_changed AFTER UPDATE OF status, retry_count ON outbox_events BEGIN"
    " UPDATE outbox_events SET update_time = CURRENT_TIMESTAMP WHERE id = NEW.id; END",
    f"INSERT INTO sqlite_sequence (name, seq) SELECT 'orders', {FIRST_ORDER - 1}"
    " WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'orders')",
)

metadata: Final = MetaData()
# SQLite counts only an INTEGER by itself.
_ID: Final = BigInteger().with_variant(Integer(), "sqlite")

outbox_events: Final = Table(
    "outbox_events",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("event_id", String(64), nullable=False, unique=True),
    Column("event_type", String(64), nullable=False),
    Column("aggregate_type", String(64), nullable=False),
    Column("aggregate_id", BigInteger, nullable=False),
    Column("payload", Text, nullable=False),
    Column("status", String(16), nullable=False, server_default="NEW"),
    Column("retry_count", Integer, nullable=False, server_default="0"),
    Column("next_retry_time", DateTime),
    Column("create_time", DateTime, nullable=False, server_default=text("CURRENT_TIMESTAMP")),
    Column("update_time", DateTime, nullable=False, server_default=_LastChange()),
    Index("idx_status_time", "status", "next_retry_time"),
    Index("idx_aggregate", "aggregate_type", "aggregate_id"),
)
event_consume_log: Final = Table(
    "event_consume_log",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("event_id", String(64), nullable=False, unique=True),
    Column("event_type", String(64), nullable=False),
    Column("consumer", String(64), nullable=False),
    Column("consume_time", DateTime, nullable=False),
)
products: Final = Table(
    "products",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("seller_id", BigInteger, nullable=False),
    Column("title", String(120), nullable=False),
    Column("price", Money, nullable=False),
    Column("status", String(16), nullable=False),
    Column("create_time", Moment, nullable=False),
)
orders: Final = Table(
    "orders",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("order_no", String(32), unique=True),
    Column("buyer_id", BigInteger, nullable=False),
    Column("seller_id", BigInteger, nullable=False),
    Column("product_id", BigInteger, nullable=False),
    Column("quantity", Integer, nullable=False),
    Column("price", Money, nullable=False),
    Column("total_amount", Money, nullable=False),
    Column("status", String(16), nullable=False),
    Column("cancel_reason", String(32)),
    Column("create_time", Moment, nullable=False),
    Column("pay_time", Moment),
    Column("ship_time", Moment),
    Column("complete_time", Moment),
    Column("cancel_time", Moment),
    Index("idx_order_status_time", "status", "create_time"),
    Index("idx_order_buyer", "buyer_id", "status"),
    mysql_auto_increment=str(FIRST_ORDER),
    sqlite_autoincrement=True,
)
buyer_credit: Final = Table(
    "buyer_credit",
    metadata,
    Column("buyer_id", BigInteger, primary_key=True, autoincrement=False),
    Column("completed", Integer, nullable=False),
    Column("cancelled", Integer, nullable=False),
    Column("timed_out", Integer, nullable=False),
    Column("score", Integer, nullable=False),
)
stock_reservations: Final = Table(
    "stock_reservations",
    metadata,
    Column("order_id", BigInteger, primary_key=True, autoincrement=False),
    Column("product_id", BigInteger, nullable=False),
    Column("quantity", Integer, nullable=False),
)
shipments: Final = Table(
    "shipments",
    metadata,
    Column("order_id", BigInteger, primary_key=True, autoincrement=False),
    Column("status", String(16), nullable=False),
    Column("create_time", Moment, nullable=False),
)
order_status_view: Final = Table(
    "order_status_view",
    metadata,
    Column("order_id", BigInteger, primary_key=True, autoincrement=False),
    Column("status", String(16), nullable=False),
    Column("changed_at", Moment, nullable=False),
)
notifications: Final = Table(
    "notifications",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("user_id", BigInteger, nullable=False),
    Column("order_id", BigInteger, nullable=False),
    Column("content", String(200), nullable=False),
    Column("create_time", Moment, nullable=False),
)


async def prepare(road: Postroad) -> None:
    """Creates what is missing; doing it again changes nothing."""
    async with road.store.migrating() as connection:
        await connection.run_sync(metadata.create_all)
        if connection.dialect.name == "sqlite":
            for statement in _ON_SQLITE:
                await connection.exec_driver_sql(statement)
    plan = await plan_adoption(road.store, OUTBOX.name)
    if plan.statements:
        await apply_adoption(road.store, plan)
    await road.migrate()
