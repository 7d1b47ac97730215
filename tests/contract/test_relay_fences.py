"""A lease counts for its shard, outbox, holder and epoch; and each statement leaves alone what is not meant."""

from typing import Any
from uuid import UUID

import pytest

from postroad.message import SHARDS
from postroad.relay import Relay
from postroad.relay.reader import Due, DueReader
from postroad.retry import Backoff
from postroad.stores.base import id_text
from postroad.testing import FaultyBroker
from postroad.testing.office import LONG_AGO, Office

SOMEBODY = UUID(int=1)


async def leased(office: Office, **options: Any) -> Relay:
    relay = office.relay(**options)
    await relay.leases.keep()
    return relay


async def due(office: Office, relay: Relay) -> dict[str, Due]:
    look = await DueReader(office.store, office.table, 10 * SHARDS).read(relay.leases.epochs)
    return {run[0].message.aggregate_id: run[0] for run in look.runs}


async def run(office: Office, statement: str, **values: Any) -> Any:
    async with office.store.transaction() as connection:
        return await office.store.execute(connection, statement, **values)


async def mark_failed(office: Office, relay: Relay, one: Due) -> int:
    async with office.store.transaction() as connection:
        return await relay.carrier._mark_failed(connection, one, "no", 60.0)


async def held(office: Office, holder: UUID, name: str) -> dict[int, Any]:
    rows = await office.query(
        "SELECT shard, expires_at, owner FROM {shards} WHERE token = :token AND outbox = :name",
        token=office.store.adapt(holder),
        name=name,
    )
    return {row.shard: (row.expires_at, row.owner) for row in rows}


async def test_losing_one_shard_is_losing_the_right_to_mark_its_events(office: Office) -> None:
    """The others are still ours, under the same epoch."""
    await office.post("a", "b")
    await office.run("UPDATE {delivery} SET {shard} = 7")
    relay = await leased(office)
    one = await due(office, relay)
    await office.run(
        "UPDATE {shards} SET token = :token, epoch = 2 WHERE shard = 7", token=office.store.adapt(SOMEBODY)
    )
    await relay.carrier.mark([one["a"]], [])
    assert relay.leases.epochs == {}
    assert await mark_failed(office, relay, one["b"]) == 0
    assert await office.states() == ["NEW", "NEW"]


async def test_only_what_was_sent_or_refused_is_marked(office: Office) -> None:
    await office.post("a", "b", "c", "d")
    await office.run("UPDATE {delivery} SET {shard} = 7")
    relay = await leased(office)
    one = await due(office, relay)
    await relay.carrier.mark([one["b"]], [])
    assert await mark_failed(office, relay, one["c"]) == 1
    rows = await office.rows()
    assert [row.state for row in rows] == ["NEW", "SENT", "RETRY", "NEW"]
    assert [(row.attempts, row.last_error) for row in rows] == [(0, None), (0, None), (1, "no"), (0, None)]
    assert [row.next_attempt_at is not None for row in rows] == [False, False, True, False]


async def test_each_event_is_marked_by_the_lease_of_its_own_shard(office: Office) -> None:
    await office.post("a", "b", "c")
    for shard, parcel in enumerate("abc"):
        where = f"WHERE {{ordering_key}} = 'parcel/{parcel}'"
        await office.run(f"UPDATE {{delivery}} SET {{shard}} = {shard} {where}")
    relay = await leased(office)
    one = await due(office, relay)
    await office.run("UPDATE {shards} SET token = :token WHERE shard = 1", token=office.store.adapt(SOMEBODY))
    await relay.carrier.mark([one["a"], one["b"], one["c"]], [])
    assert await office.states() == ["SENT", "NEW", "SENT"]


async def test_what_a_person_skipped_cannot_fail_any_more(office: Office) -> None:
    await office.post("a")
    relay = await leased(office)
    one = await due(office, relay)
    await office.run("UPDATE {delivery} SET {state} = 'SKIPPED'")
    assert await mark_failed(office, relay, one["a"]) == 0
    assert await office.states() == ["SKIPPED"]


