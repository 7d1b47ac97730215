"""What cannot be handled is recorded, kept with the dead letters, and holds nobody up."""

import logging
import uuid
from typing import Any

import pytest

from postroad.handlers import Registry
from postroad.inbox import Status
from postroad.inbox.record import unpack
from tests.support.consuming import (
    GROUP,
    NotedDelivery,
    OrderCancelled,
    OrderPlaced,
    bench,
    deliver,
    placed,
    subscriber,
)


def registry() -> Registry:
    made = Registry()
    made.add(GROUP, OrderPlaced, lambda event: None)
    return made


def changed(**changes: str | None) -> dict[str, str]:
    attributes = {**placed().attributes(), **changes}
    return {name: value for name, value in attributes.items() if value is not None}


@pytest.mark.spec("P13", "R9", "F15")
async def test_a_payload_that_cannot_be_read_is_recorded_and_dead_lettered(database_url: str) -> None:
    async with bench(database_url) as b:
        poison, after = placed(1, payload=b"\xff{"), placed(2)
        at_work = subscriber(b, registry())
        verdicts = await deliver(at_work, [poison, after])
        assert [verdict[0] for verdict in verdicts] == ["dead", "ack"]
        assert "UnreadableMessage" in verdicts[0][1]
        record = await b.record(poison)
        assert record.stopped
        assert record.message is not None
        assert unpack(record.message) == poison
        assert (at_work.statistics.dead, at_work.statistics.handled) == (1, 1)


@pytest.mark.spec("P13", "P8")
async def test_an_unknown_schema_version_is_recorded_and_dead_lettered(database_url: str) -> None:
    async with bench(database_url) as b:
        future = placed(schema_version=9)
        [(verdict, reason, _)] = await deliver(subscriber(b, registry()), [future])
        assert verdict == "dead"
        assert reason.startswith("UnknownVersion")
        assert (await b.record(future)).status is Status.FAILED


@pytest.mark.spec("P13")
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"occurred_at": "yesterday"}, "occurred_at"),
        ({"aggregate_id": None}, "aggregate_id"),
        ({"event_type": "x" * 200}, "event_type is longer"),
        ({"aggregate_id": "a\0b"}, "ordering_key contains"),
        ({"tenant_id": "t" * 300}, "tenant_id is longer"),
        ({"version": str(2**63)}, "version is malformed"),
        ({"event_id": "none"}, "event_id"),
        ({"event_id": None}, "event_id"),
    ],
)
async def test_attributes_that_cannot_be_read_or_kept_are_poison(
    sqlite_url: str, changes: dict[str, Any], told: str
) -> None:
    async with bench(sqlite_url) as b:
        delivery = NotedDelivery(attributes=changed(**changes), data=b"{}")
        await subscriber(b, registry()).handle([delivery])
        [(verdict, reason)] = delivery.verdicts
        assert verdict == "dead"
        assert told in reason
        assert len(await b.inbox.list(status=Status.FAILED)) == ("event_id" not in changes)


@pytest.mark.parametrize("name", ["event_type", "aggregate_id", "aggregate_type", "tenant_id"])
async def test_what_a_store_could_not_hold_never_reaches_it(database_url: str, name: str) -> None:
    async with bench(database_url) as b:
        delivery = NotedDelivery(attributes=changed(**{name: "\0" + "\ud800" * 600}), data=b"\0\xff")
        await subscriber(b, registry()).handle([delivery])
        assert delivery.verdicts[0][0] == "dead"
        (record,) = await b.inbox.list(status=Status.FAILED)
        assert len(record.event_type) == (128 if name == "event_type" else len("order.placed"))


async def test_a_type_that_nobody_declares_is_kept_and_warned_of_once(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(sqlite_url) as b:
        strangers = [placed(n, type="order.teleported") for n in (1, 2, 3)]
        with caplog.at_level(logging.WARNING, "postroad"):
            verdicts = await deliver(subscriber(b, registry()), strangers)
        assert [verdict[0] for verdict in verdicts] == ["dead"] * 3
        assert "UnknownEventType: order.teleported" in verdicts[0][1]
        assert len(caplog.records) == 1
        assert len(await b.inbox.list(status=Status.FAILED)) == 3


async def test_a_handler_that_was_removed_is_missed(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b:
        both = registry()
        both.add(GROUP, OrderCancelled, lambda event: None)
        await subscriber(b, both).handle([])
        [(verdict, reason, _)] = await deliver(subscriber(b, registry()), [placed(type="order.cancelled")])
        assert verdict == "dead"
        assert "handled by group receipts before" in reason


async def test_an_event_that_was_never_this_groups_is_skipped(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b:
        at_work = subscriber(b, registry())
        assert await deliver(at_work, [placed(type="order.cancelled")]) == [("ack", 1)]
        assert at_work.statistics.skipped == 1
        assert await b.inbox.list() == []


async def test_a_duplicate_of_a_handled_event_is_no_poison_when_its_handler_is_gone(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b:
        both = registry()
        both.add(GROUP, OrderCancelled, lambda event: None)
        message = placed(type="order.cancelled", payload=b'{"order_id":"1"}')
        await deliver(subscriber(b, both), [message])
        assert await deliver(subscriber(b, registry()), [message]) == [("ack", 1)]


async def test_a_message_without_an_id_is_dead_lettered_without_a_record(sqlite_url: str) -> None:
    async with bench(sqlite_url) as b:
        delivery = NotedDelivery(attributes={}, data=b"hello")
        await subscriber(b, registry()).handle([delivery])
        assert delivery.verdicts == [("dead", "UnreadableMessage: attribute event_id is missing")]
        assert await b.inbox.find(GROUP, uuid.uuid4()) is None
