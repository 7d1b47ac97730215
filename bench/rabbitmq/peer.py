"""The same job done by faststream-outbox, with the settings it is fastest with here."""

import asyncio
import time
from typing import Any

from faststream.rabbit import RabbitBroker, RabbitExchange
from faststream_outbox import OutboxBroker, make_outbox_table
from sqlalchemy import MetaData, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from bench.rabbitmq.wire import ROUTING_KEY, TOPIC

QUEUE = "orders"
_FILL = text("""
INSERT INTO outbox (queue, payload, headers)
SELECT 'orders', convert_to(:body, 'UTF8'), CAST(:headers AS jsonb) FROM generate_series(1, :rows)""")


async def relay(database_url: str, broker_url: str, rows: int, body: str) -> float:
    """Rows per second that are published, confirmed and removed from its table."""
    engine = create_async_engine(make_url(database_url).set(drivername="postgresql+asyncpg"), pool_size=40)
    metadata = MetaData()
    table = make_outbox_table(metadata, table_name="outbox")
    async with engine.begin() as connection:
        await connection.run_sync(metadata.drop_all)
        await connection.run_sync(metadata.create_all)
        headers = '{"content-type": "application/json", "correlation_id": "1"}'
        await connection.execute(_FILL, {"rows": rows, "body": body, "headers": headers})
    async with engine.connect() as connection:
        await (await connection.execution_options(isolation_level="AUTOCOMMIT")).execute(text("VACUUM ANALYZE outbox"))
    rabbit = RabbitBroker(broker_url.partition("?")[0], logger=None)
    outbox = OutboxBroker(engine, outbox_table=table, logger=None)
    publisher = rabbit.publisher(
        routing_key=ROUTING_KEY, exchange=RabbitExchange(TOPIC, declare=False), persist=True, mandatory=False
    )

    @publisher
    @outbox.subscriber(
        QUEUE, max_workers=30, fetch_batch_size=1_000, min_fetch_interval=0.001, terminal_flush_batch_size=100
    )
    async def pass_on(body: dict[str, Any]) -> dict[str, Any]:
        return body

    await rabbit.connect()
    begun = time.perf_counter()
    await outbox.start()
    try:
        await _emptied(engine)
        return rows / (time.perf_counter() - begun)
    finally:
        await outbox.stop()
        await rabbit.stop()
        await engine.dispose()


async def _emptied(engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        while (await connection.execute(text("SELECT 1 FROM outbox LIMIT 1"))).first():
            await connection.rollback()
            await asyncio.sleep(0.01)
