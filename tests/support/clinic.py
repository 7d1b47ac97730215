"""An installation in which faults are planted, and what the doctor says of it."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec
from sqlalchemy import text

from postroad import Postroad, event
from postroad.operations.doctor import CHECKS, Finding, Level, Problem, examine
from postroad.presence import Presence
from postroad.relay.leases import ShardLeases
from postroad.stores.tables import OutboxTable

TOPIC = "post.parcel.events"
GROUP = "delivery"
SUBSCRIPTION = f"{TOPIC}.{GROUP}"
SLOT = "doctor_slot_"
_HOUR = timedelta(hours=1)

# Of the tests' own servers: they run as their administrator, and need not outlive a power cut.
OF_THE_SERVER = frozenset({"settings", "rights"})


@event("parcel.sent", topic=TOPIC, aggregate="parcel", key="parcel_id")
class ParcelSent(msgspec.Struct, frozen=True):
    parcel_id: str


@dataclass
class Clinic:
    road: Postroad
    slot: str = field(default_factory=lambda: f"{SLOT}{uuid4().hex[:8]}")
    """What this test may call a replication slot."""

    async def prepare(self) -> "Clinic":
        await self.road.migrate()
        await self.road.broker.apply(self.road.topology)
        return self

    async def staff(self) -> "Clinic":
        """A relay of each outbox and a worker of each group, alive for the next hour: an examination may be slow."""
        for outbox in self.road.outboxes:
            await self.leases(outbox).keep()
        for group in self.road.groups:
            await self.presence(group).run_once()
        await self.run("UPDATE postroad_worker SET seen_at = :then", then=self.road.clock.now() + _HOUR)
        return self

    def leases(self, outbox: OutboxTable) -> ShardLeases:
        road = self.road
        return ShardLeases(
            road.store,
            outbox,
            name="relay-1",
            ttl=_HOUR.total_seconds(),
            clock=road.clock,
            randomness=random.SystemRandom(),
        )

    def presence(self, group: str) -> Presence:
        return Presence(self.road.store, group, clock=self.road.clock, randomness=random.SystemRandom())

    async def post(self, *parcels: str, delay: float | None = None) -> list[str]:
        async with self.road.session() as session, session.begin():
            return [str(self.road.add(session, ParcelSent(parcel_id=parcel), delay=delay).id) for parcel in parcels]

    async def run(self, sql: str, **values: Any) -> None:
        async with self.road.store.transaction() as connection:
            await connection.execute(text(sql), {name: self.road.store.adapt(value) for name, value in values.items()})

    async def all_findings(self, **options: Any) -> Sequence[Finding]:
        return (await examine(self.road, **options)).findings

    async def problems(self) -> Mapping[str, Level]:
        """The worst that each check has found; those in order are left out, and what is the test server's own."""
        order = list(Level)
        worst: dict[str, Level] = {}
        for one in await self.all_findings(patience=60.0):
            if one.check not in OF_THE_SERVER and one.level is not Level.OK and not _is_of_another_test(one.cause):
                worst[one.check] = max(one.level, worst.get(one.check, Level.OK), key=order.index)
        return worst

    async def found(self, name: str) -> Sequence[Problem]:
        """What one check finds by itself."""
        (check,) = [one for one in CHECKS if one.name == name]
        return [
            problem
            async for problem in check.find(self.road)
            if self.slot in problem.cause or not _is_of_another_test(problem.cause)
        ]

    async def only(self, check: str) -> Problem:
        """The one thing that this check finds, while all others are content."""
        problems = await self.problems()
        assert set(problems) == {check}, problems
        (problem,) = await self.found(check)
        return problem


def _is_of_another_test(cause: str) -> bool:
    """A replication slot belongs to the whole server, and other tests run at the same time."""
    return SLOT in cause


def handle_parcels(road: Postroad) -> Postroad:
    @road.on(ParcelSent, group=GROUP)
    async def deliver(parcel: ParcelSent) -> None:
        return None

    return road
