"""What a look costs is a matter of keys, not of how much waits behind them, in the databases' own units."""

import psycopg
import pytest

from postroad.message import SHARDS
from postroad.stores.postgresql.driver import PostgreSQL
from postroad.stores.tables import OutboxTable
from postroad.testing.office import LONG_AGO, Office
from tests.support.costs import cost
from tests.support.outbox import APPEND_ONLY

NUMBERS = {
    "postgresql": "generate_series({first}, {last}) AS s(n)",
    "mysql": "(SELECT seq AS n FROM seq_{first}_to_{last}) s",
    "sqlite": "(WITH RECURSIVE c(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM c WHERE n < {last})"
    " SELECT n FROM c) s",
}
MOST = 100
CARRIED = 4_000
NEW_ID = {
    "postgresql": "CAST(md5('{key}' || n) AS uuid)",
    "mysql": "UNHEX(MD5(CONCAT('{key}', n)))",
    "sqlite": "'{key}' || printf('%030d', n)",
}


async def backlog(office: Office, key: str, first: int, last: int, state: str = "NEW") -> None:
    dialect = office.store.dialect
    numbers, new_id = NUMBERS[dialect].format(first=first, last=last), NEW_ID[dialect].format(key=key)
    delivery = "{ordering_key}, {shard}, {state}"
    values = f"'{'delayed/' if key == 'delayed' else 'parcel/'}{key}', 0, '{state}'"
    in_row = not office.table.append_only
    await office.run(
        "INSERT INTO {outbox} ({event_id}, {topic}, {event_type}, {aggregate_type}, {aggregate_id},"
        f" {{version}}, {{payload}}, {{occurred_at}}{', ' + delivery if in_row else ''})"
        f" SELECT {new_id}, 't.x.events', 'x.y', 'parcel', '{key}', n, 'x', '{LONG_AGO}'"
        f"{', ' + values if in_row else ''} FROM {numbers}"
    )
    if not in_row:
        await office.run(
            f"INSERT INTO {{delivery}} ({{delivery_event_id}}, {{delivery_version}}, {delivery})"
            f" SELECT {new_id}, n, {values} FROM {numbers}"
        )


async def cost_of_a_look(office: Office) -> int:
    """Of `read_due` over all shards."""
    return await cost(
        office, "read_due", shards=list(range(SHARDS)), after=[""] * SHARDS, depth=4, most=1_000, inline=16_000
    )


@pytest.fixture(autouse=True)
async def swept(office: Office) -> None:
    """Without the remains of rows that other tests have deleted, which look like a cost of ours."""
    if isinstance(office.store, PostgreSQL):
        await office.store.looks.run("VACUUM", {}, binary=False)


@pytest.mark.parametrize("layout", [None, APPEND_ONLY], ids=["in_row", "append_only"])
async def test_a_long_queue_behind_a_parked_head_costs_nothing(office: Office, layout: OutboxTable | None) -> None:
    if layout:
        office = Office(office.store, layout)
    await backlog(office, "parked", 1, 1, "FAILED")
    await backlog(office, "parked", 2, 50)
    await backlog(office, "busy", 1, 20)
    short = await cost_of_a_look(office)
    await backlog(office, "parked", 51, 20_000)
    # Twice: an index that has grown by a level takes one more step at each probe.
    assert await cost_of_a_look(office) < 2.2 * short + 20
    await office.run("DELETE FROM {delivery}")


async def test_a_backlog_that_statistics_know_nothing_of_costs_nothing(office: Office) -> None:
    """An outbox is nearly empty most of the time, and then comes an outage of the broker."""
    analyze = {"mysql": "ANALYZE TABLE {delivery}"}.get(office.store.dialect, "ANALYZE {delivery}")
    await backlog(office, "gone", 1, 1_000)
    await office.run(analyze)
    await office.run("DELETE FROM {delivery}")
    await office.run(analyze)
    await backlog(office, "busy", 1, 20)
    await backlog(office, "parked", 1, 1, "FAILED")
    short = await cost_of_a_look(office)
    await backlog(office, "parked", 2, 20_000)
    assert await cost_of_a_look(office) < 2.2 * short + 20
    await office.run("DELETE FROM {delivery}")


async def test_what_was_sent_costs_nothing(office: Office) -> None:
    await backlog(office, "busy", 1, 20)
    short = await cost_of_a_look(office)
    await backlog(office, "sent", 1, 20_000, "SENT")
    assert await cost_of_a_look(office) < 1.5 * short + 20
    await office.run("DELETE FROM {delivery}")


async def test_a_run_is_bounded_by_the_batch(office: Office) -> None:
    await backlog(office, "busy", 1, 3_000)
    short = await cost_of_a_look(office)
    await backlog(office, "busy", 3_001, 20_000)
    assert await cost_of_a_look(office) < 1.5 * short
    relay = office.relay(batch=100)
    assert await relay.run_once() == 100
    assert [message.version for message in office.broker.sent] == list(range(1, 101))
    await office.run("DELETE FROM {delivery}")


