"""Outbox rows in any number, made by the database itself, and a relay to carry them nowhere."""

import time
from collections.abc import Sequence

from postroad import Postroad
from postroad.brokers.base import Confirmed, Features, Outcome
from postroad.message import Message
from postroad.relay import Relay

# The shard only has to be the same for a whole key; ids that grow are what UUIDv7 gives.
_FILL = """
INSERT INTO postroad_outbox (event_id, topic, event_type, aggregate_type, aggregate_id, version,
       schema_version, payload, correlation_id, attributes, occurred_at, ordering_key, shard, state,
       published_at)
SELECT CAST(lpad(to_hex(n), 32, '0') AS uuid), 'bench.order.events', 'bench.order.placed', 'order', k,
       n / keys + 1, 1,
       convert_to('{"order_id":"' || k || '","customer":"' || customer || '","cents":4200}', 'UTF8'),
       lpad(to_hex(n), 32, '0'), '{"source_service":"bench"}', now(), 'order/' || k, abs(hashtext(k)) %% 256,
       state, CASE state WHEN 'SENT' THEN now() END
  FROM (SELECT n, keys, state, customer, prefix || n %% keys AS k
          FROM (SELECT CAST(%(keys)s AS int), CAST(%(state)s AS text), CAST(%(prefix)s AS text),
                       CAST(%(customer)s AS text)) AS given(keys, state, prefix, customer),
               generate_series(CAST(%(first)s AS bigint), CAST(%(last)s AS bigint)) AS n) AS rows"""


async def fill(
    road: Postroad,
    rows: int,
    *,
    keys: int,
    first: int = 0,
    state: str = "NEW",
    prefix: str = "o-",
    customer: str = "customer-1",
) -> None:
    last = first + rows - 1
    values = {"keys": keys, "state": state, "first": first, "last": last, "prefix": prefix, "customer": customer}
    async with road.store.transaction() as connection:
        await connection.exec_driver_sql(_FILL, values)


async def settle_down(road: Postroad, *tables: str) -> None:
    """What autovacuum would do sooner or later, done before the measurement instead of during it."""
    async with road.store.engine.connect() as connection:
        connection = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await connection.exec_driver_sql(f"VACUUM (ANALYZE) {', '.join(tables or ['postroad_outbox'])}")
        await connection.exec_driver_sql("CHECKPOINT")


async def refill(road: Postroad, rows: int, *, keys: int, customer: str = "customer-1") -> None:
    """These rows and no others, all of them due."""
    async with road.store.transaction() as connection:
        await connection.exec_driver_sql("TRUNCATE postroad_outbox")
    await fill(road, rows, keys=keys, customer=customer)
    await settle_down(road)


class Nowhere:
    """A broker that takes everything at once and keeps nothing."""

    features = Features(ordered_runs=True, delay=True, seek=False, attempts=False, max_message_bytes=10_000_000)
    address = "nowhere:"

    async def send(self, batch: Sequence[Message]) -> Sequence[Outcome]:
        return [Confirmed()] * len(batch)


def relay_to_nowhere(road: Postroad) -> Relay:
    return Relay(road.store, Nowhere())  # type: ignore[arg-type]


async def carried(relay: Relay, events: int) -> float:
    """Events per second while the relay carries this many."""
    sent, begun = 0, time.perf_counter()
    while sent < events:
        settled = await relay.run_once()
        assert settled, f"the relay found nothing more after {sent} of {events} events"
        sent += settled
    return sent / (time.perf_counter() - begun)
