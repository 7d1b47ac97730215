"""Who is at work, what people did by hand, which groups and types are known: as the tables tell it."""

from datetime import timedelta
from uuid import UUID

import pytest

from postroad.errors import OperationRefused
from postroad.message import SHARDS
from postroad.operations import acts, leases, pause_group, pauses, release_leases
from postroad.operations.audit import record
from postroad.stores import Store
from postroad.testing.clock import VirtualClock
from postroad.testing.office import Office

MINUTE = 60.0


async def beat(office: Office, number: int, kind: str, name: str) -> None:
    async with office.store.transaction() as connection:
        await office.store.execute(connection, "worker_beat", id=UUID(int=number), kind=kind, name=name, detail="x")


async def silent(office: Office, name: str, minutes: float) -> None:
    then = office.store.adapt(office.store.clock.now() - timedelta(minutes=minutes))
    await office.run(
        "UPDATE {workers} SET seen_at = :then, started_at = :then WHERE name = :name", then=then, name=name
    )


async def alive(office: Office) -> list[tuple[str, str]]:
    return [(row.kind, row.name) for row in (await office.store.read("workers_alive", ttl=10 * MINUTE)).rows]


async def test_who_was_heard_of_lately_is_listed_by_kind_and_name(office: Office) -> None:
    for number, (kind, name) in enumerate((("worker", "b"), ("relay", "z"), ("worker", "a"), ("relay", "gone")), 1):
        await beat(office, number, kind, name)
    await silent(office, "gone", 11)
    await silent(office, "z", 9)
    assert await alive(office) == [("relay", "z"), ("worker", "a"), ("worker", "b")]


async def test_another_beat_moves_the_time_of_the_last_and_nothing_else(office: Office) -> None:
    for number, name in enumerate("ab", 1):
        await beat(office, number, "relay", name)
        await silent(office, name, 20)
    before = {row.name: row for row in await office.query("SELECT name, started_at, seen_at FROM {workers}")}
    await beat(office, 1, "relay", "a")
    after = {row.name: row for row in await office.query("SELECT name, started_at, seen_at FROM {workers}")}
    assert after["a"].seen_at > before["a"].seen_at
    assert after["a"].started_at == before["a"].started_at
    assert after["b"] == before["b"]


async def test_who_leaves_is_forgotten_alone(office: Office) -> None:
    for number, name in enumerate("ab", 1):
        await beat(office, number, "relay", name)
    await office.store.change("worker_gone", id=UUID(int=1))
    assert await alive(office) == [("relay", "b")]


async def test_who_was_silent_for_too_long_is_forgotten(office: Office) -> None:
    for number, name in enumerate("ab", 1):
        await beat(office, number, "relay", name)
    await silent(office, "a", 11)
    await office.store.change("workers_forget", ttl=10 * MINUTE)
    assert [row.name for row in await office.query("SELECT name FROM {workers}")] == ["b"]


async def test_the_shards_of_a_relay_that_is_gone_are_released(office: Office) -> None:
    await office.post("a")
    gone, heir = office.relay(), office.relay()
    await gone.leases.keep()
    (held,) = await leases(office.store)
    assert (held.shards, held.gone) == (SHARDS, False)
    with pytest.raises(OperationRefused, match=r"is alive\. Let it give them back: postroad drain"):
        await release_leases(office.store, held.owner, actor="ann")
    await silent(office, held.owner, 1)
    assert [one.gone for one in await leases(office.store)] == [True]
    assert await release_leases(office.store, held.owner, actor="ann", reason="its host burnt") == SHARDS
    assert await heir.run_once() == 1
    (act,) = await acts(office.store)
    assert (act.action, act.subject, act.detail) == ("lease.release", held.owner, "its host burnt")


async def test_how_long_a_lease_runs_is_told_by_the_clock_it_was_written_by(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    await office.relay(lease=MINUTE).leases.keep()
    monkeypatch.setattr(office.store, "clock", VirtualClock(office.store.clock.now() + timedelta(hours=1)))
    (held,) = await leases(office.store)
    assert 0 < held.seconds_left <= MINUTE


async def test_what_is_released_is_taken_by_those_who_are_left_before_its_lease_would_end(office: Office) -> None:
    gone, heir = office.relay(lease=MINUTE), office.relay(lease=MINUTE)
    await gone.leases.keep()
    (held,) = await leases(office.store)
    await silent(office, held.owner, 0.5)
    await heir.leases.keep()
    assert heir.leases.epochs == {}
    await release_leases(office.store, held.owner, actor="ann")
    heir.leases.doubt()
    await heir.leases.keep()
    assert len(heir.leases.epochs) == SHARDS


async def test_who_holds_no_shards_has_none_to_release(office: Office) -> None:
    with pytest.raises(OperationRefused, match="'nobody:1' holds no shards"):
        await release_leases(office.store, "nobody:1", actor="ann")
    assert await acts(office.store) == []


async def test_acts_are_told_from_the_last_to_the_first(store: Store) -> None:
    async with store.transaction() as connection:
        for number, subject in enumerate(("one", "two", "one", "two"), 1):
            await record(store, connection, actor="ann", action=f"act {number}", subject=subject, detail="why")
    everything = await acts(store)
    assert [act.action for act in everything] == ["act 4", "act 3", "act 2", "act 1"]
    assert [act.action for act in await acts(store, subject="one")] == ["act 3", "act 1"]
    assert [act.action for act in await acts(store, limit=2)] == ["act 4", "act 3"]
    assert [act.action for act in await acts(store, before=everything[1].id)] == ["act 2", "act 1"]
    assert (everything[0].actor, everything[0].subject, everything[0].detail) == ("ann", "two", "why")


async def test_what_is_paused_is_not_paused_again(office: Office) -> None:
    await pause_group(office.store, ["receipts"], "receipts", actor="ann")
    with pytest.raises(OperationRefused, match="paused already"):
        await pause_group(office.store, ["receipts"], "receipts", actor="bob")
    assert [one.actor for one in await pauses(office.store)] == ["ann"]
