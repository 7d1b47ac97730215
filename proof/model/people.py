"""What people do about events that are stuck, and what the pruners remove."""

from proof.model import broker
from proof.model.consumer import recorded
from proof.model.state import (
    FAILED,
    NEW,
    NO_RECORD,
    PRUNED,
    RETRY,
    SENT,
    SKIPPED,
    SUCCEEDED,
    Record,
    Row,
    State,
    Steps,
    put,
)
from proof.model.world import World


def attend_outbox(world: World, state: State, out: Steps) -> None:
    """`postroad outbox retry` and `skip`, and the removal of what was sent long ago."""
    for event, row in enumerate(state.rows):
        if state.acts and row.state in (RETRY, FAILED):
            again = put(state.rows, event, Row(row.version, NEW, 0))
            out.append((("retry", event), state._replace(rows=again, acts=state.acts - 1)))
            skipped = put(state.rows, event, Row(row.version, SKIPPED, 0))
            after = state._replace(rows=skipped, acts=state.acts - 1, skipped=state.skipped | 1 << event)
            out.append((("skip", event), after))
        if world.scenario.prunes and (
            row.state == SENT or (not world.rules.prune_sent_only and row.state in (NEW, RETRY, FAILED))
        ):
            out.append((("prune", event), state._replace(rows=put(state.rows, event, Row(row.version, PRUNED, 0)))))


def attend_inbox(world: World, state: State, out: Steps) -> None:
    """`postroad dlq retry`, `inbox retry`, `dlq discard`, and the removal of old records."""
    for group, records in enumerate(state.inbox):
        for event, record in enumerate(records):
            if record is NO_RECORD:
                continue
            if state.acts and record.status == FAILED:
                _help(state, group, event, record, out)
            if world.scenario.prunes and record.status == SUCCEEDED and not _may_return(world, state, group, event):
                out.append((("forget", group, event), recorded(state, group, event, NO_RECORD)))


def _help(state: State, group: int, event: int, record: Record, out: Steps) -> None:
    buried, bit, less = state.buried[group], 1 << event, state.acts - 1
    due = recorded(state, group, event, record._replace(again=True, retry_count=0, settled=False))
    out.append((("retry record", group, event), due._replace(acts=less)))
    if buried & bit:
        left = put(state.buried, group, buried & ~bit)
        revived = due._replace(buried=left, queues=broker.revived(due.queues, group, event), acts=less)
        out.append((("revive", group, event), revived))
        no = record._replace(again=False, settled=True, waiting=False)
        out.append((("discard", group, event), recorded(state, group, event, no)._replace(buried=left, acts=less)))


def _may_return(world: World, state: State, group: int, event: int) -> bool:
    """Within the horizon: a copy is with the broker, under way, or in somebody's hands."""
    if not world.rules.record_outlives_copies:
        return False
    return (
        any(copy.event == event for copy in state.queues[group])
        or any(event in worker.lane for worker in state.workers)
        or state.rows[event].state not in (SENT, PRUNED)
        or any(due.event == event for relay in state.relays for due in relay.hands)
        or any(event in messages for messages in state.wire)
    )
