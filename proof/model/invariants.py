"""What must be true of every step: checked on the edge from one state to the next."""

from typing import Final, NamedTuple

from proof.model.state import (
    FAILED,
    IDLE,
    OPEN,
    PRUNED,
    REFUSED,
    ROLLED_BACK,
    SENT,
    SKIPPED,
    UNCOMMITTED,
    Due,
    Label,
    State,
)
from proof.model.story import event_name, group_name
from proof.model.world import World

NOTHING_LOST: Final = "nothing lost"
NOTHING_PHANTOM: Final = "nothing phantom"
DELIVERY_ORDER: Final = "first delivery in order"
EFFECT_ORDER: Final = "first effect in order"
ONE_EFFECT: Final = "at most one effect"
SETTLED_STAYS: Final = "published never reverts"
HOLDER_MARKS: Final = "only the holder marks"
DEAD_STAYS: Final = "the dead are left alone"
OUTAGE_FREE: Final = "an outage costs no attempt"
DRAINS: Final = "everything comes to its end"

INVARIANTS: Final = (
    NOTHING_LOST,
    NOTHING_PHANTOM,
    DELIVERY_ORDER,
    EFFECT_ORDER,
    ONE_EFFECT,
    SETTLED_STAYS,
    HOLDER_MARKS,
    DEAD_STAYS,
    OUTAGE_FREE,
    DRAINS,
)


class Violation(NamedTuple):
    invariant: str
    says: str


def check(world: World, before: State, label: Label, after: State) -> Violation | None:
    """The first broken promise, if any. States share what a step did not touch, so `is` tells what changed."""
    if after.rows is not before.rows and (broken := _outbox(world, before, label, after)):
        return broken
    if after.arrived != before.arrived and (broken := _arrival(world, before, after)):
        return broken
    if after.effects is not before.effects and (broken := _effects(world, before, after)):
        return broken
    if after.inbox is not before.inbox and (broken := _records(world, before, label, after)):
        return broken
    if after.queues is not before.queues or after.workers is not before.workers or after.rows is not before.rows:
        return _still_somewhere(world, after)
    return None


def _outbox(world: World, before: State, label: Label, after: State) -> Violation | None:
    for event, (old, new) in enumerate(zip(before.rows, after.rows, strict=True)):
        if old is new:
            continue
        name = event_name(world, event)
        if new.state in (SENT, PRUNED) and not after.arrived >> event & 1:
            what = "SENT" if new.state == SENT else "gone from the outbox"
            return Violation(NOTHING_LOST, f"{name} is {what}, but was never in the broker")
        if new.state == ROLLED_BACK and after.arrived >> event & 1:
            return Violation(NOTHING_PHANTOM, f"{name} is in the broker, but its transaction was rolled back")
        if old.state == SENT and new.state != PRUNED:
            return Violation(SETTLED_STAYS, f"{name} was SENT and is {new.state} again")
        if old.state == SKIPPED and new.state != SENT:
            return Violation(SETTLED_STAYS, f"a person skipped {name}, yet it is {new.state} again")
        if label[0] in ("mark", "stray") and (broken := _marked(world, before, label, event)):
            return broken
    return None


def _marked(world: World, before: State, label: Label, event: int) -> Violation | None:
    _, token, settled = label
    assert isinstance(settled, tuple)
    due: Due = next(due for due in settled if due.event == event)
    lease, name = before.leases[world.shard(event)], event_name(world, event)
    if (lease.token, lease.epoch) != (token, due.epoch):
        told = f"under epoch {due.epoch}, but the shard is at epoch {lease.epoch}"
        return Violation(HOLDER_MARKS, f"{name} was marked by a relay that no longer holds its shard: {told}")
    if due.outcome not in (REFUSED, "CONFIRMED"):
        return Violation(OUTAGE_FREE, f"{name} was never refused, yet an attempt was counted against it")
    return None


