"""What the machine moves in: a store whose time can be set, and relays that stall and break off."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sqlalchemy import text

from postroad.brokers.base import Outcome
from postroad.clock import SystemClock
from postroad.message import Message
from postroad.relay import Relay, RelayOptions
from postroad.retry import Backoff
from postroad.stores import Store, open_store
from postroad.testing import Faults, FaultyBroker, VirtualClock
from postroad.testing.office import RecordingBroker
from tests.fuzz.oracle import ATTEMPTS, LEASE, WAIT, Fate, Holder
from tests.support.outbox import emptied

TIMES = {
    "postroad_shard": ["expires_at"],
    "postroad_worker": ["seen_at"],
    "postroad_outbox": ["next_attempt_at", "published_at"],
    "postroad_inbox": ["locked_until", "next_retry_at", "processed_at"],
}


class World:
    """One store for all examples, and the event loop it lives in."""

    def __init__(self, kind: str, url: str, loop: asyncio.Runner) -> None:
        self.kind, self.loop = kind, loop
        # SQLite's clock is the process's, so a test can own it; a server's times have to be set back instead.
        self.clock = VirtualClock() if kind == "sqlite" else None
        self.store: Store = open_store(url, clock=self.clock or SystemClock())
        self.run(self._prepare())

    def run(self, work: Awaitable[Any]) -> Any:
        return self.loop.run(work)  # type: ignore[arg-type]

    async def _prepare(self) -> None:
        await emptied(self.store)
        async with self.store.transaction() as connection:
            await connection.execute(text("CREATE TABLE fuzz_effect (consumer VARCHAR(64), event_id VARCHAR(64))"))

    async def empty(self) -> None:
        async with self.store.transaction() as connection:
            for table in ("postroad_outbox", "postroad_version", "postroad_inbox", "postroad_worker", "fuzz_effect"):
                await connection.execute(text(f"DELETE FROM {table}"))
            await connection.execute(text("UPDATE postroad_shard SET token = NULL, epoch = 0, expires_at = NULL"))

    async def age(self, seconds: float) -> None:
        """As if so much time had passed for the database."""
        if self.clock is not None:
            self.clock.shift(seconds)
            return
        ago = "make_interval(secs => :seconds)" if self.kind == "postgresql" else "INTERVAL :seconds SECOND"
        async with self.store.transaction() as connection:
            for table, columns in TIMES.items():
                moved = ", ".join(f"{column} = {column} - {ago}" for column in columns)
                await connection.execute(text(f"UPDATE {table} SET {moved}"), {"seconds": seconds})

    async def rows(self, sql: str) -> Sequence[Any]:
        async with self.store.reading() as connection:
            return (await connection.execute(text(sql))).fetchall()

    def close(self) -> None:
        self.run(self.store.aclose())


class Cut(random.Random):
    """Chance that always strikes, and where it is told to."""

    def __init__(self, place: int) -> None:
        super().__init__(0)
        self.place = place

    def random(self) -> float:
        return 0.0

    def randrange(self, *size: int) -> int:  # type: ignore[override]
        return self.place % size[0]


class Stalling:
    """A broker behind which the sender's process stands still for a while, after the broker has taken all."""

    def __init__(self, broker: FaultyBroker) -> None:
        self.broker, self.features, self.address = broker, broker.features, "stalling:"
        self.interlude: Callable[[], Awaitable[None]] | None = None

    async def send(self, batch: Sequence[Message]) -> Sequence[Outcome]:
        outcomes = await self.broker.send(batch)
        interlude, self.interlude = self.interlude, None
        if interlude is not None:
            await interlude()
        return outcomes


class Carrier:
    """A relay as it is, and as the oracle sees it."""

    def __init__(self, store: Store, recording: RecordingBroker, refused: set[str], elapsed: float) -> None:
        self.clock, self.holder = VirtualClock(), Holder()
        self.clock.shift(elapsed)
        self.faulty = FaultyBroker(recording, refuse=lambda message: "no" if message.aggregate_id in refused else None)  # type: ignore[arg-type]
        self.broker = Stalling(self.faulty)
        options = RelayOptions(lease=LEASE, backoff=Backoff(attempts=ATTEMPTS, table=(WAIT,)))
        self.relay = Relay(store, self.broker, options=options, clock=self.clock)  # type: ignore[arg-type]

    async def round(self, fate: Fate) -> int:
        if fate.kind != "none":
            self.faulty.faults, self.faulty._random = Faults(**{fate.kind: 1.0}), Cut(fate.cut)
        try:
            return await self.relay.run_once()
        finally:
            self.faulty.faults = Faults()

    async def carry(self) -> None:
        while await self.round(Fate()):
            pass
