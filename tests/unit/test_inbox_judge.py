"""To the instant: when a lease or a pause is over."""

from datetime import UTC, datetime
from typing import Any

from postroad.inbox.record import AcquireState, Record, Status, judge
from tests.support.consuming import placed

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def judged(**changed: Any) -> AcquireState:
    message = placed()
    values: dict[str, Any] = {
        "group": "packers", "event_id": message.id, "tenant": "", "event_type": message.type, "topic": message.topic,
        "ordering_key": message.ordering_key, "version": 1, "status": Status.PROCESSING, "locked_by": None,
        "locked_until": None, "epoch": 1, "next_retry_at": None, "retry_count": 0, "error_msg": None,
        "received_at": NOW, "processed_at": None, "message": None,
    }  # fmt: skip
    return judge(Record(**values | changed), message, now=NOW, blocked_until=None)[0]


def test_a_lease_that_ends_now_has_ended() -> None:
    assert judged(locked_until=NOW) is AcquireState.ACQUIRED


def test_a_pause_that_ends_now_has_ended() -> None:
    assert judged(status=Status.FAILED, next_retry_at=NOW) is AcquireState.RETRYABLE_FAILED
