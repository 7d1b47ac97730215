"""The bounds of an exploration, and the rules of the protocol, each of which can be taken away."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from proof.model.state import (
    AT_REST,
    FREE,
    NO_RECORD,
    NOBODY,
    OUT,
    SENT,
    UNWRITTEN,
    Copy,
    Lease,
    Relay,
    Row,
    State,
)

CRASH: Final = "crash"
"""A relay or worker dies."""
STALL: Final = "stall"
"""Somebody stands still for longer than a lease lasts, then goes on as if nothing had happened."""
REFUSAL: Final = "refusal"
"""The broker refuses a message."""
OUTAGE: Final = "outage"
"""The broker cannot be asked; a message does not arrive."""
LOST_CONFIRM: Final = "lost confirm"
"""A message arrives, the confirmation does not."""
LATE: Final = "late arrival"
"""A connection breaks; what was under way may arrive much later."""
STRAY: Final = "stray mark"
"""The relay's connection to the database breaks during a mark, which may be carried out much later."""
HANDOVER: Final = "hand-over"
"""A relay gives a shard back, as when others come to share the work."""
FAILURE: Final = "failure"
"""A handler raises."""
BUSINESS: Final = "business error"
"""A handler refuses an event for good."""
UNKNOWN_COMMIT: Final = "unknown commit"
"""The database does not answer a worker's commit, which may or may not have happened."""
LOST_VERDICT: Final = "lost verdict"
"""An acknowledgement, or another verdict, does not reach the broker."""

RELAY_FAULTS: Final = frozenset({CRASH, STALL, REFUSAL, OUTAGE, LOST_CONFIRM})
WORKER_FAULTS: Final = frozenset({CRASH, STALL, FAILURE, UNKNOWN_COMMIT, LOST_VERDICT})


@dataclass(frozen=True)
class Scenario:
    """Who takes part and how much may go wrong. Everything else is left open: every order of steps is tried."""

    name: str
    says: str
    keys: tuple[int, ...]
    """The key of each event; a key's events are written in this order."""
    shards: int = 1
    relays: int = 0
    workers: tuple[int, ...] = ()
    """The group of each worker."""
    batch: int = 3
    """The longest run a relay reads of one key."""
    prefetch: int = 2
    faults: int = 0
    kinds: frozenset[str] = frozenset()
    """Which faults may happen; `faults` bounds their number."""
    acts: int = 0
    """How often a person may retry, skip, revive or discard."""
    sends: int = 2
    """Refusals after which an event is parked."""
    tries: int = 2
    """Failures after which an event is a dead letter."""
    ordered_runs: bool = True
    """The broker takes nothing of a run behind a message that did not get through."""
    passes_delayed: bool = False
    """The broker lets later messages pass one that was given back for later."""
    published: tuple[int, ...] = ()
    """Without relays: what the broker has received, in this order."""
    prunes: bool = False
    drains: bool = False
    """Check, too, that without further faults everything can always be brought to its end."""

    @property
    def groups(self) -> int:
        return max(self.workers, default=-1) + 1


@dataclass(frozen=True)
class Rules:
    """What the protocol relies on. A mutant is the protocol without one of them."""

    version_lock: bool = True
    committed_only: bool = True
    mark_after_confirm: bool = True
    unavailable_is_no_confirm: bool = True
    outage_costs_nothing: bool = True
    run_stops_at_failure: bool = True
    broker_holds_run: bool = True
    one_in_flight: bool = True
    parked_blocks: bool = True
    waiting_blocks: bool = True
    whole_keys: bool = True
    fenced_mark: bool = True
    fenced_park: bool = True
    epoch_counts: bool = True
    sent_is_final: bool = True
    prune_sent_only: bool = True
    takeover: bool = True
    ack_after_commit: bool = True
    in_progress_returns: bool = True
    record_with_handler: bool = True
    effect_with_record: bool = True
    fenced_commit: bool = True
    fenced_failure: bool = True
    unknown_is_no_success: bool = True
    predecessor_blocks: bool = True
    lane_goes_back: bool = True
    broker_holds_key: bool = True
    dead_stays_dead: bool = True
    scheduler_leases: bool = True
    record_outlives_copies: bool = True
    crashed_copies_return: bool = True


@dataclass(frozen=True)
class World:
    scenario: Scenario
    rules: Rules = field(default_factory=Rules)

    @cached_property
    def earlier(self) -> tuple[tuple[int, ...], ...]:
        """For each event, those of its key that are written before it."""
        keys = self.scenario.keys
        return tuple(tuple(o for o in range(e) if keys[o] == keys[e]) for e in range(len(keys)))

    @cached_property
    def of_key(self) -> tuple[tuple[int, ...], ...]:
        keys = self.scenario.keys
        return tuple(tuple(e for e in range(len(keys)) if keys[e] == key) for key in range(max(keys) + 1))

    def shard(self, event: int) -> int:
        return self.scenario.keys[event] % self.scenario.shards

    def can(self, state: State, kind: str) -> bool:
        return state.faults > 0 and kind in self.scenario.kinds

    def start(self) -> State:
        scenario, events = self.scenario, len(self.scenario.keys)
        rows = tuple(Row(0, UNWRITTEN, 0) for _ in range(events))
        queue: tuple[Copy, ...] = ()
        if scenario.published:
            rows = tuple(Row(len(self.earlier[event]) + 1, SENT, 0) for event in range(events))
            queue = tuple(Copy(event, FREE) for event in scenario.published)
        return State(
            rows=rows,
            leases=(Lease(NOBODY, 0),) * scenario.shards,
            relays=(Relay(OUT, (0,) * scenario.shards, ()),) * scenario.relays,
            wire=(),
            strays=(),
            arrived=sum(1 << event for event in set(scenario.published)),
            skipped=0,
            queues=(queue,) * scenario.groups,
            buried=(0,) * scenario.groups,
            inbox=((NO_RECORD,) * events,) * scenario.groups,
            workers=(AT_REST,) * len(scenario.workers),
            effects=((0,) * events,) * scenario.groups,
            stopped=(0,) * scenario.groups,
            faults=scenario.faults,
            acts=scenario.acts,
        )
