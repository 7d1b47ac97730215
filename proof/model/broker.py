"""Stage 3, the wire: each subscription's queue, in arrival order; a key in the hands of one worker at a time."""

from proof.model.state import AT_REST, DELAYED, FREE, RECEIVED, Copy, State, Steps, Worker, put
from proof.model.world import LOST_VERDICT, STALL, World

Queue = tuple[Copy, ...]


def append(state: State, event: int) -> State:
    copy = Copy(event, FREE)
    return state._replace(arrived=state.arrived | 1 << event, queues=tuple((*queue, copy) for queue in state.queues))


def late_arrivals(state: State, out: Steps) -> None:
    for index, (event, *rest) in enumerate(state.wire):
        left = put(state.wire, index, tuple(rest)) if rest else state.wire[:index] + state.wire[index + 1 :]
        out.append((("arrive late", event), append(state, event)._replace(wire=left)))


def runs(world: World, queue: Queue) -> list[tuple[int, ...]]:
    """What may be handed out, as places in the queue: the head of a key with those behind it."""
    found: list[tuple[int, ...]] = []
    for of_key in world.of_key:
        places = [place for place, copy in enumerate(queue) if copy.event in of_key]
        # A key of which somebody holds something must wait for that worker: two never share a key.
        if any(queue[place].holder > FREE for place in places):
            continue
        free = tuple(place for place in places if queue[place].holder == FREE)
        if free:
            found.append(free[: world.scenario.prefetch])
        found += [(place,) for place in places if queue[place].holder == DELAYED]
    return found


def deliver(world: World, state: State, number: int, out: Steps) -> None:
    group = world.scenario.workers[number]
    queue = state.queues[group]
    for run in runs(world, queue) if queue else ():
        held = tuple(Copy(copy.event, number + 1) if i in run else copy for i, copy in enumerate(queue))
        lane = tuple(queue[place].event for place in run)
        worker = Worker(RECEIVED, lane, 0, 0, False)
        out.append(
            (
                ("receive", number, lane),
                state._replace(queues=put(state.queues, group, held), workers=put(state.workers, number, worker)),
            )
        )


def deadline(world: World, state: State, number: int, out: Steps) -> None:
    """A worker stalls for longer than its ack deadline: what it holds goes to others, but it has it still."""
    group = world.scenario.workers[number]
    if world.can(state, STALL) and any(copy.holder == number + 1 for copy in state.queues[group]):
        out.append((("deadline", number), release(world, state, number)._replace(faults=state.faults - 1)))


def release(world: World, state: State, number: int) -> State:
    group = world.scenario.workers[number]
    queue = state.queues[group]
    if not world.rules.crashed_copies_return:
        left = tuple(copy for copy in queue if copy.holder != number + 1)
    else:
        left = tuple(Copy(copy.event, FREE) if copy.holder == number + 1 else copy for copy in queue)
    return state._replace(queues=put(state.queues, group, left))


# -- verdicts: by lease; one that comes from a former holder changes nothing --------------------------------


def ack(world: World, state: State, number: int) -> State:
    group = world.scenario.workers[number]
    queue = state.queues[group]
    place = _held(queue, state.workers[number].lane[0], number)
    if place is None:
        return state
    return state._replace(queues=put(state.queues, group, queue[:place] + queue[place + 1 :]))


def bury(world: World, state: State, number: int) -> State:
    group = world.scenario.workers[number]
    event = state.workers[number].lane[0]
    if _held(state.queues[group], event, number) is None:
        return state
    buried = put(state.buried, group, state.buried[group] | 1 << event)
    return ack(world, state, number)._replace(buried=buried)


def give_back(world: World, state: State, number: int) -> State:
    """The first of the lane returns later, those of its key not before it; so the rest of the lane goes back too."""
    group = world.scenario.workers[number]
    passing = world.scenario.passes_delayed or not world.rules.broker_holds_key
    holder = DELAYED if passing else FREE
    worker, queue = state.workers[number], state.queues[group]
    if world.rules.lane_goes_back:
        left = tuple(Copy(copy.event, holder) if copy.holder == number + 1 else copy for copy in queue)
        return state._replace(queues=put(state.queues, group, left), workers=put(state.workers, number, AT_REST))
    place = _held(queue, worker.lane[0], number)
    left = queue if place is None else put(queue, place, Copy(worker.lane[0], holder))
    return state._replace(queues=put(state.queues, group, left), workers=put(state.workers, number, advanced(worker)))


def lose_verdict(world: World, state: State, number: int, out: Steps) -> None:
    """The broker never hears of the verdict and will deliver the message again."""
    if not world.can(state, LOST_VERDICT):
        return
    group, worker = world.scenario.workers[number], state.workers[number]
    queue = state.queues[group]
    place = _held(queue, worker.lane[0], number)
    if place is None:
        return
    left = put(queue, place, Copy(worker.lane[0], FREE))
    after = state._replace(queues=put(state.queues, group, left), faults=state.faults - 1)
    out.append(
        (
            ("lose verdict", number, worker.lane[0]),
            after._replace(workers=put(state.workers, number, advanced(worker))),
        )
    )


def advanced(worker: Worker) -> Worker:
    """On to the next in the lane."""
    rest = worker.lane[1:]
    return Worker(RECEIVED, rest, 0, 0, False) if rest else AT_REST


def _held(queue: Queue, event: int, number: int) -> int | None:
    for place, copy in enumerate(queue):
        if copy.holder == number + 1 and copy.event == event:
            return place
    return None


def revived(queues: tuple[Queue, ...], group: int, event: int) -> tuple[Queue, ...]:
    """A dead letter returns to its place: before all that came after it."""
    return put(queues, group, (Copy(event, FREE), *queues[group]))
