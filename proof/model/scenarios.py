"""The bounds that are explored. Each fault may happen at any moment and in any combination, up to the given number."""

from typing import Final

from proof.model.world import (
    BUSINESS,
    CRASH,
    FAILURE,
    HANDOVER,
    LATE,
    LOST_CONFIRM,
    LOST_VERDICT,
    OUTAGE,
    REFUSAL,
    RELAY_FAULTS,
    STALL,
    STRAY,
    WORKER_FAULTS,
    Scenario,
)

SCENARIOS: Final = (
    Scenario(
        "takeover",
        "three relays, three events of a key; any three crashes, stalls, refusals, outages, lost confirmations",
        keys=(0, 0, 0), relays=3, faults=3, kinds=RELAY_FAULTS,
    ),
    Scenario(
        "two shards",
        "two relays share two shards, which are handed over, die with their holder and are taken over",
        keys=(0, 0, 1), shards=2, relays=2, faults=2, kinds=frozenset({CRASH, STALL, HANDOVER, REFUSAL, LOST_CONFIRM}),
    ),
    Scenario(
        "late",
        "marks and messages that arrive long after their relay gave them up; people retry and skip, the pruner prunes",
        keys=(0, 0), relays=2, faults=3, kinds=frozenset({STALL, HANDOVER, REFUSAL, OUTAGE, LATE, STRAY}), acts=1,
        prunes=True,
    ),
    Scenario(
        "one in flight",
        "a broker that cannot hold back the rest of a run gets one event per key at a time",
        keys=(0, 0, 0), relays=2, faults=3, kinds=RELAY_FAULTS, ordered_runs=False, drains=True,
    ),
    Scenario(
        "workers",
        "two workers, duplicates on the wire; any four crashes, stalls, failures, unknown commits, lost verdicts",
        keys=(0, 0, 0), workers=(0, 0), published=(0, 1, 0, 2), faults=4, kinds=WORKER_FAULTS, drains=True,
    ),
    Scenario(
        "second tries",
        "dead letters, business errors and what people do about them; the retry scheduler beside the broker",
        keys=(0, 0), workers=(0, 0), published=(0, 1), faults=3, acts=2,
        kinds=frozenset({CRASH, STALL, FAILURE, BUSINESS}), tries=1, drains=True,
    ),
    Scenario(
        "two groups",
        "each group has its own queue, inbox and effects; old inbox rows are removed",
        keys=(0, 0), workers=(0, 0, 1), published=(0, 1, 0), faults=2, kinds=WORKER_FAULTS, prunes=True, drains=True,
    ),
    Scenario(
        "passing",
        "a broker that lets later events pass one that was given back: the inbox keeps the order after failures",
        keys=(0, 0), workers=(0, 0), published=(0, 1, 1), faults=4, kinds=frozenset({CRASH, FAILURE, LOST_VERDICT}),
        passes_delayed=True, tries=3, drains=True,
    ),
    Scenario(
        "whole road",
        "from the transaction to the effect: two relays, two workers, any two faults",
        keys=(0, 0), relays=2, workers=(0, 0), faults=2, kinds=RELAY_FAULTS | WORKER_FAULTS, drains=True,
    ),
)  # fmt: skip
