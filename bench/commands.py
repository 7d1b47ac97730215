"""A command that brings about one event, against a bare transaction that leaves the same rows."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
from sqlalchemy import text

from bench.common import Figure, OrderPlaced, Scale, Target, fresh_road, side_by_side
from postroad import Postroad
from postroad.message import ordering_key, shard_of

CALLERS = 4
COMMAND = text("""
INSERT INTO postroad_command_box (command_id, command_type, aggregate_type, aggregate_id, payload, tenant_id,
       correlation_id, status, epoch, created_at, started_at, finished_at)
VALUES (:command_id, 'Command.Bench.Order.Place', 'order', :order_id, :payload, '', :flow, 'COMPLETED', 1, :now,
       :now, clock_timestamp())""")
EVENT = text("""
INSERT INTO postroad_domain_events (event_id, event_type, aggregate_type, aggregate_id, aggregate_version, topic,
       schema_version, payload, content_type, tenant_id, correlation_id, causation_id, attributes, occurred_at)
VALUES (:event_id, :event_type, 'order', :order_id, 1, :topic, 1, :payload, :content_type, '', :flow, :cause,
       :attributes, :now)""")
COUNTER = text("INSERT INTO postroad_version (aggregate_type, aggregate_id, version) VALUES ('order', :order_id, 1)")
OUTBOX = text("""
INSERT INTO postroad_outbox (event_id, topic, event_type, aggregate_type, aggregate_id, version, schema_version,
       payload, content_type, tenant_id, correlation_id, causation_id, attributes, occurred_at, ordering_key, shard)
VALUES (:event_id, :topic, :event_type, 'order', :order_id, 1, 1, :payload, :content_type, '', :flow, :cause,
       :attributes, :now, :ordering_key, :shard)""")


async def measure(scale: Scale, server: str) -> list[Figure]:
    commands = scale.of(8, 1_000, 4_000)
    async with fresh_road(server) as road:
        place_order = _declared(road)

        async def execute() -> None:
            (placed,) = await road.execute(place_order(uuid4().hex, "customer-1", 4200))
            assert placed.version == 1

        bare = partial(_by_hand, road)
        for warm_up in (execute, bare):
            await _rate(warm_up, CALLERS)
        rates = await side_by_side(
            max(scale.rounds, scale.of(1, 5)), partial(_rate, execute, commands), partial(_rate, bare, commands)
        )
        await _check_same_rows(road)
    note = f"a new order each, {CALLERS} callers, against one transaction with the same four rows"
    return [Figure("execute", *rates, "commands/s", Target(0.7), note)]


def _declared(road: Postroad) -> Callable[..., Any]:
    @road.command("Command.Bench.Order.Place", aggregate="order", key="order_id")
    class PlaceOrder(msgspec.Struct, frozen=True):
        order_id: str
        customer: str
        cents: int

    @road.handles(PlaceOrder)
    async def place(command: PlaceOrder) -> OrderPlaced:
        return OrderPlaced(order_id=command.order_id, customer=command.customer, cents=command.cents)

    return PlaceOrder


async def _by_hand(road: Postroad) -> None:
    """No lease, no look at what was there, no other caller in mind."""
    order = OrderPlaced(order_id=uuid4().hex, customer="customer-1", cents=4200)
    command_id, key = uuid4(), ordering_key("order", order.order_id)
    values = {
        "command_id": command_id,
        "event_id": uuid4(),
        "event_type": "bench.order.placed",
        "topic": "bench.order.events",
        "order_id": order.order_id,
        "payload": msgspec.json.encode(order),
        "content_type": "application/json",
        "flow": f"flow-{command_id}",
        "cause": str(command_id),
        "attributes": '{"source_service":"bench"}',
        "now": datetime.now(UTC),
        "ordering_key": key,
        "shard": shard_of(key),
    }
    async with road.store.engine.begin() as connection:
        for statement in (COMMAND, COUNTER, OUTBOX, EVENT):
            await connection.execute(statement, values)


async def _rate(work: Callable[[], Awaitable[None]], times: int) -> float:
    async def call() -> None:
        for _ in range(times // CALLERS):
            await work()

    begun = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(CALLERS)))
    return times / (time.perf_counter() - begun)


async def _check_same_rows(road: Postroad) -> None:
    tables = ("command_box", "version", "outbox", "domain_events")
    async with road.store.reading() as connection:
        counts = [await connection.scalar(text(f"SELECT COUNT(*) FROM postroad_{table}")) for table in tables]
    assert len(set(counts)) == 1, dict(zip(tables, counts, strict=True))
