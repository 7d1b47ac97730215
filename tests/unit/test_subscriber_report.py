"""What is said of a failure: where in the user's code, and when next; and not too often."""

import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from postroad.errors import UnreadableMessage
from postroad.handlers import Handler
from postroad.retry import Ack, Backoff, Dead, Decision, Retry
from postroad.subscriber.intake import Poison, Ready
from postroad.subscriber.report import Occasionally, failure, identity, place
from postroad.telemetry.names import LOG_FIELDS
from postroad.testing import VirtualClock
from tests.support.consuming import GROUP, TOPIC, NotedDelivery, handlers, placed


def stumble() -> None:
    raise RuntimeError("not now")


async def stumbling(event: Any) -> None:
    stumble()


def the_handler(function: Any = stumbling) -> Handler:
    handler = handlers(function).find(GROUP, placed())
    assert handler is not None
    return handler


def raised_by(call: Any) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("it did not raise")


def test_the_place_is_the_innermost_of_the_users_lines() -> None:
    line = stumble.__code__.co_firstlineno + 1
    assert place(raised_by(stumble), the_handler()) == f"{__file__}:{line} in stumble"


def test_without_a_line_of_the_users_it_is_where_the_handler_begins() -> None:
    told = f"{__file__}:{stumbling.__code__.co_firstlineno} in stumbling"
    assert place(RuntimeError("a commit that failed"), the_handler()) == told


def test_a_handler_without_code_of_its_own_is_told_by_its_name() -> None:
    class Called:
        async def __call__(self, event: Any) -> None:
            return None

    handler = the_handler(Called())
    assert place(RuntimeError("a commit that failed"), handler) == handler.name


@pytest.mark.parametrize(
    ("decision", "level", "told"),
    [
        (Retry(60.0), logging.WARNING, "attempt 2 of 3, next try at 2030-01-01T00:01:00Z: RuntimeError"),
        (Ack("no"), logging.WARNING, "was refused by group receipts and is kept in its inbox: RuntimeError"),
        (Dead("no"), logging.ERROR, f"attempt 2 of 3, now with the dead letters of {TOPIC}: RuntimeError"),
    ],
)
def test_a_failure_is_told_with_what_comes_next(decision: Decision, level: int, told: str) -> None:
    now, message = datetime(2030, 1, 1, tzinfo=UTC), placed()
    said = failure(message, the_handler(), RuntimeError("not now"), 2, Backoff(attempts=3), decision, now)
    assert said[0] == level
    assert said[1].startswith(f"order.placed {message.id} ")
    assert told in said[1]


@pytest.mark.spec("P17", "R12")
def test_a_record_for_machines_names_the_event_if_there_is_one() -> None:
    message = placed(trace_id="4bf92f3577b34da6a3ce929d0e0e4736")
    nameless = Poison(NotedDelivery(), object(), None, UnreadableMessage("attribute event_id is missing"))
    place = {"group": GROUP, "consumer": GROUP, "subscription": f"{TOPIC}.{GROUP}", "queue": f"{TOPIC}.{GROUP}"}
    assert identity(nameless, GROUP) == place
    assert identity(nameless, GROUP, "unreadable") == {**place, "outcome": "unreadable"}
    item = Ready(NotedDelivery(message), "order/1", message, the_handler(), None)
    told = identity(item, GROUP, "failed", attempt=2)
    assert told.items() >= place.items()
    assert {name: told[name] for name in ("event_id", "message_id", "trace_id", "ordering_key", "attempt")} == {
        "event_id": str(message.id),
        "message_id": str(message.id),
        "trace_id": message.trace_id,
        "ordering_key": "order/1",
        "attempt": 2,
    }
    assert told["outcome"] == "failed"
    assert "outcome" not in identity(item, GROUP)
    assert set(told) <= set(LOG_FIELDS)


def test_a_broker_with_queues_and_message_ids_of_its_own_is_told_by_them() -> None:
    delivery = NotedDelivery(message := placed())
    delivery.queue, delivery.message_id = "order.inventory.queue", "m-7"  # type: ignore[attr-defined]
    told = identity(Ready(delivery, "order/1", message, the_handler(), None), GROUP)
    assert (told["queue"], told["message_id"], told["event_id"]) == ("order.inventory.queue", "m-7", str(message.id))


def test_each_subject_is_told_once_in_a_while() -> None:
    clock = VirtualClock()
    occasionally = Occasionally(clock, interval=30.0)
    assert occasionally("store")
    assert occasionally("broker")
    clock.shift(29.9)
    assert not occasionally("store")
    clock.shift(0.1)
    assert occasionally("store")
    assert not occasionally("store")


def test_the_memory_of_what_was_said_is_bounded() -> None:
    occasionally = Occasionally(VirtualClock())
    for number in range(1_000):
        assert occasionally(str(number))
    assert not occasionally("0")
    assert occasionally("one more")
    assert occasionally("0")
