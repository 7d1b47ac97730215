"""Outbox tables that were there before us: planned, altered, written by both sides, carried in order."""

import asyncio
import json
from collections.abc import AsyncIterator
from uuid import uuid4

import msgspec
import pytest

from postroad.errors import ConfigurationError
from postroad.events import event
from postroad.message import parse_id
from postroad.operations import retry_events
from postroad.relay import Pruner
from postroad.retry import Backoff
from postroad.stores import migrations, open_store
from postroad.stores.adopt import AdoptionPlan, apply_adoption, plan_adoption
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable
from postroad.testing import FaultyBroker
from postroad.testing.office import Office

TOPIC = "shop.order.events"

CATALOG = """CREATE TABLE catalog.outbox_events (
  event_id UUID PRIMARY KEY,
  aggregate_type TEXT NOT NULL,
  aggregate_id UUID NOT NULL,
  event_type TEXT NOT NULL,
  version BIGINT NOT NULL,
  payload BYTEA NOT NULL,
  headers JSONB NOT NULL DEFAULT '{}',
  occurred_at TIMESTAMPTZ NOT NULL DEFAULT now(),
  published_at TIMESTAMPTZ,
  delivery_attempts INT NOT NULL DEFAULT 0,
  last_error TEXT,
  available_at TIMESTAMPTZ NOT NULL DEFAULT now())"""
FRAMEWORK = """CREATE TABLE app_outbox (
  id               uuid PRIMARY KEY,
  aggregate_type   text        NOT NULL,
  aggregate_id     text        NOT NULL,
  event_type       text        NOT NULL,
  version          bigint      NOT NULL,
  schema_version   int         NOT NULL DEFAULT 1,
  payload          bytea       NOT NULL,
  occurred_at      timestamptz NOT NULL DEFAULT now(),
  published_at     timestamptz,
  publish_attempts int         NOT NULL DEFAULT 0,
  next_retry_at    timestamptz,
  lock_token       text,
  locked_at        timestamptz)"""
MINIMAL = """CREATE TABLE app_outbox (
  id               uuid        PRIMARY KEY,
  aggregatetype    text        NOT NULL,
  aggregateid      text        NOT NULL,
  event_type       text        NOT NULL,
  version          bigint      NOT NULL,
  payload          jsonb       NOT NULL,
  occurred_at      timestamptz NOT NULL DEFAULT now(),
  published_at     timestamptz,
  publish_attempts int         NOT NULL DEFAULT 0,
  next_retry_at    timestamptz,
  lock_token       text,
  locked_at        timestamptz)"""
DEBEZIUM = """CREATE TABLE outbox (
  id            uuid         NOT NULL PRIMARY KEY,
  aggregatetype varchar(255) NOT NULL,
  aggregateid   varchar(255) NOT NULL,
  type          varchar(255) NOT NULL,
  payload       jsonb)"""
MARKETPLACE = """CREATE TABLE outbox_events (
  id              BIGINT NOT NULL PRIMARY KEY,
  event_id        VARCHAR(64) NOT NULL UNIQUE,
  event_type      VARCHAR(64) NOT NULL,
  aggregate_type  VARCHAR(64) NOT NULL,
  aggregate_id    BIGINT NOT NULL,
  payload         TEXT NOT NULL,
  status          VARCHAR(16) NOT NULL,
  retry_count     INT NOT NULL DEFAULT 0,
  next_retry_time DATETIME NULL,
  create_time     DATETIME NOT NULL,
  update_time     DATETIME NOT NULL,
  KEY idx_status_time (status, next_retry_time),
  KEY idx_aggregate (aggregate_type, aggregate_id)) COLLATE utf8mb4_unicode_ci"""
LITE = """CREATE TABLE outbox (
  id TEXT PRIMARY KEY,
  aggregatetype TEXT NOT NULL, aggregateid TEXT NOT NULL, type TEXT NOT NULL, payload TEXT)"""

SEEDS = {
    "catalog": ("postgresql", CATALOG),
    "framework": ("postgresql", FRAMEWORK),
    "minimal": ("postgresql", MINIMAL),
    "debezium": ("postgresql", DEBEZIUM),
    "marketplace": ("mariadb", MARKETPLACE),
    "lite": ("sqlite", LITE),
}


