"""An outbox, relays and a broker that only writes down what it is sent: what the tests of a store need."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
from sqlalchemy import text
from sqlalchemy.engine import Row

from postroad.brokers.base import Broker, Confirmed, Features, Outcome
from postroad.clock import Clock
from postroad.events import event
from postroad.message import Message
from postroad.outbox import Added, Outbox
from postroad.relay import Relay, RelayOptions
from postroad.stores.base import Store
from postroad.stores.migrations import migrate
from postroad.stores.tables import DEFAULT_OUTBOX, OutboxTable

LONG_AGO = "2000-01-01 00:00:00"


@event("parcel.posted", topic="office.parcel.events", aggregate="parcel", key="parcel")
class Posted(msgspec.Struct, frozen=True):
    parcel: str
    note: str = ""


@event("parcel.moved", topic="office.moves.events", aggregate="parcel", key="parcel")
class Moved(msgspec.Struct, frozen=True):
    """Of the same aggregate as Posted, but to another topic."""

    parcel: str


class RecordingBroker:
    """Confirms everything, in order. Wrap it in a FaultyBroker to make it fail."""

    address = "recording:"

    def __init__(self, *, ordered_runs: bool = True) -> None:
        self.features = Features(
            ordered_runs=ordered_runs, delay=True, seek=False, attempts=False, max_message_bytes=10_000_000
        )
        self.batches: list[list[Message]] = []

    @property
    def sent(self) -> list[Message]:
        return [message for batch in self.batches for message in batch]

    async def send(self, batch: Sequence[Message]) -> Sequence[Outcome]:
        self.batches.append(list(batch))
        return [Confirmed()] * len(batch)

    async def aclose(self) -> None:
        return None

    def versions(self, parcel: str) -> list[int | None]:
        """The versions of one aggregate, in the order in which they arrived, repeats included."""
        return [message.version for message in self.sent if message.aggregate_id == parcel]

    def first_arrivals(self) -> dict[str, list[int]]:
        """For each ordering key its versions in the order of their first arrival."""
        arrived: dict[str, dict[int, None]] = {}
        for message in self.sent:
            arrived.setdefault(message.ordering_key, {})[message.version or 0] = None
        return {key: list(versions) for key, versions in arrived.items()}


class Office:
    """Usable on any migrated store; times in the database are moved by `expire_leases` and `make_due`."""

    def __init__(self, store: Store, *tables: OutboxTable, clock: Clock | None = None) -> None:
        self.store = store
        self.tables = tables or (DEFAULT_OUTBOX,)
        self.table = self.tables[0]
        self.clock = clock
        self.outbox = Outbox(store, "office", self.tables, clock=clock)
        self.broker = RecordingBroker()

    async def post(self, *parcels: str, **options: Any) -> list[Added]:
        """One event for each, all in one transaction."""
        async with self.store.session() as session, session.begin():
            return [self.outbox.add(session, Posted(parcel), **options) for parcel in parcels]

    def relay(self, broker: object = None, *, outbox: OutboxTable | None = None, **options: Any) -> Relay:
        return Relay(
            self.store,
            cast(Broker, broker or self.broker),
            outbox or self.table,
            options=RelayOptions(**options),
            clock=self.clock,
        )

    async def carry(self, broker: object = None, **options: Any) -> Relay:
        """A relay that runs until there is nothing more to do, and leaves."""
        relay = self.relay(broker, **options)
        while await relay.run_once():
            pass
        await relay.leases.release()
        return relay

    async def rows(self, outbox: OutboxTable | None = None) -> Sequence[Row[Any]]:
        """Every delivery, key by key in order."""
        return await self.query(
            "SELECT {ordering_key} AS ordering_key, {delivery_version} AS version, {state} AS state,"
            " {attempts} AS attempts, {last_error} AS last_error, {next_attempt_at} AS next_attempt_at"
            " FROM {delivery} ORDER BY {ordering_key}, {delivery_version}",
            outbox or self.table,
        )

    async def states(self) -> list[str]:
        return [row.state for row in await self.rows()]

    async def query(self, sql: str, outbox: OutboxTable | None = None, **values: object) -> Sequence[Row[Any]]:
        async with self.store.reading() as connection:
            return (await connection.execute(text(self._fill(sql, outbox)), values)).fetchall()

    async def run(self, sql: str, outbox: OutboxTable | None = None, **values: object) -> int:
        async with self.store.transaction() as connection:
            return (await connection.execute(text(self._fill(sql, outbox)), values)).rowcount

    async def expire_leases(self) -> None:
        """As if every relay had been silent for longer than its lease."""
        await self.run("UPDATE {shards} SET expires_at = :then WHERE token IS NOT NULL", then=LONG_AGO)
        await self.run("UPDATE {workers} SET seen_at = :then", then=LONG_AGO)

    async def make_due(self) -> None:
        """As if every back-off had passed."""
        await self.run(
            "UPDATE {delivery} SET {next_attempt_at} = :then WHERE {next_attempt_at} IS NOT NULL",
            then=LONG_AGO,
        )

    def _fill(self, sql: str, outbox: OutboxTable | None) -> str:
        return self.store.fill(sql, outbox or self.table)


@asynccontextmanager
async def opened(store: Store, *tables: OutboxTable, clock: Clock | None = None) -> AsyncIterator[Office]:
    """Migrates the store, and closes it at the end."""
    office = Office(store, *tables, clock=clock)
    try:
        await migrate(store, office.tables)
        yield office
    finally:
        office.outbox.close()
        await store.aclose()
