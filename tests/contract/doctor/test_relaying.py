"""Planted: no relay, late events, shards without row or owner, leases of the dead, parked aggregates."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from postroad import operations
from postroad.operations import pause_outbox, run_now
from postroad.operations.doctor import Level, relaying
from postroad.testing.office import LONG_AGO
from tests.support.clinic import Clinic

NOBODY = "UPDATE postroad_shard SET token = NULL, owner = NULL, expires_at = NULL WHERE shard = 7"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaying, "SECOND_LOOK", 0.0)


@pytest.mark.spec("F14")
async def test_events_that_wait_without_a_relay_are_a_fault(unstaffed: Clinic) -> None:
    (idle,) = await unstaffed.found("relays")
    assert idle.level is Level.HINT
    await unstaffed.post("p-1")
    (waiting,) = await unstaffed.found("relays")
    assert (waiting.level, waiting.command) == (Level.FAULT, "postroad relay")


async def test_a_paused_outbox_is_a_warning_and_not_that_no_relay_is_alive(unstaffed: Clinic) -> None:
    road = unstaffed.road
    await unstaffed.post("p-1")
    await pause_outbox(road.store, road.outboxes, "postroad_outbox", actor="ann")
    (paused,) = await unstaffed.found("relays")
    assert (paused.level, paused.command) == (Level.WARNING, "postroad resume --outbox postroad_outbox")
    assert "is paused by ann since 20" in paused.cause


async def test_a_relay_that_has_been_silent_is_not_counted_on(clinic: Clinic) -> None:
    await clinic.post("p-1")
    assert await clinic.found("relays") == []
    long_ago = clinic.road.clock.now() - timedelta(minutes=1)
    await clinic.run("UPDATE postroad_worker SET seen_at = :then WHERE kind = 'relay'", then=long_ago)
    (finding,) = await clinic.found("relays")
    assert finding.level is Level.FAULT


@pytest.mark.spec("F14")
async def test_events_that_wait_for_long_although_a_relay_is_alive_are_a_warning(clinic: Clinic) -> None:
    await clinic.post("p-1")
    assert await clinic.problems() == {}
    await clinic.run(
        "UPDATE postroad_outbox SET occurred_at = :then", then=clinic.road.clock.now() - timedelta(hours=1)
    )
    assert (await clinic.only("relays")).level is Level.WARNING


async def test_an_event_that_is_not_due_yet_is_no_fault_and_one_that_is_run_now_is_not_late(
    unstaffed: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    road = unstaffed.road
    monkeypatch.setattr(road.broker, "features", replace(road.broker.features, delay=False))
    (id,) = await unstaffed.post("p-1", delay=7200)
    hour_ago = road.clock.now() - timedelta(hours=1)
    await unstaffed.run("UPDATE postroad_outbox SET occurred_at = :then", then=hour_ago)
    assert [one.level for one in await unstaffed.found("relays")] == [Level.HINT]
    await run_now(road, UUID(id), actor="ann")
    assert [one.level for one in await unstaffed.found("relays")] == [Level.FAULT]  # nobody is there to send it
    await unstaffed.staff()
    assert await unstaffed.found("relays") == []
    await unstaffed.run("UPDATE postroad_outbox SET deliver_at = :then", then=hour_ago)
    assert [one.level for one in await unstaffed.found("relays")] == [Level.WARNING]


@pytest.mark.spec("F14")
async def test_a_shard_whose_row_is_gone_is_a_fault_and_the_cure_mends_it(clinic: Clinic) -> None:
    await clinic.run("DELETE FROM postroad_shard WHERE shard IN (7, 8) AND outbox = 'postroad_outbox'")
    finding = await clinic.only("shards")
    assert finding.level is Level.FAULT
    await clinic.run(finding.command)
    assert "have no owner" in (await clinic.only("shards")).cause
    await clinic.run("DELETE FROM postroad_worker WHERE kind = 'relay'")
    assert "shards" not in await clinic.problems()


@pytest.mark.spec("F14")
async def test_a_shard_without_an_owner_while_a_relay_is_alive_is_a_fault(clinic: Clinic) -> None:
    await clinic.run(NOBODY)
    finding = await clinic.only("shards")
    assert finding.level is Level.FAULT
    assert "(7)" in finding.cause


async def test_a_lease_that_has_run_out_is_no_owner(clinic: Clinic) -> None:
    await clinic.run(f"UPDATE postroad_shard SET expires_at = '{LONG_AGO}' WHERE shard = 9")
    assert "(9)" in (await clinic.only("shards")).cause


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_a_shard_that_only_changes_hands_is_none(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    await clinic.run(NOBODY)
    taken: list[float] = []

    async def sleep(seconds: float) -> None:
        taken.append(seconds)
        await clinic.run("DELETE FROM postroad_worker WHERE kind = 'relay'")
        await clinic.run("UPDATE postroad_shard SET token = NULL")
        await clinic.leases(clinic.road.outboxes[0]).keep()

    monkeypatch.setattr(clinic.road.clock, "sleep", sleep)
    assert await clinic.problems() == {}
    assert taken


@pytest.mark.spec("F14")
async def test_a_lease_of_a_relay_that_is_gone_is_a_warning(clinic: Clinic) -> None:
    async with clinic.road.store.reading() as connection:
        sql = text("SELECT token FROM postroad_shard WHERE outbox = 'postroad_outbox' AND shard = 0")
        token: Any = (await connection.execute(sql)).scalar()
    other = clinic.leases(clinic.road.outboxes[0])
    await other.keep()  # alive, and waiting for its share
    await clinic.run("DELETE FROM postroad_worker WHERE id = :id", id=clinic.road.store.id_out(token))
    finding = await clinic.only("leases")
    assert finding.level is Level.WARNING
    assert "256 shards" in finding.cause
    owner = finding.command.removeprefix("postroad release ")
    assert await operations.release_leases(clinic.road.store, owner, actor="ann") == 256
    await other.keep()
    assert await clinic.problems() == {}


@pytest.mark.spec("F14")
async def test_a_parked_aggregate_is_a_fault_with_the_command_that_frees_it(clinic: Clinic) -> None:
    first, _ = await clinic.post("p-1", "p-1")
    park = (
        "UPDATE postroad_outbox SET state = 'FAILED', attempts = 5, last_error = 'no such topic' WHERE event_id = :id"
    )
    await clinic.run(park, id=UUID(first))
    finding = await clinic.only("parked")
    assert finding.level is Level.FAULT
    assert finding.command == f"postroad outbox retry {first}"
    assert "1 behind it" in finding.cause
    assert "no such topic" in finding.cause