@event("order.noted", topic=TOPIC, aggregate="order", key="order")
class Noted(msgspec.Struct, frozen=True):
    """Of the same aggregate as the foreign rows."""

    order: str


@pytest.fixture(params=[pytest.param(name, id=f"{kind}-{name}") for name, (kind, _) in SEEDS.items()])
def seed(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store_kind(seed: str) -> str:
    return SEEDS[seed][0]


@pytest.fixture
async def fresh(database_url: str) -> AsyncIterator[Store]:
    store = open_store(database_url)
    yield store
    await store.aclose()


async def create(store: Store, ddl: str) -> str:
    name = ddl.split()[2]
    async with store.transaction() as connection:
        if "." in name:
            await connection.exec_driver_sql(f"CREATE SCHEMA {name.split('.')[0]}")
        await connection.exec_driver_sql(ddl)
    return name


class ForeignProgram:
    """Inserts as the table's first owner does: only the columns he knows."""

    def __init__(self, store: Store, ddl: str, aggregate: str) -> None:
        self.store, self.ddl, self.aggregate = store, ddl, aggregate
        self.table = ddl.split()[2]
        self.written = 0

    async def write(self, version: int | None = None, *, published: bool = False) -> str:
        self.written += 1
        known = self.ddl.split("\n", 1)[1]
        event_id = str(uuid4())
        row: dict[str, str] = {"payload": json.dumps({"order_id": self.aggregate, "n": self.written})}
        row["event_id" if "event_id" in known else "id"] = event_id
        row["event_type" if "event_type" in known else "type"] = "order.placed"
        row["aggregate_type" if "aggregate_type" in known else "aggregatetype"] = "order"
        row["aggregate_id" if "aggregate_id" in known else "aggregateid"] = self.aggregate
        if "version " in known.replace("schema_version", ""):
            row["version"] = str(version if version is not None else self.written)
        if "create_time" in known:
            row |= {
                "status": "NEW",
                "create_time": "2025-01-01 00:00:00",
                "update_time": "2025-01-01 00:00:00",
            }
            row["id"] = str(1_000 * self.written)
        if published:
            row["published_at"] = "2025-01-01 00:00:00"
        async with self.store.transaction() as connection:
            names, values = ", ".join(row), ", ".join(f"'{value}'" for value in row.values())
            await connection.exec_driver_sql(f"INSERT INTO {self.table} ({names}) VALUES ({values})")
        return event_id


@pytest.mark.spec("F3", "R14")
async def test_an_adopted_table_is_carried_in_order_whoever_wrote_it(fresh: Store, seed: str) -> None:
    ddl = SEEDS[seed][1]
    aggregate = str(uuid4()) if seed == "catalog" else "4711"
    program = ForeignProgram(fresh, ddl, aggregate)
    await create(fresh, ddl)
    before = [await program.write(), await program.write()]
    plan = await plan_adoption(fresh, program.table)
    await apply_adoption(fresh, plan)
    office = office_for(fresh, plan)
    assert await migrations.pending(fresh, [office.table]) == []

    relay = office.relay()
    while await relay.run_once():
        pass
    assert [str(message.id) for message in office.broker.sent] == before
    foreign = [await program.write(), await program.write()]
    while await relay.run_once():
        pass
    ours = await post(office, aggregate)
    while await relay.run_once():
        pass
    last = await program.write(6)
    while await relay.run_once():
        pass
    ours += await post(office, aggregate)
    while await relay.run_once():
        pass
    assert [str(message.id) for message in office.broker.sent] == [*before, *foreign, ours[0], last, ours[1]]
    assert [message.version for message in office.broker.sent] == [1, 2, 3, 4, 5, 6, 7]
    assert {message.topic for message in office.broker.sent[:2]} == {TOPIC}
    assert json.loads(office.broker.sent[0].payload) == {"order_id": aggregate, "n": 1}
    assert set(await office.states()) == {"SENT"}
    office.outbox.close()


def office_for(store: Store, plan: AdoptionPlan) -> Office:
    fields = {name: getattr(plan.outbox, name) for name in ("columns", "payload", "ids", "arrival")}
    return Office(store, OutboxTable(plan.outbox.name, topic=TOPIC, **fields))


async def post(office: Office, aggregate: str) -> list[str]:
    async with office.store.session() as session, session.begin():
        return [str(office.outbox.add(session, Noted(aggregate)).id)]


async def test_planning_again_has_nothing_to_do(fresh: Store, seed: str) -> None:
    name = await create(fresh, SEEDS[seed][1])
    plan = await plan_adoption(fresh, name)
    assert plan.statements
    await apply_adoption(fresh, plan)
    again = await plan_adoption(fresh, name)
    assert (again.statements, again.outbox) == ([], plan.outbox)
    assert eval(again.python, {"OutboxTable": OutboxTable}).columns == plan.outbox.columns  # noqa: S307


@pytest.mark.parametrize("seed", ["framework"])
async def test_what_the_old_publisher_sent_is_not_sent_again(fresh: Store, seed: str) -> None:
    await create(fresh, FRAMEWORK)
    program = ForeignProgram(fresh, FRAMEWORK, "1")
    await program.write(published=True)
    await program.write()
    plan = await plan_adoption(fresh, "app_outbox")
    await apply_adoption(fresh, plan)
    office = office_for(fresh, plan)
    await office.carry()
    assert [message.version for message in office.broker.sent] == [2]
    office.outbox.close()


@pytest.mark.parametrize("seed", ["framework"])
async def test_a_column_of_a_type_of_its_own_is_read_as_its_text(fresh: Store, seed: str) -> None:
    await create(fresh, "CREATE TYPE kind AS ENUM ('order.placed', 'order.paid')")
    await create(fresh, FRAMEWORK.replace("event_type       text", "event_type       kind"))
    plan = await plan_adoption(fresh, "app_outbox")
    await apply_adoption(fresh, plan)
    async with fresh.transaction() as connection:
        await connection.exec_driver_sql(
            "INSERT INTO app_outbox (id, aggregate_type, aggregate_id, event_type, version, payload)"
            f" VALUES ('{uuid4()}', 'order', '1', 'order.paid', 1, '{{}}')"
        )
    office = office_for(fresh, plan)
    await office.carry()
    assert [message.type for message in office.broker.sent] == ["order.paid"]
    office.outbox.close()


@pytest.mark.parametrize("seed", ["framework"])
async def test_foreign_rows_of_one_key_keep_their_order_when_two_relays_look(fresh: Store, seed: str) -> None:
    await create(fresh, FRAMEWORK)
    plan = await plan_adoption(fresh, "app_outbox")
    await apply_adoption(fresh, plan)
    office = office_for(fresh, plan)
    first, second = office.relay(), office.relay()
    await first.leases.keep()
    await second.leases.keep()
    await first.leases.keep()
    await second.leases.keep()
    await ForeignProgram(fresh, FRAMEWORK, "1").write()
    # Only one of them, the holder of shard 0, sorts in what others wrote.
    assert 0 not in second.leases.epochs
    assert await second._adoption.run_once(second.leases.token) == 0
    assert await first._adoption.run_once(first.leases.token) == 1
    office.outbox.close()


@pytest.mark.parametrize("seed", ["marketplace"])
async def test_ids_of_any_form_are_marked_as_they_are(fresh: Store, seed: str) -> None:
    await create(fresh, MARKETPLACE)
    ids = ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "EVT-2025-000017", str(uuid4()).upper(), uuid4().hex]
    async with fresh.transaction() as connection:
        for number, event_id in enumerate(ids, 1):
            await connection.exec_driver_sql(
                "INSERT INTO outbox_events (id, event_id, event_type, aggregate_type, aggregate_id, payload,"
                f" status, create_time, update_time) VALUES ({number}, '{event_id}', 'ORDER_PAID', 'order',"
                " 1, '{}', 'NEW', '2025-01-01', '2025-01-01')"
            )
    plan = await plan_adoption(fresh, "outbox_events")
    await apply_adoption(fresh, plan)
    office = office_for(fresh, plan)
    await office.carry()
    sent = [message.id for message in office.broker.sent]
    assert sent[0] == parse_id(ids[0])
    assert sent[2:] == [parse_id(ids[2]), parse_id(ids[3])]
    assert len(set(sent)) == len(sent) == 4
    assert set(await office.states()) == {"SENT"}
    office.outbox.close()


