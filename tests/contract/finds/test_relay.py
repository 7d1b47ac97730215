"""What a relay's look takes of a backlog."""

import pytest

from postroad.stores import Store
from tests.support.rows import FUTURE, OUTBOX, Row, number, put, told

LOOK: Row = {"shards": [5], "after": [""], "depth": 4, "inline": 100}


@pytest.mark.parametrize(("most", "each"), [(1, [1]), (2, [1]), (4, [1, 2]), (5, [1, 2]), (6, [1, 2, 3])])
async def test_a_look_takes_of_each_key_that_is_due_the_same_share(store: Store, most: int, each: list[int]) -> None:
    """Payloads are allotted to rows by how many there can be."""
    keys = {key: {"ordering_key": f"parcel/{key}", "aggregate_id": key} for key in "abc"}
    await put(store, OUTBOX, *({**keys[key], "version": version} for key in "ab" for version in (1, 2, 3)))
    await OUTBOX.put(store, {**keys["c"], "event_id": number(9), "state": "RETRY", "next_attempt_at": FUTURE})
    taken = [row for row in await told(store, "read_due", **LOOK, most=most) if row.event_id is not None]
    assert [(row.ordering_key, row.version) for row in taken] == [
        (keys[key]["ordering_key"], version) for key in "ab" for version in each
    ]
