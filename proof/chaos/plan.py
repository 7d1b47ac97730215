"""How long and how hard: the short campaign and the long one, per store and broker."""

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from proof.chaos.bank import USUAL_LOAD, Load

if TYPE_CHECKING:
    from proof.chaos.ground import Ground

STORES: Final = ("sqlite", "postgresql", "mariadb")


@dataclass
class Tally:
    """What was really done to one store and broker. A trap that nobody ran into does not count."""

    kills: int = 0
    """kill -9 of relays and workers"""
    writer_kills: int = 0
    freezes: int = 0
    """SIGSTOP of relays and workers past the lease, then SIGCONT"""
    silences: int = 0
    """a connection of theirs on which nothing goes through, past the lease"""
    cuts: int = 0
    """of connections to the database, those below among them"""
    commit_before: int = 0
    commit_after: int = 0
    mark_before: int = 0
    mark_after: int = 0
    broker_cuts: int = 0
    """of connections to the broker, those below among them"""
    confirm_before: int = 0
    """the broker has the event, and the relay is never told"""
    confirm_after: int = 0
    ack_before: int = 0
    """the worker has committed, and the broker is never told"""
    ack_after: int = 0
    restarts: int = 0
    broker_restarts: int = 0
    disk_full: int = 0
    losses: int = 0
    """events that were taken away on purpose, after everything had come to rest"""
    takeovers: list[float] = field(default_factory=list)
    """Seconds from a relay's kill until none of its shards was its own any more, undisturbed by other faults."""

    @property
    def stalls(self) -> int:
        return self.freezes + self.silences


@dataclass(frozen=True)
class Minimum:
    """Below this a campaign has proved too little, whatever its books say."""

    events: int
    commands: int
    kills: int
    stalls: int
    cuts: int
    commit: int
    """before the database has it, and as many after; so with those that follow"""
    mark: int
    broker_cuts: int
    confirm: int
    ack: int
    restarts: int
    broker_restarts: int
    disk_full: int
    in_order: int
    """effects before the order is lost, where it can be"""

    def missed(self, tally: Tally, events: int, commands: int, ground: "Ground") -> dict[str, str]:
        """What there was too little of. What has no server has no connections to cut; where both have one, half of
        the cuts will do for each. While a broker is away little is written, and a full disk may go unnoticed."""
        database, broker = ground.database is not None, ground.broker is not None
        done = {"events": events, "commands": commands, "kills": tally.kills, "stalls": tally.stalls}
        done |= {"writer_kills": tally.writer_kills, "freezes": tally.freezes}
        if database or broker:
            done["silences"] = tally.silences
        cut: dict[str, int] = {}
        if ground.disk and not broker:
            done["disk_full"] = tally.disk_full
        if database:
            done["restarts"] = tally.restarts
            cut |= _counts(tally, "cuts", "commit_before", "commit_after", "mark_before", "mark_after")
        if broker:
            if ground.wire.remembers:
                done["broker_restarts"] = tally.broker_restarts
            cut |= _counts(tally, "broker_cuts", "confirm_before", "confirm_after", "ack_before", "ack_after")
        least = {name: getattr(self, name, 1) for name in done}
        share = 2 if database and broker else 1
        least |= {name: -(-getattr(self, re.sub("_(before|after)$", "", name)) // share) for name in cut}
        counts = (done | cut).items()
        return {name: f"{name} {count} < {least[name]}" for name, count in counts if count < least[name]}


def _counts(tally: Tally, *names: str) -> dict[str, int]:
    return {name: getattr(tally, name) for name in names}


SCORECARD: Final = {"events": 100_000, "kills": 300, "stalls": 100, "cuts": 2_000}
"""What the long campaign over all stores and brokers must come to, in all."""


@dataclass(frozen=True)
class Plan:
    seconds: float
    """of faults; more, where by then there were fewer than the minimum"""
    quiet: float
    """part of that, at first, in which there are kills only, of relays one by one: then a takeover can be timed"""
    limit: float
    """seconds of faults after which even so there is an end: a slow machine is no reason to fail"""
    drain: float
    """seconds that everything may take to come to rest afterwards"""
    kill_every: float
    stall_every: float
    cut_every: float
    restarts: int
    """of each server"""
    disk_full: int
    minimum: Minimum
    load: Load = USUAL_LOAD


_SHORT: Final = Plan(
    seconds=8,
    quiet=0.2,
    limit=120,
    drain=240,
    kill_every=0.6,
    stall_every=0.9,
    cut_every=0.12,
    restarts=1,
    disk_full=1,
    minimum=Minimum(
        events=300,
        commands=20,
        kills=4,
        stalls=2,
        cuts=12,
        commit=1,
        mark=1,
        broker_cuts=5,
        confirm=1,
        ack=1,
        restarts=1,
        broker_restarts=1,
        disk_full=1,
        in_order=200,
    ),
)
SHORT: Final = {
    "embedded": _SHORT,
    "rabbitmq": _SHORT,
    "kafka": replace(_SHORT, kill_every=1.0, stall_every=1.5),
    "pubsub": replace(_SHORT, load=Load(keys=40)),
}
"""By the broker: a group of Kafka's needs time to agree who reads what; Pub/Sub's emulator has a thread for each key of
each subscription."""
AT_ONCE: Final = 3
"""Pairs of the short campaign: much of the time of each is spent in waiting, for a server or for a lease."""
_LONG: Final = replace(
    _SHORT,
    seconds=30,
    limit=60,
    stall_every=1.2,
    cut_every=0.01,
    quiet=0.15,
    disk_full=2,
    load=Load(most_payments=100, backlog=3_000, alpha=50, beta=100, batch=True),
    minimum=Minimum(
        events=2_000,
        commands=50,
        kills=15,
        stalls=9,
        cuts=100,
        commit=15,
        mark=2,
        broker_cuts=30,
        confirm=2,
        ack=2,
        restarts=1,
        broker_restarts=1,
        disk_full=1,
        in_order=1_000,
    ),
)


def _killing(plan: Plan, every: float, least: int) -> Plan:
    return replace(plan, kill_every=every, minimum=replace(plan.minimum, kills=least))


LONG: Final = {
    "embedded": _killing(replace(_LONG, seconds=27), 0.25, 38),
    "rabbitmq": _killing(replace(_LONG, seconds=23), 0.3, 28),
    "kafka": _killing(replace(_LONG, seconds=21, stall_every=1.6), 0.55, 16),
    "pubsub": _killing(replace(_LONG, seconds=19, load=replace(_LONG.load, keys=40)), 0.32, 22),
}
"""Ten minutes in all, with all that is to be started for it."""
