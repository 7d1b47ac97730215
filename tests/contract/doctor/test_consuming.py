"""Planted: groups without workers, old messages, stale retries, deleted handlers, dead letters."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from postroad.brokers.base import Delivery, Depth, Flow, Subscription, Topology
from postroad.errors import UnsupportedByBroker
from postroad.operations import pause_group
from postroad.operations.doctor import Level
from postroad.operations.doctor.consuming import deserted
from postroad.operations.doctor.files import broker_file
from tests.support.clinic import GROUP, SUBSCRIPTION, TOPIC, Clinic
from tests.support.consuming import placed


async def publish(clinic: Clinic, type: str = "parcel.sent", **changes: Any) -> UUID:
    message = placed(topic=TOPIC, type=type, **changes)
    await clinic.road.broker.send([message])
    return message.id


@asynccontextmanager
async def received(clinic: Clinic) -> AsyncIterator[Delivery]:
    receiver = await clinic.road.broker.subscribe(SUBSCRIPTION, Flow())
    (delivery,) = await receiver.receive()
    yield delivery
    await receiver.aclose()


async def inbox_record(clinic: Clinic, *, status: int, **columns: str) -> None:
    names = ", ".join(columns)
    values = ", ".join(f"'{value}'" for value in columns.values())
    await clinic.run(
        f"INSERT INTO postroad_inbox (consumer_group, event_id, event_type, status, {names}) "
        f"VALUES ('{GROUP}', :id, 'parcel.sent', {status}, {values})",
        id=uuid4(),
    )


@pytest.mark.spec("F14")
async def test_a_subscription_that_nobody_consumes_is_a_warning_and_with_messages_a_fault(clinic: Clinic) -> None:
    await clinic.run("DELETE FROM postroad_worker WHERE kind = 'worker'")
    empty = await clinic.only("subscriptions")
    assert (empty.level, empty.command) == (Level.WARNING, f"postroad worker --group {GROUP}")
    await publish(clinic, deliver_at=clinic.road.clock.now() + timedelta(hours=1))
    assert await clinic.only("subscriptions") == empty  # nothing waits before its time
    await publish(clinic)
    full = await clinic.only("subscriptions")
    assert full.level is Level.FAULT
    assert "1 message waits" in full.cause


@pytest.mark.spec("F14")
async def test_a_paused_group_is_a_warning_that_tells_by_whom_and_not_that_nobody_consumes(clinic: Clinic) -> None:
    store = clinic.road.store
    await pause_group(store, clinic.road.groups, GROUP, actor="ann", reason="full")
    await clinic.run("DELETE FROM postroad_worker WHERE kind = 'worker'")
    await publish(clinic)
    await inbox_record(clinic, status=2, next_retry_at="2020-01-01 00:00:00")
    paused = await clinic.only("subscriptions")
    assert (paused.level, paused.command) == (Level.WARNING, f"postroad resume {GROUP}")
    assert paused.cause.startswith(f"The group {GROUP} is paused by ann since 20")
    assert paused.cause.endswith(f"UTC (full); 1 message waits in {SUBSCRIPTION}.")


@pytest.mark.spec("F14")
async def test_a_subscription_that_nobody_consumes_on_rabbitmq_is_found(rabbit_clinic: Clinic) -> None:
    await rabbit_clinic.run("DELETE FROM postroad_worker WHERE kind = 'worker'")
    await publish(rabbit_clinic)
    assert (await rabbit_clinic.only("subscriptions")).level is Level.FAULT


@pytest.mark.spec("F14")
@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_where_nobody_counts_it_is_found_all_the_same_that_nobody_consumes(
    pubsub_clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def uncounted(subscription: str) -> Depth:
        raise UnsupportedByBroker("Pub/Sub", "depth", "In the cloud, its monitoring counts.")

    monkeypatch.setattr(pubsub_clinic.road.broker, "depth", uncounted)
    assert await pubsub_clinic.problems() == {}
    await pubsub_clinic.run("DELETE FROM postroad_worker WHERE kind = 'worker'")
    finding = await pubsub_clinic.only("subscriptions")
    assert finding.cause == f"No worker of the group {GROUP} is alive: nobody consumes {SUBSCRIPTION}."


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_a_group_whose_handlers_are_gone_altogether_is_still_ours(clinic: Clinic) -> None:
    await clinic.road.inbox.declare("billing", ["parcel.sent"])
    await clinic.road.broker.apply(Topology((TOPIC,), (Subscription(f"{TOPIC}.billing", TOPIC),)))
    finding = await clinic.only("subscriptions")
    assert "billing" in finding.cause
    assert "Bring its handlers back" in finding.cure
    await publish(clinic)
    assert (await clinic.problems())["handlers"] is Level.WARNING
    await clinic.presence("billing").run_once()  # another program of the same service has them
    assert await clinic.problems() == {}


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_a_deserted_group_is_told_with_what_waits_for_it(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "The group billing has no handler here and no worker elsewhere, and {} for it."
    await clinic.road.inbox.declare("billing", ["parcel.sent"])
    await clinic.road.broker.apply(Topology((TOPIC,), (Subscription(f"{TOPIC}.billing", TOPIC),)))
    assert await deserted(clinic.road) == []
    await publish(clinic)
    assert await deserted(clinic.road) == [said.format("1 message waits")]

    async def uncounted(subscription: str) -> Depth:
        raise UnsupportedByBroker("Pub/Sub", "depth", "In the cloud, its monitoring counts.")

    async def unknown(subscription: str) -> None:
        return None

    monkeypatch.setattr(clinic.road.broker, "depth", uncounted)
    monkeypatch.setattr(clinic.road.broker, "estimate", unknown)
    assert await deserted(clinic.road) == [said.format("messages may wait")]
    await clinic.presence("billing").run_once()
    assert await deserted(clinic.road) == []


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_the_subscriptions_of_other_services_are_not_our_concern(clinic: Clinic) -> None:
    await clinic.road.broker.apply(Topology((TOPIC,), (Subscription(f"{TOPIC}.others", TOPIC),)))
    assert await clinic.problems() == {}


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_messages_that_wait_for_long_although_a_worker_is_alive_are_a_warning(clinic: Clinic) -> None:
    await publish(clinic)
    assert await clinic.problems() == {}
    with closing(sqlite3.connect(str(broker_file(clinic.road)))) as file, file:
        file.execute("UPDATE delivery SET since = since - 600000000")
    finding = await clinic.only("subscriptions")
    assert finding.level is Level.WARNING
    assert "10 min" in finding.cause


@pytest.mark.spec("F14")
@pytest.mark.parametrize(("status", "column"), [(2, "next_retry_at"), (0, "locked_until")])
async def test_what_should_have_been_tried_again_long_ago_is_a_warning(
    clinic: Clinic, status: int, column: str
) -> None:
    await inbox_record(clinic, status=status, **{column: "2999-01-01 00:00:00"})
    assert await clinic.problems() == {}
    await clinic.run(f"UPDATE postroad_inbox SET {column} = '2000-01-01 00:00:00'")
    finding = await clinic.only("retries")
    assert (finding.level, finding.command) == (Level.WARNING, f"postroad worker --group {GROUP}")


@pytest.mark.spec("F14")
async def test_a_deleted_handler_is_missed_only_while_its_events_are_on_their_way(clinic: Clinic) -> None:
    await clinic.road.inbox.declare(GROUP, ["parcel.sent", "parcel.lost"])
    assert await clinic.problems() == {}
    await clinic.post("p-1")
    assert await clinic.problems() == {}
    await clinic.run("UPDATE postroad_outbox SET event_type = 'parcel.lost'")
    unsent = await clinic.only("handlers")
    assert unsent.level is Level.FAULT
    assert "no handler of parcel.lost" in unsent.cause
    await clinic.run("UPDATE postroad_outbox SET state = 'SENT', published_at = occurred_at")
    assert await clinic.problems() == {}
    await publish(clinic, "parcel.lost")
    assert (await clinic.only("handlers")).level is Level.WARNING  # nobody can see which types wait there
    await inbox_record(clinic, status=0, locked_until="2999-01-01 00:00:00")
    await clinic.run("UPDATE postroad_inbox SET event_type = 'parcel.lost'")
    assert (await clinic.only("handlers")).level is Level.FAULT


@pytest.mark.spec("F14")
@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_a_dead_letter_is_a_warning(clinic: Clinic) -> None:
    id = await publish(clinic)
    async with received(clinic) as delivery:
        await delivery.dead("unlucky")
    finding = await clinic.only("dead letters")
    assert (finding.level, finding.command) == (Level.WARNING, f"postroad dlq list --topic {TOPIC}")
    assert str(id) in finding.cause
    assert "unlucky" in finding.cause


async def test_a_dead_letter_on_rabbitmq_is_found_and_stays(rabbit_clinic: Clinic) -> None:
    await publish(rabbit_clinic)
    async with received(rabbit_clinic) as delivery:
        await delivery.dead("unlucky")
    assert (await rabbit_clinic.only("dead letters")).level is Level.WARNING
    assert len(await rabbit_clinic.road.broker.dead_letters(TOPIC)) == 1