async def test_what_was_sent_in_the_end_keeps_no_error_and_has_its_time(office: Office) -> None:
    await office.post("a")
    await office.carry(FaultyBroker(office.broker, refuse=lambda message: "no"), backoff=Backoff(attempts=3))
    await office.make_due()
    await office.carry()
    (row,) = await office.query("SELECT {last_error} AS error, {published_at} AS at FROM {delivery}")
    assert row.error is None
    assert row.at is not None


async def test_one_holder_in_two_outboxes_has_them_apart(office: Office) -> None:
    first, second = await leased(office), office.relay(outbox=office.tables[2])
    second.leases.token = token = first.leases.token
    names = [table.name for table in (office.tables[0], office.tables[2])]
    await second.leases.keep()
    assert [len(await held(office, token, name)) for name in names] == [SHARDS, SHARDS]
    assert await first.leases._renew_all() is None
    assert len(first.leases.epochs) == SHARDS
    await office.run("UPDATE {shards} SET expires_at = :then", then=LONG_AGO)
    before = await held(office, token, names[1])
    await first.leases._renew_all()
    assert await held(office, token, names[1]) == before
    assert set(await held(office, token, names[0])) == set(range(SHARDS))
    await first.leases.release()
    assert [len(await held(office, token, name)) for name in names] == [0, SHARDS]


async def test_a_relay_renews_and_gives_back_its_own_shards_only(office: Office) -> None:
    first, second = await leased(office), await leased(office)
    for relay in (first, second):
        await relay.leases.keep()
    name = office.table.name
    await office.run("UPDATE {shards} SET expires_at = :then WHERE token IS NOT NULL", then=LONG_AGO)
    before = await held(office, second.leases.token, name)
    assert len(before) == SHARDS // 2
    await first.leases._renew_all()
    assert await held(office, second.leases.token, name) == before
    await first.leases.release()
    assert await held(office, second.leases.token, name) == before
    (row,) = await office.query(
        "SELECT count(*) AS free FROM {shards} WHERE outbox = :name AND token IS NULL AND owner IS NULL"
        " AND expires_at IS NULL",
        name=name,
    )
    assert row.free == SHARDS // 2


async def test_a_lease_shows_its_owner(office: Office) -> None:
    relay = await leased(office)
    owners = {owner for _, owner in (await held(office, relay.leases.token, office.table.name)).values()}
    assert owners == {relay.name}
    assert set(relay.leases.epochs.values()) == {1}


async def test_a_lease_has_its_end_from_the_beginning(office: Office) -> None:
    """Else nobody could succeed a relay that dies before its first renewal."""
    relay = await leased(office, lease=600.0)
    now = office.store.clock.now()
    ends = {end for end, _ in (await held(office, relay.leases.token, office.table.name)).values()}
    lasts = {(office.store.time_out(end) - now).total_seconds() for end in ends}  # type: ignore[operator]
    assert 500 < min(lasts) <= max(lasts) < 700


async def test_only_relays_of_the_same_outbox_have_a_share(office: Office) -> None:
    for number, kind, detail in ((1, "worker", office.table.name), (2, "relay", "another")):
        await run(office, "worker_beat", id=UUID(int=number), kind=kind, name="x", detail=detail)
    assert len((await leased(office)).leases.epochs) == SHARDS
    await run(office, "worker_beat", id=UUID(int=3), kind="relay", name="x", detail=office.table.name)
    other = office.relay()
    await office.run("UPDATE {shards} SET token = NULL")
    await office.run("DELETE FROM {workers} WHERE id <> :id", id=office.store.adapt(UUID(int=3)))
    await other.leases.keep()
    assert len(other.leases.epochs) == SHARDS // 2


async def test_whoever_has_shard_0_of_the_outbox_sorts_in_what_others_wrote(office: Office) -> None:
    first, second = await leased(office), await leased(office)
    for relay in (first, second):
        await relay.leases.keep()
    turns = []
    for relay in (first, second):
        for outbox in (office.table.name, "another"):
            turn = await run(office, "adoption_turn", outbox_name=outbox, token=relay.leases.token)
            turns.append([row.shard for row in turn.rows])
    assert second.leases.epochs
    assert turns == [[0], [], [], []]


