"""Pub/Sub → a read model in PostgreSQL."""

import time
from typing import Any

import grpc
import psycopg

from bench import readmodel
from bench.common import Figure, OrderPlaced, Scale, Target, fresh_road, side_by_side
from bench.pubsub.emulator import clear, start_afresh
from bench.rabbitmq.wire import TOPIC, messages
from postroad import Postroad
from postroad.brokers.base import Flow
from postroad.brokers.pubsub.address import Address, parse
from postroad.brokers.pubsub.line import connections_thread, raw
from postroad.codec import json
from postroad.events import event_type_of

OURS, BARE = f"{TOPIC}.{readmodel.GROUP}", f"{TOPIC}.bare"
FLOW = Flow()
TABLES = (
    "CREATE TABLE seen (event_id text PRIMARY KEY)",
    readmodel.TABLE,
    "CREATE TABLE bare_search (LIKE order_search INCLUDING ALL)",
)
SEE = "INSERT INTO seen VALUES (%s) ON CONFLICT DO NOTHING"
WRITE = """
INSERT INTO bare_search VALUES (%s, %s, %s, %s) ON CONFLICT (order_id) DO UPDATE
   SET customer = excluded.customer, cents = excluded.cents, version = excluded.version
 WHERE bare_search.version < excluded.version"""
_StreamingPullRequest = raw("StreamingPullRequest")


async def measure(scale: Scale, server: str, url: str) -> list[Figure]:
    events, address = scale.of(50, 2_000, 10_000), parse(url)
    async with fresh_road(server, *TABLES, broker_url=url) as road:
        readmodel.declare(road)

        async def ours() -> float:
            await start_afresh(road, OURS, BARE)
            for first in range(0, events, 1_000):
                await road.broker.send(messages(min(1_000, events - first)))
            return await readmodel.consumed(road, events)

        async def bare() -> float:
            return await connections_thread().run(_by_hand, road.database_url, address, events)

        rates = await side_by_side(scale.rounds, ours, bare)
        await _check_equal(road)
        await clear(road, OURS, BARE)
    note = f"1 KB, {FLOW.messages:,} in flight; against insert, upsert, commit, ack for each"
    return [Figure("Pub/Sub, project", *rates, "events/s", Target(0.8), note)]


async def _by_hand(database_url: str, address: Address, events: int) -> float:
    """A stream, a connection, and for each message insert, upsert, commit, ack."""
    kind, count = event_type_of(OrderPlaced), 0
    begun = time.perf_counter()
    async with (
        grpc.aio.insecure_channel(address.emulator) as channel,
        await psycopg.AsyncConnection.connect(database_url) as connection,
    ):
        call = await _pull(channel, address)
        while count < events:
            for received in (await call.read()).received_messages:
                event: Any = json.decode(received.message.data, kind)
                attributes = received.message.attributes
                count += (await connection.execute(SEE, (attributes["event_id"],))).rowcount
                await connection.execute(WRITE, (event.order_id, event.customer, event.cents, attributes["version"]))
                await connection.commit()
                await call.write(_StreamingPullRequest(ack_ids=[received.ack_id]))
        call.cancel()
    return events / (time.perf_counter() - begun)


async def _pull(channel: Any, address: Address) -> Any:
    call = channel.stream_stream(
        "/google.pubsub.v1.Subscriber/StreamingPull",
        request_serializer=_StreamingPullRequest.SerializeToString,
        response_deserializer=raw("StreamingPullResponse").FromString,
    )()
    await call.write(
        _StreamingPullRequest(
            subscription=address.subscription(BARE),
            stream_ack_deadline_seconds=60,
            max_outstanding_messages=FLOW.messages,
            max_outstanding_bytes=FLOW.bytes,
        )
    )
    return call


async def _check_equal(road: Postroad) -> None:
    async with road.store.reading() as connection:
        found = await connection.exec_driver_sql(
            "SELECT COUNT(*) FROM order_search o FULL JOIN bare_search b USING (order_id)"
            " WHERE (o.customer, o.cents, o.version) IS DISTINCT FROM (b.customer, b.cents, b.version)"
        )
        assert found.scalar_one() == 0
