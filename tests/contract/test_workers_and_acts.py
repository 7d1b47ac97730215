"""Who is at work, what people did by hand, which groups and types are known: as the tables tell it."""

from datetime import timedelta
from uuid import UUID

from postroad.operations import acts
from postroad.operations.audit import record
from postroad.stores import Store
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