@pytest.mark.parametrize("seed", ["marketplace"])
async def test_ids_as_long_as_their_column_are_marked_retried_and_pruned(fresh: Store, seed: str) -> None:
    await create(fresh, MARKETPLACE.replace("event_id        VARCHAR(64)", "event_id        VARCHAR(255)"))
    ids = ["x" * 254 + last for last in "abc"]
    async with fresh.transaction() as connection:
        for number, event_id in enumerate(ids, 1):
            await connection.exec_driver_sql(
                "INSERT INTO outbox_events (id, event_id, event_type, aggregate_type, aggregate_id, payload,"
                f" status, create_time, update_time) VALUES ({number}, '{event_id}', 'ORDER_PAID', 'order',"
                f" {number}, '{{}}', 'NEW', '2025-01-01', '2025-01-01')"
            )
    plan = await plan_adoption(fresh, "outbox_events")
    await apply_adoption(fresh, plan)
    office = office_for(fresh, plan)
    refusing = FaultyBroker(office.broker, refuse=lambda message: "no" if message.aggregate_id == "2" else None)
    async with asyncio.timeout(60):
        relay = await office.carry(refusing, backoff=Backoff(attempts=1))
    assert (await office.states(), relay.statistics.parked) == (["SENT", "FAILED", "SENT"], 1)
    await retry_events(fresh, [office.table], [ids[1]], actor="somebody")
    await office.carry()
    assert await office.states() == ["SENT"] * 3
    assert len(office.broker.sent) == 3
    await office.run("UPDATE {delivery} SET {published_at} = '2025-01-01'")
    assert await Pruner(fresh, office.table, retention=1.0).run_once() == 3
    assert not await office.rows()
    office.outbox.close()