async def test_a_row_of_others_is_sorted_in_once_and_by_itself(office: Office) -> None:
    added = await office.post("a", "b")
    await office.run("UPDATE {delivery} SET {shard} = NULL, {ordering_key} = NULL")
    office.outbox.close()
    values: dict[str, Any] = {
        "outbox": office.table,
        "event_id": added[0].id,
        "version": 1,
        "now": added[0].message.occurred_at,
    }
    assert (await run(office, "assign_shard", shard=3, ordering_key="parcel/x", **values)).rowcount == 1
    assert (await run(office, "assign_shard", shard=4, ordering_key="parcel/y", **values)).rowcount == 0
    rows = await office.query("SELECT {shard} AS shard, {ordering_key} AS k FROM {delivery} ORDER BY {aggregate_id}")
    assert [(row.shard, row.k) for row in rows] == [(3, "parcel/x"), (None, None)]


async def test_each_aggregate_has_its_own_counter(office: Office) -> None:
    await office.post("a", "a", "b")
    for aggregate, given, version in (
        ("b", None, 2),
        ("a", 7, 7),
        ("a", 5, 7),
        ("a", None, 8),
        ("c", None, 1),
        ("d", 4, 4),
    ):
        counter = {"aggregate_type": "parcel", "aggregate_id": aggregate}
        await run(office, "version_follow", version=given, **counter)
        (row,) = (await run(office, "version_read", **counter)).rows
        assert row.version == version
    assert not (await run(office, "version_read", aggregate_type="letter", aggregate_id="a")).rows


async def test_payloads_are_fetched_of_those_that_were_asked_for(office: Office) -> None:
    added = await office.post("a", "b", "c")
    (row,) = await office.query("SELECT {event_id} AS id FROM {outbox} WHERE {aggregate_id} = 'b'")
    found = await office.store.read("read_payloads", office.table, ids=[id_text(row.id)])
    assert [(one.event_id, bytes(one.payload)) for one in found.rows] == [(row.id, added[1].message.payload)]


async def test_after_the_last_key_it_begins_with_the_first_again(office: Office) -> None:
    await office.post("a", "b", "c")
    await office.run("UPDATE {delivery} SET {shard} = 0")
    reader = DueReader(office.store, office.table, batch=2)
    seen = []
    for _ in range(3):
        look = await reader.read({0: 1})
        seen.append([due.message.aggregate_id for run in look.runs for due in run])
    assert seen == [["a", "b"], ["c"], ["a", "b"]]


@pytest.mark.parametrize("state", ["NEW", "SENT", "SKIPPED"])
async def test_a_person_frees_and_skips_the_event_that_was_meant(office: Office, state: str) -> None:
    """One statement at a time, beside an event in the same state and one that is none of a person's business."""
    added = await office.post("a", "b", "c")
    values = {"outbox": office.table, "event_id": added[0].id}
    for statement, outcome in (("outbox_retry", "NEW"), ("outbox_skip", "SKIPPED")):
        await office.run(
            "UPDATE {delivery} SET {state} = 'FAILED', {attempts} = 5, {next_attempt_at} = :then", then=LONG_AGO
        )
        await office.run("UPDATE {delivery} SET {state} = :state WHERE {ordering_key} = 'parcel/c'", state=state)
        assert (await run(office, statement, **values)).rowcount == 1
        assert await office.states() == [outcome, "FAILED", state]
        (row, *_) = await office.rows()
        assert row.next_attempt_at is None
        assert row.attempts == (0 if outcome == "NEW" else 5)
        assert (await run(office, statement, outbox=office.table, event_id=added[2].id)).rowcount == 0
        assert await office.states() == [outcome, "FAILED", state]


@pytest.mark.parametrize("head", ["FAILED", "RETRY"])
async def test_a_head_that_waits_holds_back_its_key_also_behind_what_was_sent(office: Office, head: str) -> None:
    """In every place of the walk through a shard's keys: the first of them, and those after it."""
    await office.post(*"aaabbbcccdd")
    await office.run("UPDATE {delivery} SET {shard} = 0")
    await office.run("UPDATE {delivery} SET {state} = 'SENT' WHERE {version} = 1")
    await office.run(
        "UPDATE {delivery} SET {state} = :head, {next_attempt_at} = :far"
        " WHERE {version} = 2 AND {ordering_key} < :last",
        head=head,
        far="2999-01-01 00:00:00",
        last="parcel/d",
    )
    look = await DueReader(office.store, office.table, batch=100).read({0: 1})
    assert [(one.message.aggregate_id, one.message.version) for run in look.runs for one in run] == [("d", 2)]


