"""A key whose head is parked, with a long backlog behind it: what the other keys notice of it."""

import time
from collections.abc import Iterator
from itertools import count

from bench.common import Figure, Scale, Target, fresh_road, side_by_side
from bench.rows import carried, fill, relay_to_nowhere, settle_down
from postroad import Postroad
from postroad.relay import Relay
from postroad.relay.reader import DueReader
from postroad.stores.tables import DEFAULT_OUTBOX

BATCH = 1_000
_PARK = "UPDATE postroad_outbox SET state = 'FAILED' WHERE ordering_key = 'order/parked-0' AND version = 1"


async def measure(scale: Scale, server: str) -> list[Figure]:
    backlog, events, keys = scale.of(2_000, 200_000), scale.of(200, 10_000), scale.of(100, 1_000)
    numbers = count(backlog, events)
    async with fresh_road(server) as blocked, fresh_road(server) as free:
        await fill(blocked, backlog, keys=1, prefix="parked-")
        # As many rows in both tables: only what is parked shall tell them apart.
        await fill(free, backlog, keys=1, prefix="parked-", state="SENT")
        async with blocked.store.transaction() as connection:
            await connection.exec_driver_sql(_PARK)
        relays = {road: relay_to_nowhere(road) for road in (blocked, free)}

        async def read(road: Postroad) -> float:
            return await _quickest_read(road, relays[road], scale.of(3, 50))

        async def carry(road: Postroad) -> float:
            await fill(road, events, keys=keys, first=next(numbers))
            await settle_down(road)
            return await carried(relays[road], events)

        async def one_by_one(road: Postroad) -> float:
            return await _slow_one(road, relays[road], scale.of(3, 500), numbers)

        for road in (blocked, free):
            await fill(road, 100, keys=100, first=next(numbers), prefix="waiting-")
            await settle_down(road)
        reads = await side_by_side(scale.rounds, lambda: read(blocked), lambda: read(free))
        rates = await side_by_side(scale.rounds, lambda: carry(blocked), lambda: carry(free))
        waits = await side_by_side(scale.rounds, lambda: one_by_one(blocked), lambda: one_by_one(free))
    note = f"{backlog:,} rows behind a parked key"
    return [
        Figure("parked, read", *reads, "ms", Target(10, at_most=True, unit="ms"), note),
        Figure("parked, other keys", *rates, "events/s", Target(0.8), note),
        Figure("parked, other keys, p99", *waits, "ms", Target(2, at_most=True), note),
    ]


async def _quickest_read(road: Postroad, relay: Relay, times: int) -> float:
    """Milliseconds for one look at all shards, with a hundred events due."""
    best = float("inf")
    for _ in range(times):
        if relay.leases.due():
            await relay.leases.keep()
        begun = time.perf_counter()
        look = await DueReader(road.store, DEFAULT_OUTBOX, BATCH).read(relay.leases.epochs)
        best = min(best, time.perf_counter() - begun)
        assert len(look.runs) == 100
    return best * 1000


async def _slow_one(road: Postroad, relay: Relay, times: int, numbers: Iterator[int]) -> float:
    """Milliseconds until an event of another key is carried: of a hundred, 99 take less."""
    waits = []
    for _ in range(times):
        await fill(road, 1, keys=1, first=next(numbers), prefix="single-")
        begun = time.perf_counter()
        while not await relay.run_once():
            pass
        waits.append(time.perf_counter() - begun)
    return sorted(waits)[len(waits) * 99 // 100] * 1000
