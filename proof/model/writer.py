"""Stage 1, write: transactions that give their event a version, then commit or roll back."""

from proof.model.state import NEW, OPEN, ROLLED_BACK, UNWRITTEN, Row, State, Steps, put
from proof.model.world import World


def steps(world: World, state: State, out: Steps) -> None:
    rows = state.rows
    for event, row in enumerate(rows):
        if row.state == UNWRITTEN:
            # A key's transactions are alike, so they are named in the order in which they begin.
            if all(rows[other].state != UNWRITTEN for other in world.earlier[event]) and _may_write(world, rows, event):
                version = _next_version(world, rows, event)
                written = put(rows, event, Row(version, OPEN, 0))
                out.append((("begin", event, version), state._replace(rows=written)))
        elif row.state == OPEN:
            committed = put(rows, event, Row(row.version, NEW, 0))
            out.append((("commit", event), state._replace(rows=committed)))
            gone = put(rows, event, Row(0, ROLLED_BACK, 0))
            out.append((("roll back", event), state._replace(rows=gone)))


def _may_write(world: World, rows: tuple[Row, ...], event: int) -> bool:
    """The counter row stays locked from the write to the end of the transaction."""
    return not world.rules.version_lock or all(rows[other].state != OPEN for other in world.earlier[event])


def _next_version(world: World, rows: tuple[Row, ...], event: int) -> int:
    return max((rows[other].version for other in world.earlier[event]), default=0) + 1