@pytest.mark.parametrize("store_kind", ["postgresql"])
@pytest.mark.parametrize("keys", ["one key", "a key each"])
async def test_a_held_snapshot_costs_a_look_two_buffers_at_most_for_each_event_that_was_sent_since(
    office: Office, store_kind: str, store_url: str, keys: str
) -> None:
    """What was sent stays in the index of unsent rows until nobody can see it unsent any more."""
    assert isinstance(office.store, PostgreSQL)
    await backlog(office, "sent", 1, CARRIED)
    if keys == "a key each":
        await office.run("UPDATE {delivery} SET {ordering_key} = md5({delivery_version}::text)")
    await office.store.looks.run("VACUUM", {}, binary=False)
    short = await cost_of_a_look(office)
    with psycopg.connect(store_url) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("SELECT count(*) FROM postroad_shard")
        relay = office.relay(batch=1_000)
        while len(office.broker.sent) < CARRIED:
            assert await relay.run_once()
        await backlog(office, "busy", 1, 20)
        held = await cost_of_a_look(office)
        # Once to find the shards, once to find their keys; and the index itself has grown.
        assert short + 20 < held < short + 2.1 * CARRIED
        assert holder.execute("SELECT count(*) FROM postroad_outbox WHERE state = 'NEW'").fetchone() == (CARRIED,)
    await office.store.looks.run("VACUUM", {}, binary=False)
    assert await cost_of_a_look(office) < 1.5 * short + 20
    await office.run("DELETE FROM {delivery}")


async def cost_of_a_scrape(office: Office) -> int:
    """Of all that metrics ask of the outbox."""
    counting = await cost(office, "outbox_due_count", now=office.store.clock.now(), most=MOST)
    counting += await cost(office, "outbox_held_count", most=MOST)
    if not office.table.append_only:
        counting += await cost(office, "outbox_oldest", now=office.store.clock.now(), most=MOST)
    return counting + await cost(office, "outbox_sent_count", seconds=3_600.0, most=MOST)


@pytest.mark.spec("P16")
@pytest.mark.parametrize("layout", [None, APPEND_ONLY], ids=["in_row", "append_only"])
async def test_metrics_cost_no_more_because_a_table_or_a_backlog_has_grown(
    office: Office, layout: OutboxTable | None
) -> None:
    if layout:
        office = Office(office.store, layout)
    await backlog(office, "waiting", 1, 150)
    await backlog(office, "delayed", 1, 150)
    await backlog(office, "sent", 1, 150, "SENT")
    await backlog(office, "parked", 1, 3, "FAILED")
    short = await cost_of_a_scrape(office)
    await backlog(office, "waiting", 151, 8_000)
    await backlog(office, "delayed", 151, 8_000)
    await backlog(office, "sent", 151, 8_000, "SENT")
    # With two tables, a database may look up the fact of each row that is counted, in an index of three levels.
    assert await cost_of_a_scrape(office) < 2.2 * short + (3 * MOST + 20 if layout else 20)
    await office.run("DELETE FROM {delivery}")


async def failures(office: Office, kind: str, first: int, last: int, next_retry_at: str, processed_at: str) -> None:
    dialect = office.store.dialect
    numbers, new_id = NUMBERS[dialect].format(first=first, last=last), NEW_ID[dialect].format(key=kind)
    await office.run(
        "INSERT INTO postroad_inbox (consumer_group, event_id, event_type, status, retry_count, next_retry_at, "
        f"processed_at) SELECT 'weighers', {new_id}, 'x.y', 2, 3, {next_retry_at}, {processed_at} FROM {numbers}"
    )


@pytest.mark.spec("P16")
async def test_what_was_refused_hides_no_failure_and_costs_nothing(office: Office) -> None:
    """It is never removed, so one day there is more of it than anybody counts."""

    async def scraped() -> int:
        return await cost(office, "inbox_failed_count", group="weighers", most=MOST)

    await failures(office, "f", 1, 3, "NULL", "NULL")
    await failures(office, "a", 1, 150, "'2026-01-01 00:00:00'", "NULL")
    await failures(office, "b", 1, 150, "NULL", "'2026-01-01 00:00:00'")
    short = await scraped()
    await failures(office, "a", 151, 8_000, "'2026-01-01 00:00:00'", "NULL")
    await failures(office, "b", 151, 8_000, "NULL", "'2026-01-01 00:00:00'")
    assert await scraped() < 2.2 * short + 20
    rows = (await office.store.read("inbox_failed_count", group="weighers", most=MOST)).rows
    assert {row.state: row.records for row in rows} == {"failed": 3, "waiting": MOST}
    await office.run("DELETE FROM postroad_inbox")
