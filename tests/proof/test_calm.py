"""Without faults there are no duplicates to absorb: two of everything, on every store, and each event goes once."""

import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from proof.chaos.bank import found, make_road
from proof.chaos.brokers import EMBEDDED
from proof.chaos.journal import Journal
from proof.chaos.ledger import Books, collect
from proof.chaos.writer import write

TRANSFERS = 200
LEASE = 30.0
"""Longer than any pause of a busy machine: a lease that runs out is a fault."""


@pytest.mark.timeout(300)
@pytest.mark.spec("F4", "P6")
async def test_without_faults_each_event_goes_over_the_wire_once(database_url: str, tmp_path: Path) -> None:
    broker_url, journal = EMBEDDED.url(tmp_path), Journal()
    async with AsyncExitStack() as stack:
        roads = [await stack.enter_async_context(make_road(database_url, broker_url, lease=LEASE)) for _ in "ab"]
        await found(roads[0])
        for road in roads:
            await stack.enter_async_context(road.running())
        await write(roads[0], journal.note, random.Random(11), TRANSFERS)
        await roads[0].drain(timeout=200)
        evidence = await collect(roads[0], EMBEDDED.appearances(broker_url), journal)
    assert evidence.books() == Books()
    assert len(evidence.payments) > TRANSFERS
    assert evidence.wire_duplicates == 0