async def test_keys_that_are_sent_do_not_hide_the_one_behind_them(office: Office) -> None:
    """A look that counted them would end among them, behind a head that is parked, again and again."""
    await office.post(*"abcdz")
    await office.run("UPDATE {delivery} SET {shard} = 0")
    await office.run("UPDATE {delivery} SET {state} = 'SENT' WHERE {ordering_key} < 'parcel/z'")
    await office.run("UPDATE {delivery} SET {state} = 'FAILED' WHERE {ordering_key} = 'parcel/a'")
    look = await DueReader(office.store, office.table, batch=2).read({0: 1})
    assert [one.message.aggregate_id for run in look.runs for one in run] == ["z"]


async def test_only_rows_of_others_that_are_unsent_are_sorted_in_the_oldest_first(office: Office) -> None:
    await office.post(*"aabcd")
    change = "UPDATE {delivery} SET {shard} = NULL WHERE {ordering_key} <> 'parcel/b'"
    await office.run(change)
    for state, key in (("SENT", "c"), ("SKIPPED", "d")):
        await office.run(f"UPDATE {{delivery}} SET {{state}} = '{state}' WHERE {{ordering_key}} = 'parcel/{key}'")
    async with office.store.transaction() as connection:
        rows = (await office.store.execute(connection, "unsharded", outbox=office.table, most=1_000)).rows
    assert [(row.aggregate_id, row.version) for row in rows] == [("a", 1), ("a", 2)]


@pytest.mark.parametrize(("keys", "each"), [("a", 10), ("ab", 5), ("abc", 3)])
async def test_the_keys_that_are_due_share_a_look(office: Office, keys: str, each: int) -> None:
    await office.post(*(keys * 12))
    await office.run("UPDATE {delivery} SET {shard} = 0")
    look = await DueReader(office.store, office.table, batch=10).read({0: 1})
    assert [[one.message.version for one in run] for run in look.runs] == [list(range(1, each + 1))] * len(keys)


async def test_a_look_begins_with_the_shard_after_the_one_it_ended_in(office: Office) -> None:
    """Else many keys of one shard would be served before the first of the next."""
    await office.post(*"aabbzz")
    await office.run("UPDATE {delivery} SET {shard} = 0")
    await office.run("UPDATE {delivery} SET {shard} = 1 WHERE {ordering_key} = 'parcel/z'")
    reader = DueReader(office.store, office.table, batch=2)
    reader._run.now = 2
    seen = [[run[0].message.aggregate_id for run in (await reader.read({0: 1, 1: 1})).runs] for _ in range(3)]
    assert seen == [["a"], ["z"], ["b"]]


@pytest.mark.parametrize("runs", [True, False])
async def test_it_reads_on_in_a_key_only_for_a_broker_that_takes_runs(office: Office, runs: bool) -> None:
    await office.post(*"aaaabbbb")
    await office.run("UPDATE {delivery} SET {shard} = 0")
    reader = DueReader(office.store, office.table, batch=2, runs=runs)
    lengths = set()
    for _ in range(3):
        assert await reader.read({0: 1})
        lengths.add(reader._run.now)
    assert (max(lengths) > 1) is runs


async def test_a_row_without_a_schema_version_is_of_the_first(office: Office) -> None:
    await office.post("a")
    await office.run("UPDATE {outbox} SET {schema_version} = 0")
    await office.carry()
    assert [message.schema_version for message in office.broker.sent] == [1]


async def test_an_attribute_that_is_no_text_is_parked_and_never_reaches_the_broker(office: Office) -> None:
    await office.post("a")
    await office.run("UPDATE {outbox} SET {attributes} = :odd", odd='{"user_id": 5}')
    await office.carry()
    assert await office.states() == ["FAILED"]
    assert office.broker.sent == []
