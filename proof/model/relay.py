"""Stage 2, carry: lease shards → read → send → settle, by relays that may die, stall or act too late at any step."""

from proof.model.broker import append
from proof.model.state import (
    CONFIRMED,
    DEAD,
    FAILED,
    NEW,
    NOBODY,
    OPEN,
    OUT,
    PRUNED,
    REFUSED,
    RETRY,
    SENT,
    SKIPPED,
    UNAVAILABLE,
    UP,
    WAITING,
    Due,
    Hands,
    Lease,
    Mark,
    Relay,
    Row,
    State,
    Steps,
    put,
)
from proof.model.world import CRASH, HANDOVER, LATE, LOST_CONFIRM, OUTAGE, REFUSAL, STALL, STRAY, World


def steps(world: World, state: State, out: Steps) -> None:
    for number, relay in enumerate(state.relays):
        if relay.status == DEAD:
            continue
        if relay.hands:
            _send(world, state, number, relay, out)
            _settle(world, state, number, relay, out)
        else:
            _keep(world, state, number, relay, out)
            _read(world, state, number, relay, out)
        if relay.status == OUT:
            break  # those who have not begun are alike: the first of them begins
        if world.can(state, CRASH) and sum(other.status != DEAD for other in state.relays) > 1:
            gone = put(state.relays, number, Relay(DEAD, (0,) * world.scenario.shards, ()))
            out.append((("relay crash", number), state._replace(relays=gone, faults=state.faults - 1)))
    for index, stray in enumerate(state.strays):
        left = state.strays[:index] + state.strays[index + 1 :]
        rows, _ = _marked(world, state, stray.token, stray.settled)
        out.append((("stray", stray.token, stray.settled), state._replace(rows=rows, strays=left)))


# -- leases ------------------------------------------------------------------------------------------------


def _keep(world: World, state: State, number: int, relay: Relay, out: Steps) -> None:
    """Renew, see what is ours, take what is free or whose holder let its time run out."""
    held = tuple(lease.epoch if lease.token == number else 0 for lease in state.leases)
    if relay.status == UP and held != relay.epochs:
        out.append((("notice", number), _with(state, number, relay._replace(epochs=held))))
    for shard, lease in enumerate(state.leases):
        if lease.token == number:
            if held == relay.epochs and world.can(state, HANDOVER):
                freed = put(state.leases, shard, Lease(NOBODY, lease.epoch))
                after = _with(state, number, relay._replace(epochs=put(held, shard, 0)))
                out.append((("hand over", number, shard), after._replace(leases=freed, faults=state.faults - 1)))
            continue
        alive = lease.token != NOBODY and state.relays[lease.token].status != DEAD
        if alive and not world.can(state, STALL):
            continue
        if not world.rules.takeover and lease.token != NOBODY:
            continue
        taken = put(state.leases, shard, Lease(number, lease.epoch + 1))
        after = _with(state, number, Relay(UP, put(held, shard, lease.epoch + 1), ()))
        after = after._replace(leases=taken, faults=state.faults - alive)
        if lease.token == NOBODY:
            out.append((("take", number, shard, lease.epoch + 1), after))
        else:
            out.append((("take over", number, shard, lease.epoch + 1, lease.token), after))


# -- reading -----------------------------------------------------------------------------------------------


def _read(world: World, state: State, number: int, relay: Relay, out: Steps) -> None:
    """For each key of our shards its oldest unsent events, in order; a head that is parked holds back its key."""
    _read_run(world, state, number, relay, out, world.rules.parked_blocks, True)
    if not world.rules.waiting_blocks:
        _read_run(world, state, number, relay, out, True, False)


def _read_run(
    world: World, state: State, number: int, relay: Relay, out: Steps, parked_blocks: bool, waiting_blocks: bool
) -> None:
    rules, rows = world.rules, state.rows
    unsent = {NEW, RETRY, FAILED}
    if not parked_blocks:
        unsent.discard(FAILED)
    if not waiting_blocks:
        unsent.discard(RETRY)
    if not rules.committed_only:
        unsent.add(OPEN)
    hands: list[Due] = []
    others = [due.event for other in state.relays for due in other.hands] if not rules.whole_keys else ()
    for of_key in world.of_key:
        epoch = relay.epochs[world.shard(of_key[0])]
        if not epoch and rules.whole_keys:
            continue
        # A key's events are numbered in the order of their versions.
        found = [event for event in of_key if rows[event].state in unsent and event not in others]
        if found and rows[found[0]].state == FAILED:
            continue
        hands += [Due(event, epoch, rows[event].attempts, WAITING) for event in found[: world.scenario.batch]]
    if not hands:
        return
    after = _with(state, number, Relay(UP, relay.epochs, tuple(hands)))
    out.append((("read", number, tuple(due.event for due in hands)), after))


# -- sending -----------------------------------------------------------------------------------------------


def _in_flight(world: World, hands: Hands) -> list[int]:
    """Where the broker cannot hold back the rest of a run, only one event per key is under way at a time."""
    if world.scenario.ordered_runs or not world.rules.one_in_flight:
        return list(range(len(hands)))
    keys = world.scenario.keys
    seen: set[int] = set()
    first = []
    for place, due in enumerate(hands):
        if keys[due.event] not in seen:
            seen.add(keys[due.event])
            first.append(place)
    return first


