"""Stages 4 to 6, receive, once only, handle: workers of consumer groups, their inbox, the retry scheduler."""

from proof.model import broker
from proof.model.state import (
    AT_REST,
    BURYING,
    CLAIMED,
    FAILED,
    FAILING,
    GIVING_BACK,
    HANDLED,
    IDLE,
    KNOWN,
    LEASED,
    NO_RECORD,
    NOBODY,
    PROCESSING,
    RECEIVED,
    REFUSING,
    SUCCEEDED,
    Record,
    State,
    Steps,
    Worker,
    put,
)
from proof.model.world import BUSINESS, CRASH, FAILURE, STALL, UNKNOWN_COMMIT, World

DONE = Record(SUCCEEDED, NOBODY, 0, 0, False, False, True, False)


def steps(world: World, state: State, out: Steps) -> None:
    begun: set[int] = set()
    for number, worker in enumerate(state.workers):
        group = world.scenario.workers[number]
        if worker.phase == IDLE:
            # Workers at rest are alike: the first of them begins.
            if group not in begun:
                begun.add(group)
                broker.deliver(world, state, number, out)
                _pick_up(world, state, number, out)
            continue
        _DO[worker.phase](world, state, number, worker, out)
        broker.deadline(world, state, number, out)
        if world.can(state, CRASH):
            out.append((("worker crash", number), _crashed(world, state, number)))


# -- the fast path: record and effect in one transaction -----------------------------------------------------


def _claim(world: World, state: State, number: int, worker: Worker, out: Steps) -> None:
    group, event = world.scenario.workers[number], worker.lane[0]
    if _being_inserted(world, state, number, event):
        return  # the unique key makes us wait for the other transaction's end
    if state.inbox[group][event] is not NO_RECORD or _blocked(world, state, group, event):
        out.append((("not fresh", number, event), _phase(state, number, KNOWN)))
        return
    after = _phase(state, number, CLAIMED)
    if not world.rules.ack_after_commit:
        after = broker.ack(world, after, number)
    if not world.rules.record_with_handler:
        after = recorded(after, group, event, DONE)
    if not world.rules.effect_with_record:
        after = _effect(after, group, event)
    out.append((("claim", number, event), after))


def _run_claimed(world: World, state: State, number: int, worker: Worker, out: Steps) -> None:
    group, event = world.scenario.workers[number], worker.lane[0]
    done = _effect(state, group, event) if world.rules.effect_with_record else state
    done = recorded(done, group, event, DONE)
    out.append((("commit handled", number, event), _phase(done, number, HANDLED)))
    _unknown(world, state, done, number, event, out)
    _raise(world, state, number, event, out)


# -- the slow path: leases ---------------------------------------------------------------------------------


def _acquire(world: World, state: State, number: int, worker: Worker, out: Steps) -> None:
    """try_acquire, one transaction."""
    group, event = world.scenario.workers[number], worker.lane[0]
    record = state.inbox[group][event]
    if _being_inserted(world, state, number, event):
        return
    if record.status == SUCCEEDED or record.refused:
        out.append((("duplicate", number, event), _phase(state, number, HANDLED)))
        return
    if record.stopped and world.rules.dead_stays_dead:
        out.append((("dead before", number, event), _phase(state, number, BURYING)))
        return
    blocked = _blocked(world, state, group, event)
    # By whose clock the lease, or the wait for the next try, is over already: both are tried.
    if blocked or record.status == PROCESSING or record.again:
        phase = GIVING_BACK if world.rules.in_progress_returns else HANDLED
        out.append((("in progress", number, event), _phase(state, number, phase)))
    if not blocked:
        _take(world, state, number, worker, out)


def _take(world: World, state: State, number: int, worker: Worker, out: Steps) -> None:
    group, event = world.scenario.workers[number], worker.lane[0]
    record = state.inbox[group][event]
    stolen = record.status == PROCESSING and record.locked_by != NOBODY
    if stolen and not world.can(state, STALL):
        return
    failures = 0 if record.stopped else record.retry_count
    taken = Record(PROCESSING, number, record.epoch + 1, failures, record.waiting, False, False, record.kept)
    leased = Worker(LEASED, worker.lane, record.epoch + 1, failures, worker.scheduled)
    after = recorded(state, group, event, taken)
    after = after._replace(workers=put(state.workers, number, leased), faults=state.faults - stolen)
    if stolen:
        out.append((("take lease over", number, event, record.epoch + 1, record.locked_by), after))
    else:
        out.append((("acquire", number, event, record.epoch + 1, worker.scheduled), after))


def _run_leased(world: World, state: State, number: int, worker: Worker, out: Steps) -> None:
    group, event = world.scenario.workers[number], worker.lane[0]
    record = state.inbox[group][event]
    ours = _holds(record, worker)
    unleased = worker.scheduled and not world.rules.scheduler_leases
    if ours or unleased or not world.rules.fenced_commit:
        done = recorded(_effect(state, group, event), group, event, DONE._replace(epoch=record.epoch))
        label = ("commit handled", number, event) if unleased else ("commit leased", number, event, worker.lease)
        out.append((label, _phase(done, number, HANDLED)))
        freed = recorded(state, group, event, record._replace(locked_by=NOBODY)) if ours else state
        _unknown(world, freed, done, number, event, out)
    else:
        out.append((("lease lost", number, event, worker.lease), _phase(state, number, GIVING_BACK)))
    _raise(world, state, number, event, out)


