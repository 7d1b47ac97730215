"""The protocol with one rule taken away, each in small bounds in which the exploration must find the harm."""

from dataclasses import dataclass, replace
from typing import Final

from proof.model.explore import Explored, explore
from proof.model.invariants import (
    DEAD_STAYS,
    DELIVERY_ORDER,
    DRAINS,
    EFFECT_ORDER,
    HOLDER_MARKS,
    NOTHING_LOST,
    NOTHING_PHANTOM,
    ONE_EFFECT,
    OUTAGE_FREE,
    SETTLED_STAYS,
)
from proof.model.world import (
    BUSINESS,
    CRASH,
    FAILURE,
    HANDOVER,
    LOST_VERDICT,
    OUTAGE,
    REFUSAL,
    STALL,
    STRAY,
    UNKNOWN_COMMIT,
    Rules,
    Scenario,
    World,
)


@dataclass(frozen=True)
class Mutant:
    name: str
    rule: str
    """Which of the rules is taken away."""
    breaks: str
    """The promise that this must be seen to break."""
    scenario: Scenario
    without: tuple[str, ...] = ()
    """Promises that have no meaning in the mutated design."""

    @property
    def world(self) -> World:
        return World(self.scenario, replace(Rules(), **{self.rule: False}))

    def hunt(self) -> Explored:
        return explore(self.world, self.without)


def _writing(*kinds: str, events: int = 2, faults: int = 3, **more: object) -> Scenario:
    """Two relays and one key, nobody consumes."""
    bounds = Scenario("writing", "", keys=(0,) * events, relays=2, faults=faults, kinds=frozenset(kinds))
    return replace(bounds, **more)  # type: ignore[arg-type]


def _reading(*kinds: str, published: tuple[int, ...] = (0,), faults: int = 3, **more: object) -> Scenario:
    """Two workers of one group; what they read has been published."""
    keys = (0,) * (max(published) + 1)
    bounds = Scenario("reading", "", keys=keys, workers=(0, 0), published=published, faults=faults,
                      kinds=frozenset(kinds))  # fmt: skip
    return replace(bounds, **more)  # type: ignore[arg-type]


MUTANTS: Final = (
    # -- writing
    Mutant("versions without a lock", "version_lock", DELIVERY_ORDER, _writing()),
    Mutant("sent from inside the transaction", "committed_only", NOTHING_PHANTOM, _writing(events=1)),
    # -- carrying
    Mutant("mark before confirm", "mark_after_confirm", NOTHING_LOST, _writing(CRASH, events=1)),
    Mutant("no answer taken for a yes", "unavailable_is_no_confirm", NOTHING_LOST, _writing(OUTAGE, events=1)),
    Mutant("outage counted as an attempt", "outage_costs_nothing", OUTAGE_FREE, _writing(OUTAGE, events=1)),
    Mutant("on past a failed predecessor", "run_stops_at_failure", DELIVERY_ORDER,
           _writing(REFUSAL, ordered_runs=False)),
    Mutant("several of a key in flight", "one_in_flight", DELIVERY_ORDER, _writing(REFUSAL, ordered_runs=False)),
    Mutant("broker takes the rest of a run", "broker_holds_run", DELIVERY_ORDER, _writing(OUTAGE)),
    Mutant("parked head does not block", "parked_blocks", DELIVERY_ORDER, _writing(REFUSAL, acts=1, sends=1)),
    Mutant("waiting head does not block", "waiting_blocks", DELIVERY_ORDER, _writing(REFUSAL)),
    Mutant("row claims instead of shard leases", "whole_keys", DELIVERY_ORDER, _writing(), (HOLDER_MARKS,)),
    Mutant("unfenced mark", "fenced_mark", HOLDER_MARKS, _writing(STALL, events=1)),
    Mutant("unfenced park", "fenced_park", HOLDER_MARKS, _writing(STALL, REFUSAL, events=1)),
    Mutant("lease without epoch", "epoch_counts", HOLDER_MARKS, _writing(HANDOVER, STRAY, events=1)),
    Mutant("refusal overwrites SENT", "sent_is_final", SETTLED_STAYS, _writing(REFUSAL, STRAY, events=1)),
    Mutant("pruner takes the unsent", "prune_sent_only", NOTHING_LOST, _writing(events=1, prunes=True)),
    Mutant("a dead relay keeps its shards", "takeover", DRAINS, _writing(CRASH, events=1, drains=True)),
    # -- consuming
    Mutant("ack before commit", "ack_after_commit", NOTHING_LOST, _reading(CRASH)),
    Mutant("ack on IN_PROGRESS", "in_progress_returns", NOTHING_LOST, _reading(CRASH, STALL, FAILURE)),
    Mutant("inbox row before the handler", "record_with_handler", NOTHING_LOST, _reading(CRASH)),
    Mutant("effect outside the transaction", "effect_with_record", ONE_EFFECT, _reading(CRASH)),
    Mutant("unknown commit taken for success", "unknown_is_no_success", NOTHING_LOST, _reading(UNKNOWN_COMMIT)),
    Mutant("inbox commit not fenced", "fenced_commit", ONE_EFFECT, _reading(STALL, FAILURE)),
    Mutant("inbox failure not fenced", "fenced_failure", ONE_EFFECT, _reading(STALL, FAILURE, faults=4, tries=3)),
    Mutant("later event while its predecessor waits", "predecessor_blocks", EFFECT_ORDER,
           _reading(FAILURE, published=(0, 1), passes_delayed=True)),
    Mutant("rest of the lane goes on", "lane_goes_back", EFFECT_ORDER, _reading(UNKNOWN_COMMIT, published=(0, 1))),
    Mutant("broker lets later ones pass", "broker_holds_key", EFFECT_ORDER,
           _reading(UNKNOWN_COMMIT, published=(0, 1))),
    Mutant("a copy of a dead event is tried", "dead_stays_dead", DEAD_STAYS, _reading(FAILURE, LOST_VERDICT, tries=1)),
    Mutant("retry scheduler without a lease", "scheduler_leases", ONE_EFFECT, _reading(BUSINESS, acts=1)),
    Mutant("inbox row pruned too early", "record_outlives_copies", ONE_EFFECT,
           _reading(LOST_VERDICT, prunes=True)),
    Mutant("a dead worker takes its messages along", "crashed_copies_return", NOTHING_LOST, _reading(CRASH)),
)  # fmt: skip
