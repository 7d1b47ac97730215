"""How long and how hard: the short campaign and the long one, per store and broker."""

from dataclasses import dataclass, field
from typing import Final

from proof.chaos.bank import USUAL_LOAD, Load


@dataclass
class Tally:
    """What was really done to one store and broker. A trap that nobody ran into does not count."""

    kills: int = 0
    """kill -9 of relays and workers"""
    writer_kills: int = 0
    freezes: int = 0
    """SIGSTOP past the lease, then SIGCONT"""
    silences: int = 0
    """a connection on which nothing goes through, past the lease"""
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
    takeovers: list[float] = field(default_factory=list)
    """Seconds from a relay's kill until none of its shards was its own any more, undisturbed by other faults."""

    @property
    def stalls(self) -> int:
        return self.freezes + self.silences


@dataclass(frozen=True)
class Minimum:
    """Below this a campaign has proved too little, whatever its books say."""

    events: int
    kills: int
    stalls: int
    cuts: int
    commit_before: int
    commit_after: int
    marks: int
    broker_cuts: int
    confirms: int
    acks: int
    restarts: int
    broker_restarts: int
    disk_full: int

    def missed(self, tally: Tally, events: int, *, database: bool, broker: bool, disk: bool) -> tuple[str, ...]:
        """What there was too little of. What has no server has no connections to cut; where both have one, half of
        the cuts will do for each. While a broker is away little is written, and a full disk may go unnoticed."""
        done = {"events": events, "kills": tally.kills, "stalls": tally.stalls}
        cut: dict[str, int] = {}
        if disk and not broker:
            done["disk_full"] = tally.disk_full
        if database:
            done["restarts"] = tally.restarts
            cut |= {name: getattr(tally, name) for name in ("cuts", "commit_before", "commit_after")}
            cut["marks"] = tally.mark_before + tally.mark_after
        if broker:
            done["broker_restarts"] = tally.broker_restarts
            cut["broker_cuts"] = tally.broker_cuts
            cut["confirms"] = tally.confirm_before + tally.confirm_after
            cut["acks"] = tally.ack_before + tally.ack_after
        least = {name: getattr(self, name) for name in done}
        least |= {name: getattr(self, name) // (2 if database and broker else 1) for name in cut}
        return tuple(f"{name} {count} < {least[name]}" for name, count in (done | cut).items() if count < least[name])


SCORECARD: Final = {"events": 100_000, "kills": 300, "stalls": 100, "cuts": 2_000}
"""What the long campaign over all stores and brokers must come to, in all."""


@dataclass(frozen=True)
class Plan:
    seconds: float
    """of faults"""
    drain: float
    """seconds that everything may take to come to rest afterwards"""
    kill_every: float
    stall_every: float
    cut_every: float
    restarts: int
    """of each server"""
    broker_away: float
    """seconds that the restarts of a broker's server take; there is as much more time then"""
    disk_full: int
    minimum: Minimum
    load: Load = USUAL_LOAD


SHORT: Final = Plan(
    seconds=28,
    drain=60,
    kill_every=0.5,
    stall_every=0.6,
    cut_every=0.15,
    restarts=1,
    broker_away=12,
    disk_full=2,
    minimum=Minimum(
        events=500,
        kills=20,
        stalls=5,
        cuts=40,
        commit_before=3,
        commit_after=3,
        marks=2,
        broker_cuts=16,
        confirms=2,
        acks=1,
        restarts=1,
        broker_restarts=1,
        disk_full=1,
    ),
)
LONG: Final = Plan(
    seconds=54,
    drain=120,
    kill_every=0.8,
    stall_every=1.4,
    cut_every=0.04,
    restarts=2,
    broker_away=12,
    disk_full=3,
    load=Load(most_payments=100, backlog=8_000, alpha=50, beta=100, batch=True),
    minimum=Minimum(
        events=12_000,
        kills=40,
        stalls=10,
        cuts=350,
        commit_before=50,
        commit_after=50,
        marks=20,
        broker_cuts=120,
        confirms=20,
        acks=20,
        restarts=2,
        broker_restarts=1,
        disk_full=2,
    ),
)