def _pick_up(world: World, state: State, number: int, out: Steps) -> None:
    """The retry scheduler: what is due, kept in its record, and delivered by nobody else."""
    group = world.scenario.workers[number]
    for event, record in enumerate(state.inbox[group]):
        due = record.kept and (record.status == PROCESSING or (record.status == FAILED and record.again))
        if not due or _blocked(world, state, group, event):
            continue
        worker = Worker(LEASED, (event,), record.epoch, record.retry_count, True)
        if world.rules.scheduler_leases:
            _take(world, state, number, worker, out)
        else:
            taken = state._replace(workers=put(state.workers, number, worker))
            out.append((("run without lease", number, event), taken))


# -- failures ----------------------------------------------------------------------------------------------


def _raise(world: World, state: State, number: int, event: int, out: Steps) -> None:
    for kind, phase in ((FAILURE, FAILING), (BUSINESS, REFUSING)):
        if world.can(state, kind):
            after = _phase(state, number, phase)._replace(faults=state.faults - 1)
            out.append(((kind, number, event), after))


def _unknown(world: World, undone: State, done: State, number: int, event: int, out: Steps) -> None:
    """A commit without an answer: not the message's fault, so nothing is recorded, and it goes back."""
    if world.can(undone, UNKNOWN_COMMIT):
        phase = GIVING_BACK if world.rules.unknown_is_no_success else HANDLED
        for kind, state in (("commit unheard", done), ("commit failed", undone)):
            out.append(((kind, number, event), _phase(state, number, phase)._replace(faults=state.faults - 1)))


def _fail(world: World, state: State, number: int, worker: Worker, out: Steps) -> None:
    """Recorded before the verdict, so that a crash in between costs a delivery and not the count."""
    group, event = world.scenario.workers[number], worker.lane[0]
    record = state.inbox[group][event]
    if not worker.lease and _being_inserted(world, state, number, event):
        return
    ours = _holds(record, worker) or not world.rules.fenced_failure if worker.lease else record is NO_RECORD
    if not ours:
        out.append((("failure not recorded", number, event), _phase(state, number, GIVING_BACK)))
        return
    failures, business = worker.failures + 1, worker.phase == REFUSING
    again = not business and failures < world.scenario.tries
    # The message is kept when nobody will deliver it again: after the last verdict, and for the scheduler.
    kept = record.kept or worker.scheduled or not again
    failed = Record(FAILED, NOBODY, record.epoch, failures, again, again, business, kept)
    after = recorded(state, group, event, failed)
    if not again:
        after = after._replace(stopped=put(state.stopped, group, state.stopped[group] | 1 << event))
    phase = GIVING_BACK if again else HANDLED if business else BURYING
    out.append((("record failure", number, event, failures, phase), _phase(after, number, phase)))


def _crashed(world: World, state: State, number: int) -> State:
    """Its transaction is rolled back, its messages go to others, its lease in the inbox will run out."""
    group, worker = world.scenario.workers[number], state.workers[number]
    event = worker.lane[0]
    record = state.inbox[group][event]
    if record.status == PROCESSING and record.locked_by == number:
        state = recorded(state, group, event, record._replace(locked_by=NOBODY))
    after = broker.release(world, state, number)
    return after._replace(workers=put(after.workers, number, AT_REST), faults=state.faults - 1)


# -- verdicts ----------------------------------------------------------------------------------------------


def _ack(world: World, state: State, number: int, worker: Worker, out: Steps) -> None:
    settled = broker.ack(world, state, number)
    out.append((("ack", number, worker.lane[0]), _next(settled, number, worker)))
    broker.lose_verdict(world, state, number, out)


def _bury(world: World, state: State, number: int, worker: Worker, out: Steps) -> None:
    settled = broker.bury(world, state, number)
    out.append((("bury", number, worker.lane[0]), _next(settled, number, worker)))
    broker.lose_verdict(world, state, number, out)


def _give_back(world: World, state: State, number: int, worker: Worker, out: Steps) -> None:
    out.append((("give back", number, worker.lane), broker.give_back(world, state, number)))


_DO = {
    RECEIVED: _claim,
    CLAIMED: _run_claimed,
    KNOWN: _acquire,
    LEASED: _run_leased,
    FAILING: _fail,
    REFUSING: _fail,
    HANDLED: _ack,
    BURYING: _bury,
    GIVING_BACK: _give_back,
}


# -- small changes -----------------------------------------------------------------------------------------


def _being_inserted(world: World, state: State, number: int, event: int) -> bool:
    groups = world.scenario.workers
    return any(
        worker.phase == CLAIMED and worker.lane[0] == event and groups[other] == groups[number] and other != number
        for other, worker in enumerate(state.workers)
    )


def _blocked(world: World, state: State, group: int, event: int) -> bool:
    """An earlier event of the key waits for its next attempt."""
    inbox = state.inbox[group]
    return world.rules.predecessor_blocks and any(inbox[other].waiting for other in world.earlier[event])


def _holds(record: Record, worker: Worker) -> bool:
    return record.status == PROCESSING and record.epoch == worker.lease


def recorded(state: State, group: int, event: int, record: Record) -> State:
    return state._replace(inbox=put(state.inbox, group, put(state.inbox[group], event, record)))


def _effect(state: State, group: int, event: int) -> State:
    counts = state.effects[group]
    return state._replace(effects=put(state.effects, group, put(counts, event, counts[event] + 1)))


def _phase(state: State, number: int, phase: str) -> State:
    worker = state.workers[number]._replace(phase=phase)
    if worker.scheduled and phase in (HANDLED, BURYING, GIVING_BACK):
        worker = AT_REST  # it came from the inbox: there is no verdict to give
    return state._replace(workers=put(state.workers, number, worker))


def _next(state: State, number: int, worker: Worker) -> State:
    return state._replace(workers=put(state.workers, number, broker.advanced(worker)))
