"""Several relays and writers, and everything that can go wrong, drawn by lot: nothing lost or out of order.

The seed is in the test's name. It draws the same faults again; databases may interleave them otherwise.
"""

import asyncio
import random

import pytest

from postroad.errors import StoreError
from postroad.message import Message
from postroad.relay import Relay
from postroad.retry import Backoff
from postroad.testing import Faults, FaultyBroker
from postroad.testing.faulty_store import FaultyStore
from postroad.testing.office import Moved, Office, Posted, RecordingBroker
from tests.support.outbox import APPEND_ONLY

RELAYS, WRITERS, PARCELS = 3, 2, 12
OFTEN = Backoff(attempts=1_000, base=0.0)


class Storm:
    def __init__(self, office: Office, seed: int, *, ordered_runs: bool) -> None:
        self.office, self.chance = office, random.Random(seed)
        self.broker = RecordingBroker(ordered_runs=ordered_runs)
        self.committed: set[tuple[str, str]] = set()
        self.writing = WRITERS
        self.outages = 0

    async def write(self) -> None:
        batches = 0
        while batches < 12 or not self.outages:  # a storm without an outage would prove less
            batches += 1
            parcels = [f"p{self.chance.randrange(PARCELS)}" for _ in range(self.chance.randint(1, 8))]
            kept = self.chance.random() < 0.8
            async with self.office.store.session() as session, session.begin():
                added = [
                    self.office.outbox.add(session, self.chance.choice((Posted, Posted, Moved))(parcel))
                    for parcel in parcels
                ]
                await session.flush()
                if not kept:
                    await session.rollback()
            if kept:
                self.committed |= {(str(one.id), one.message.aggregate_id) for one in added}
        self.writing -= 1

    async def carry(self, seed: int) -> None:
        """A relay with a faulty broker and a faulty store; now and then it dies silently and is replaced."""
        chance = random.Random(seed)
        store = FaultyStore(self.office.store, trouble=0.03, random=chance)
        broker = FaultyBroker(
            self.broker,
            Faults(unavailable=0.15, lost_confirm=0.15),
            random=chance,
            refuse=lambda message: "no" if chance.random() < 0.05 else None,
        )
        relay = self.relay(store, broker)
        while self.writing or await self.unsent():
            if chance.random() < 0.1:
                relay = self.relay(store, broker)
            try:
                await relay.run_once()
            except StoreError:
                pass
            # Nobody waits for an outage to pass; the next round is the probe.
            for topic in relay.breaker.open_destinations:
                self.outages += 1
                relay.breaker._open_until[topic] = 0.0
            if chance.random() < 0.15:
                await self.seize()

    def relay(self, store: FaultyStore, broker: FaultyBroker) -> Relay:
        office = Office(store, self.office.table)
        return office.relay(broker, batch=self.chance.choice((3, 10, 50)), backoff=OFTEN)

    async def seize(self) -> None:
        """All leases run out, whoever holds them and whatever he is doing."""
        try:
            await self.office.expire_leases()
        except StoreError:
            pass

    async def unsent(self) -> bool:
        return bool(await self.office.query("SELECT 1 FROM {delivery} WHERE {state} <> 'SENT' LIMIT 1"))


def inversions(sent: list[Message]) -> list[str]:
    """First arrivals that came after a higher version of their key."""
    highest: dict[str, int] = {}
    seen: set[object] = set()
    found = []
    for message in sent:
        version = message.version or 0
        if message.id not in seen and version < highest.get(message.aggregate_id, 0):
            found.append(f"{message.aggregate_id} {version}")
        seen.add(message.id)
        highest[message.aggregate_id] = max(version, highest.get(message.aggregate_id, 0))
    return found


@pytest.mark.spec("F4", "F5")
@pytest.mark.parametrize("ordered_runs", [True, False], ids=["runs", "single"])
@pytest.mark.parametrize("layout", ["in_row", "append_only"])
@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_is_lost_invented_or_out_of_order(
    office: Office, seed: int, ordered_runs: bool, layout: str
) -> None:
    if layout == "append_only":
        office = Office(office.store, APPEND_ONLY)
    storm = Storm(office, seed, ordered_runs=ordered_runs)
    async with asyncio.timeout(120):
        await asyncio.gather(
            *(storm.write() for _ in range(WRITERS)),
            *(storm.carry(100 * seed + relay) for relay in range(RELAYS)),
        )
    arrived = {(str(message.id), message.aggregate_id) for message in storm.broker.sent}
    assert arrived == storm.committed
    assert inversions(storm.broker.sent) == []
    assert len(arrived) > 30