@pytest.mark.parametrize("seed", ["framework", "marketplace", "lite"])
async def test_a_large_backlog_of_others_is_sorted_in_batch_by_batch(
    fresh: Store, seed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in a short transaction of its own; what is sorted in is carried before the next batch comes."""
    monkeypatch.setattr("postroad.relay.adoption._AT_ONCE", 3)
    ddl = SEEDS[seed][1]
    await create(fresh, ddl)
    program = ForeignProgram(fresh, ddl, "1")
    written = [await program.write() for _ in range(7)]
    plan = await plan_adoption(fresh, program.table)
    await apply_adoption(fresh, plan)
    office = office_for(fresh, plan)
    relay = office.relay()
    carried = []
    while settled := await relay.run_once():
        carried.append(settled)
    assert carried == [3, 3, 1]
    assert [str(message.id) for message in office.broker.sent] == written
    office.outbox.close()


@pytest.mark.parametrize("seed", ["debezium"])
async def test_columns_that_cannot_serve_keep_their_name_and_ours_stand_beside_them(fresh: Store, seed: str) -> None:
    ddl = DEBEZIUM.removesuffix(")") + ", state int, attributes jsonb, ordering_key text, topic text)"
    await create(fresh, ddl)
    plan = await plan_adoption(fresh, "outbox")
    assert {"state", "attributes", "ordering_key"} <= set(plan.outbox.columns)
    assert plan.outbox.columns["state"] == "postroad_state"
    assert "topic" not in plan.outbox.columns
    await apply_adoption(fresh, plan)
    office = office_for(fresh, plan)
    await office.post("a", "a")
    await office.carry()
    assert office.broker.versions("a") == [1, 2]
    assert (await plan_adoption(fresh, "outbox")).outbox == plan.outbox
    office.outbox.close()


@pytest.mark.parametrize("seed", ["debezium"])
async def test_a_table_that_is_no_outbox_is_refused(fresh: Store, seed: str) -> None:
    with pytest.raises(ConfigurationError, match="There is no table nothing to adopt"):
        await plan_adoption(fresh, "nothing")
    await create(fresh, "CREATE TABLE numbered (id bigint PRIMARY KEY, type text, aggregatetype text, payload text)")
    with pytest.raises(ConfigurationError, match="no column for event_id, aggregate_id"):
        await plan_adoption(fresh, "numbered")


async def test_migrating_over_a_foreign_table_points_to_adoption(fresh: Store, seed: str) -> None:
    name = await create(fresh, SEEDS[seed][1])
    with pytest.raises(ConfigurationError, match=f"postroad db adopt {name}"):
        await migrations.migrate(fresh, [OutboxTable(name)])