def _arrival(world: World, before: State, after: State) -> Violation | None:
    event = (after.arrived ^ before.arrived).bit_length() - 1
    row, name = after.rows[event], event_name(world, event)
    if row.state == ROLLED_BACK:
        return Violation(NOTHING_PHANTOM, f"{name} is in the broker, but its transaction was rolled back")
    if after.skipped >> event & 1:
        return None  # a person let the others pass
    for other in world.of_key[world.scenario.keys[event]]:
        if before.arrived >> other & 1 and after.rows[other].version > row.version:
            return Violation(DELIVERY_ORDER, f"{name} came to the broker after {event_name(world, other)}")
    return None


def _effects(world: World, before: State, after: State) -> Violation | None:
    for group, (old, new) in enumerate(zip(before.effects, after.effects, strict=True)):
        if old is new:
            continue
        where = f"in group {group_name(group)}"
        for event, count in enumerate(new):
            if count == old[event]:
                continue
            name, row = event_name(world, event), after.rows[event]
            if count > 1:
                return Violation(ONE_EFFECT, f"{name} took effect twice {where}")
            if row.state in UNCOMMITTED and row.state != OPEN:
                return Violation(NOTHING_PHANTOM, f"{name} took effect {where}, but was rolled back")
            if (after.skipped | after.stopped[group]) >> event & 1:
                continue  # a person, or its last failure, let the others pass
            for other in world.of_key[world.scenario.keys[event]]:
                if old[other] and after.rows[other].version > row.version:
                    told = f"{name} took effect after {event_name(world, other)} {where}"
                    return Violation(EFFECT_ORDER, told)
    return None


def _records(world: World, before: State, label: Label, after: State) -> Violation | None:
    if label[0] in ("retry record", "revive"):
        return None  # a person asked
    for group, (old, new) in enumerate(zip(before.inbox, after.inbox, strict=True)):
        for event, (was, is_now) in enumerate(zip(old, new, strict=True)):
            if was.stopped and not is_now.stopped:
                told = (
                    f"{event_name(world, event)} was dead in group {group_name(group)}, yet it is tried again unasked"
                )
                return Violation(DEAD_STAYS, told)
    return None


def _still_somewhere(world: World, state: State) -> Violation | None:
    """Whatever was sent has taken effect, or is in a queue, in somebody's hands, dead, or kept in the inbox."""
    for group, effects in enumerate(state.effects):
        for event, count in enumerate(effects):
            if count or state.rows[event].state not in (SENT, PRUNED):
                continue
            if state.buried[group] >> event & 1 or state.inbox[group][event].kept:
                continue
            if any(copy.event == event for copy in state.queues[group]):
                continue
            hands = (w.lane for w, of in zip(state.workers, world.scenario.workers, strict=True) if of == group)
            if any(event in lane for lane in hands):
                continue
            told = f"{event_name(world, event)} is nowhere any more and never took effect in group {group_name(group)}"
            return Violation(NOTHING_LOST, told)
    return None


def drained(world: World, state: State) -> bool:
    """Every committed event is handled, dead, refused or skipped, or a person must decide; nothing is under way."""
    if any(row.state == OPEN for row in state.rows) or any(relay.hands for relay in state.relays):
        return False
    if any(worker.phase != IDLE for worker in state.workers) or any(state.queues):
        return False
    for event, row in enumerate(state.rows):
        if row.state in UNCOMMITTED or row.state in (FAILED, SKIPPED):
            continue
        if row.state in (SENT, PRUNED):
            if not all(_settled(state, group, event) for group in range(len(state.queues))):
                return False
        elif not any(state.rows[other].state == FAILED for other in world.earlier[event]):
            return False
    return True


def _settled(state: State, group: int, event: int) -> bool:
    record = state.inbox[group][event]
    return bool(state.effects[group][event]) or state.buried[group] >> event & 1 == 1 or record.stopped