def _send(world: World, state: State, number: int, relay: Relay, out: Steps) -> None:
    """The broker takes what is under way one after the other, and answers each."""
    hands = relay.hands
    under_way = [place for place in _in_flight(world, hands) if hands[place].outcome == WAITING]
    if not under_way:
        return
    place = under_way[0]
    event = hands[place].event

    def answered(outcome: str) -> Relay:
        told = put(hands, place, hands[place]._replace(outcome=outcome))
        return relay._replace(hands=told if outcome == CONFIRMED else _held_back(world, told, place))

    arrived = append(state, event)
    out.append((("confirm", number, event), _with(arrived, number, answered(CONFIRMED))))
    if not state.faults:
        return
    less = state.faults - 1
    if world.can(state, REFUSAL):
        out.append((("refuse", number, event), _with(state, number, answered(REFUSED))._replace(faults=less)))
    if world.can(state, OUTAGE):
        out.append((("outage", number, event), _with(state, number, answered(UNAVAILABLE))._replace(faults=less)))
    if world.can(state, LOST_CONFIRM):
        lost = _with(arrived, number, answered(UNAVAILABLE))._replace(faults=less)
        out.append((("lose confirm", number, event), lost))
    if world.can(state, LATE):
        broken = tuple(d._replace(outcome=UNAVAILABLE) if i in under_way else d for i, d in enumerate(hands))
        wire = (*state.wire, tuple(hands[i].event for i in under_way))
        after = _with(state, number, relay._replace(hands=broken))
        out.append((("break", number, wire[-1]), after._replace(wire=wire, faults=less)))


def _held_back(world: World, hands: Hands, place: int) -> Hands:
    """Nothing of a key is taken behind what did not get through."""
    if not (world.scenario.ordered_runs and world.rules.broker_holds_run):
        return hands
    keys, key = world.scenario.keys, world.scenario.keys[hands[place].event]
    return tuple(
        due._replace(outcome=UNAVAILABLE) if i > place and keys[due.event] == key else due
        for i, due in enumerate(hands)
    )


# -- settling ----------------------------------------------------------------------------------------------


def _settle(world: World, state: State, number: int, relay: Relay, out: Steps) -> None:
    """Marks follow confirms; all marks of a batch are one transaction. A former holder's mark changes nothing."""
    flying = [relay.hands[place] for place in _in_flight(world, relay.hands)]
    if any(due.outcome == WAITING for due in flying):
        if not world.rules.mark_after_confirm:
            early = tuple(due._replace(outcome=CONFIRMED) for due in flying)
            out.append((("mark", number, early), state._replace(rows=_marked(world, state, number, early)[0])))
        return
    settled, stopped = _judged(world, flying)
    keys = world.scenario.keys
    rest = tuple(due for due in relay.hands if due.outcome == WAITING and keys[due.event] not in stopped)
    if not settled:
        out.append((("give up", number), _with(state, number, relay._replace(hands=rest))))
        return
    rows, marked = _marked(world, state, number, settled)
    after = _with(state, number, relay._replace(hands=rest))
    if marked < len(settled):
        # Somebody else seems to hold what we took for ours: ask before doing anything more.
        after = _with(state, number, Relay(UP, (0,) * len(relay.epochs), ()))
    out.append((("mark", number, settled), after._replace(rows=rows)))
    if world.can(state, STRAY):
        after = _with(state, number, relay._replace(hands=()))
        strays = (*state.strays, Mark(number, settled))
        out.append((("lose mark", number, settled), after._replace(strays=strays, faults=state.faults - 1)))


def _judged(world: World, flying: list[Due]) -> tuple[Hands, set[int]]:
    """What is to be marked, and the keys whose run ends here."""
    rules, keys = world.rules, world.scenario.keys
    settled: list[Due] = []
    stopped: set[int] = set()
    for due in flying:
        key = keys[due.event]
        if key in stopped:
            continue
        if due.outcome == CONFIRMED:
            settled.append(due)
            continue
        if rules.run_stops_at_failure:
            stopped.add(key)
        if due.outcome == REFUSED or not rules.outage_costs_nothing:
            settled.append(due)
        elif not rules.unavailable_is_no_confirm:
            settled.append(due._replace(outcome=CONFIRMED))
    return tuple(settled), stopped


def _marked(world: World, state: State, token: int, settled: Hands) -> tuple[tuple[Row, ...], int]:
    """mark_sent and mark_failed: the rows afterwards, and how many were changed."""
    rules, rows, marked = world.rules, state.rows, 0
    for due in settled:
        lease, row = state.leases[world.shard(due.event)], rows[due.event]
        ours = lease.token == token and (lease.epoch == due.epoch or not rules.epoch_counts)
        ours = ours or not rules.whole_keys  # rows that are claimed one by one belong to whoever claimed them
        if due.outcome == CONFIRMED:
            if (ours or not rules.fenced_mark) and row.state not in (SENT, PRUNED):
                rows = put(rows, due.event, Row(row.version, SENT, 0))
                marked += 1
        elif (ours or not rules.fenced_park) and row.state != PRUNED:
            if row.state in (SENT, SKIPPED) and rules.sent_is_final:
                continue
            failed = FAILED if due.attempts + 1 >= world.scenario.sends else RETRY
            rows = put(rows, due.event, Row(row.version, failed, row.attempts + 1))
            marked += 1
    return rows, marked


def _with(state: State, number: int, relay: Relay) -> State:
    return state._replace(relays=put(state.relays, number, relay))
