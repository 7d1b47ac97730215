"""What must hold after a run, judged on runs made up for the purpose: Postroad itself does not go wrong like this."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from postroad import Message
from postroad.events import event_type_of
from postroad.handlers import Registry
from postroad.inbox import Record, Status
from postroad.testing.survival.calls import Call
from postroad.testing.survival.database import Written
from postroad.testing.survival.outcome import Outcome
from postroad.testing.survival.verdict import Played, judge
from tests.support.survival import OrderPlaced, write_receipt

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def message(version: int) -> Message:
    return Message(
        id=UUID(int=version), type="order.placed", topic="shop.order.events", aggregate_type="order",
        aggregate_id="o-1", version=version, occurred_at=NOW, payload=b"{}",
    )  # fmt: skip


def call(version: int, *, committed: bool = True) -> Call:
    return Call("write_receipt", "receipts", [message(version)], ended=True, committed=committed)


def record(version: int, **changes: Any) -> Record:
    values: dict[str, Any] = {
        "group": "receipts", "event_id": UUID(int=version), "tenant": "", "event_type": "order.placed",
        "topic": "shop.order.events", "ordering_key": "order/o-1", "version": version, "status": Status.SUCCEEDED,
        "locked_by": None, "locked_until": None, "epoch": 1, "next_retry_at": None, "retry_count": 0,
        "error_msg": None, "received_at": NOW, "processed_at": NOW, "message": None,
    }  # fmt: skip
    return Record(**values | changes)


def played(*calls: Call, records: list[Record] | None = None, state: str = "SENT") -> Played:
    registry = Registry()
    registry.add("receipts", event_type_of(OrderPlaced), write_receipt)
    written = [Written(UUID(int=version), "order.placed", "order", "o-1", state) for version in (1, 2)]
    kept = [record(1), record(2)] if records is None else records
    return Played(
        fault=None, points={}, struck=False, cut=False, calls=calls, log=calls,
        written={one.id: one for one in written}, foreign={}, registry=registry, outcome=Outcome(None),
        records={(one.group, one.event_id): one for one in kept},
    )  # fmt: skip


USUAL = played(call(1), call(2))


def headlines(run: Played) -> list[str]:
    return [finding.headline for finding in judge(run, USUAL)]


def test_a_run_as_it_should_be() -> None:
    assert headlines(USUAL) == []


def test_a_repeated_call_that_was_rolled_back_is_no_mistake() -> None:
    assert headlines(played(call(1, committed=False), call(1), call(2))) == []


def test_an_effect_that_was_committed_twice() -> None:
    assert headlines(played(call(1), call(1), call(2))) == [
        "`write_receipt` (group receipts) committed its effect 2 times for order.placed o-1."
    ]


def test_a_key_out_of_order() -> None:
    assert headlines(played(call(2), call(1))) == [
        "`write_receipt` (group receipts) handled order.placed o-1 (version 1) after a later event of the same key."
    ]


def test_an_event_without_a_record() -> None:
    assert headlines(played(call(1), records=[record(1)])) == [
        "order.placed o-1 was committed but never reached group receipts."
    ]


def test_an_event_that_is_still_being_tried() -> None:
    waiting = record(2, status=Status.FAILED, processed_at=None, next_retry_at=NOW, error_msg="RuntimeError: no")
    assert headlines(played(call(1), call(2, committed=False), records=[record(1), waiting])) == [
        "`write_receipt` (group receipts) never came to an end with order.placed o-1."
    ]


def test_an_event_that_died_of_the_fault() -> None:
    dead = record(2, status=Status.FAILED, processed_at=None, error_msg="RuntimeError: no")
    assert headlines(played(call(1), call(2, committed=False), records=[record(1), dead])) == [
        "`write_receipt` (group receipts) gave up on order.placed o-1: RuntimeError: no."
    ]


def test_a_parked_event_is_told_and_its_key_is_excused() -> None:
    assert (
        headlines(played(records=[], state="FAILED"))
        == ["order.placed o-1 is parked in the outbox: the broker refused it."] * 2
    )


def test_a_call_for_an_event_that_nobody_committed() -> None:
    assert headlines(played(call(1), call(2), call(3))) == [
        "`write_receipt` (group receipts) was called for order.placed o-1, which was never committed."
    ]


def test_the_order_of_a_list_does_not_count_but_how_often_does() -> None:
    assert Outcome([1, 2, [3, 4]]) == Outcome([2, 1, [3, 4]])
    assert Outcome([1, 2, [3, 4]]) != Outcome([2, 1, [4, 3]])
    assert Outcome([1, 1]) != Outcome([1])
    assert Outcome([1, 1, 2]).more_than(Outcome([1])) == [1, 2]
    assert Outcome({"a": 1}) == Outcome({"a": 1})
