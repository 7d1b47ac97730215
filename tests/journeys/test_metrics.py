"""What a running service tells of itself, on each database: counters of its own, gauges from database and broker."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from postroad import Backoff, Postroad, RelayOptions, SubscriberOptions
from postroad.brokers.base import Depth, Refused
from postroad.errors import BusinessError, PoisonError, UnsupportedByBroker
from postroad.presence import Presence
from postroad.stores import open_store
from postroad.telemetry import Meter
from postroad.telemetry.telemetry import Telemetry
from postroad.testing import FaultyBroker, FaultyStore
from tests.support.databases import plain_mariadb_user
from tests.support.telemetry import TOPIC, Scrape, Weighed, eventually, fresh, run_sql, weigh

SUBSCRIPTION = f"{TOPIC}.scales"


class Scales:
    """A service whose handler fails as the grams tell it."""

    def __init__(self, road: Postroad) -> None:
        self.road, self.telemetry = road, Telemetry(road)
        self.seen: list[int] = []
        self.holding, self.go_on = asyncio.Event(), asyncio.Event()
        road.on(Weighed, group="scales")(self.handle)

    async def handle(self, event: Weighed, session: AsyncSession) -> None:
        self.seen.append(event.grams)
        if event.grams == 1 and self.seen.count(1) == 1:
            raise RuntimeError("once")
        if event.grams == 13:
            raise PoisonError("unlucky")
        if event.grams == 14:
            raise BusinessError("no")
        if event.grams == 99:
            self.holding.set()
            await self.go_on.wait()


def made(database_url: str, broker: str) -> Scales:
    options = SubscriberOptions(backoff=Backoff(attempts=3, base=0.01))
    return Scales(Postroad("post", database_url, broker, subscriber=options, relay=RelayOptions(poll=0.05)))


@pytest.fixture
async def scales(database_url: str, tmp_path: Path) -> AsyncIterator[Scales]:
    scales = made(database_url, f"embedded:{tmp_path}/broker.db")
    async with scales.road:
        await scales.road.migrate()
        yield scales


@pytest.fixture
async def small(sqlite_url: str, tmp_path: Path) -> AsyncIterator[Scales]:
    scales = made(sqlite_url, f"embedded:{tmp_path}/broker.db")
    async with scales.road:
        await scales.road.migrate()
        yield scales


@pytest.mark.spec("P16", "F13", "T10", "G10")
async def test_a_service_tells_what_it_sent_handled_and_failed_at(scales: Scales) -> None:
    road = scales.road
    async with road.running():
        await weigh(road, *(Weighed(str(n), n) for n in (1, 2, 3, 13, 14)))
        await road.drain()
        told = await fresh(scales.telemetry)
    of_group = {"group": "scales"}
    assert told("outbox_publish_success_total", topic=TOPIC) == 5
    assert told("outbox_publish_attempts_total", topic=TOPIC) == 5
    assert told("outbox_publish_latency_count", topic=TOPIC) == 5
    assert told("events_by_type", event_type="parcel.weighed") == 5
    assert told("outbox_pending_count") == told("outbox_max_delivery_attempts") == 0
    assert told("pending_outbox") == told("failed_outbox") == 0
    assert told("outbox_oldest_unsent_age") == 0
    assert told("events_per_hour") == 5
    assert told("avg_publish_delay") is not None
    assert told("relay_shards_owned") == 256
    assert told("outbox_shards_without_owner") == 0
    assert told("relay_breaker_open", topic=TOPIC) == 0
    assert told("relays_alive") == told("workers_alive", **of_group) == 1
    assert told("projection_process_success_total", event_type="parcel.weighed", **of_group) == 3
    assert told("projection_process_error_total", event_type="parcel.weighed", **of_group) == 3
    assert told("projection_process_latency_count", **of_group) == 3
    assert told("projection_version_lag", **of_group) == 0  # each has an aggregate of its own
    assert told("subscription_settled_total", verdict="ack", **of_group) == 4
    assert told("subscription_settled_total", verdict="nack", **of_group) == 1
    assert told("subscription_settled_total", verdict="dead", **of_group) == 1
    assert told("dlq_message_count", topic=TOPIC) == 1
    assert told("consume_failed_count", state="failed", **of_group) == 1
    assert told("consume_failed_count", state="waiting", **of_group) == 0
    assert told("consume_max_retry_count", **of_group) == 1
    assert told("consume_retry_limit", **of_group) == 3
    assert told("subscription_num_undelivered_messages", subscription=SUBSCRIPTION) == 0
    assert told("subscription_oldest_unacked_message_age", subscription=SUBSCRIPTION) == 0
    assert told("subscriber_lane_depth", **of_group) == 0
    assert told("postroad_database_up") == told("postroad_broker_up") == 1


@pytest.mark.spec("P16", "T10")
async def test_what_waits_is_parked_or_has_failed_is_counted_in_the_database(scales: Scales) -> None:
    road = scales.road
    await weigh(road, *(Weighed(str(n), n) for n in range(4)))
    await run_sql(road, "UPDATE postroad_outbox SET state = 'FAILED' WHERE aggregate_id = '0'")
    await run_sql(road, "UPDATE postroad_outbox SET state = 'RETRY' WHERE aggregate_id = '1'")
    await run_sql(road, "UPDATE postroad_outbox SET occurred_at = '2026-01-01 00:00:00' WHERE aggregate_id = '2'")
    road.runners.add(road.runner(groups=()))
    told = await fresh(scales.telemetry)
    assert told("outbox_pending_count", outbox="postroad_outbox") == told("pending_outbox") == 3
    assert told("outbox_max_delivery_attempts", outbox="postroad_outbox") == told("failed_outbox") == 1
    assert (told("outbox_oldest_unsent_age") or 0) > 86_400
    assert told("outbox_shards_without_owner") == 256
    assert told("relays_alive") == 0


async def test_a_transaction_that_holds_back_the_removal_of_old_rows_is_seen(scales: Scales, database_url: str) -> None:
    road = scales.road
    road.runners.add(road.runner(groups=()))
    other = open_store(database_url)
    async with other.session() as holder, holder.begin():
        await holder.execute(text("SELECT count(*) FROM postroad_inbox"))
        if database_url.startswith("postgresql"):
            # In READ COMMITTED a snapshot goes with its statement; a transaction that has written keeps one.
            await holder.execute(text("CREATE TABLE held (n int)"))

        def is_seen(told: Scrape) -> bool:
            return (told("oldest_snapshot_age") or 0) > 1

        if road.store.one_writer:
            told = await fresh(scales.telemetry)
            assert told("oldest_snapshot_age") is None
        else:
            told = await eventually(scales.telemetry, is_seen)
        assert told("postroad_database_up") == 1
    await other.aclose()


async def test_a_user_who_may_not_see_others_transactions_reads_the_rest(
    fresh_mariadb_url: str, tmp_path: Path
) -> None:
    async with made(fresh_mariadb_url, f"embedded:{tmp_path}/admin.db").road as admin:
        await admin.migrate()
    with plain_mariadb_user(fresh_mariadb_url) as (url, _):
        async with made(url, f"embedded:{tmp_path}/broker.db").road as road:
            road.runners.add(road.runner(groups=()))
            told = await fresh(Telemetry(road))
    assert told("oldest_snapshot_age") is None
    assert told("postroad_database_up") == 1


async def test_a_worker_that_stopped_is_told_by_a_process_that_lives(
    scales: Scales, database_url: str, tmp_path: Path
) -> None:
    """With the only worker everything that it told of itself is gone."""

    async def alive() -> float | None:
        return (await fresh(scales.telemetry))("workers_alive", group="scales")

    worker = made(database_url, f"embedded:{tmp_path}/broker.db").road
    async with worker, scales.road.running(groups=()):
        async with worker.running(relay=False):
            await eventually(scales.telemetry, lambda told: told("workers_alive", group="scales") == 1)
        assert await alive() == 0
        killed = Presence(worker.store, "scales", clock=worker.clock, randomness=worker.randomness)
        await killed.run_once()
        assert await alive() == 1
        await run_sql(worker, "UPDATE postroad_worker SET seen_at = '2026-01-01 00:00:00' WHERE kind = 'worker'")
        assert await alive() == 0


async def test_a_backlog_longer_than_what_is_looked_at_hides_nothing_that_stands_still(
    scales: Scales, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.telemetry.reading.MOST_COUNTED", 3)
    road = scales.road
    await weigh(road, *(Weighed(str(n), n) for n in range(9)))
    await run_sql(road, "UPDATE postroad_outbox SET shard = 1")
    await run_sql(road, "UPDATE postroad_outbox SET state = 'FAILED', shard = 255, occurred_at = '2026-01-01 00:00:00'"
                        " WHERE aggregate_id = '0'")  # fmt: skip
    await run_sql(road, "UPDATE postroad_outbox SET state = 'RETRY', shard = 254 WHERE aggregate_id = '1'")
    road.runners.add(road.runner(groups=()))
    told = await fresh(scales.telemetry)
    assert told("outbox_pending_count") == 3
    assert told("outbox_max_delivery_attempts") == told("failed_outbox") == 1
    assert (told("outbox_oldest_unsent_age") or 0) > 86_400
    await run_sql(road, "UPDATE postroad_outbox SET shard = 255, occurred_at = '2016-01-01 00:00:00'"
                        " WHERE aggregate_id = '2'")  # fmt: skip
    assert ((await fresh(scales.telemetry))("outbox_oldest_unsent_age") or 0) > 10 * 365 * 86_400


async def test_a_process_that_only_reads_misses_no_relay(scales: Scales) -> None:
    """Nobody writes there. Something that waits needs one; and where one has been, it is missed."""
    road = scales.road
    async with road.running(relay=False):
        told = await eventually(scales.telemetry, lambda told: told("workers_alive") == 1)
        assert told("relays_alive") is None
        await weigh(road, Weighed("7", 2))
        assert (await fresh(scales.telemetry))("relays_alive") == 0
        async with road.running(groups=()):
            await road.drain()
            assert (await fresh(scales.telemetry))("relays_alive") == 1
        assert (await fresh(scales.telemetry))("relays_alive") == 0


async def test_many_delayed_events_hide_no_backlog(scales: Scales, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the broker cannot delay they stay here, perhaps for weeks, and are older than most of what waits."""
    monkeypatch.setattr("postroad.telemetry.reading.MOST_COUNTED", 5)
    monkeypatch.setattr("postroad.telemetry.reading._FIRST", 5)
    road = scales.road
    async with road.session() as session, session.begin():
        for n in range(20):
            road.add(session, Weighed(str(n), n), delay=3600)
    await run_sql(road, "UPDATE postroad_outbox SET occurred_at = '2026-01-01 00:00:00', shard = 1")
    await weigh(road, *(Weighed(str(n), n) for n in range(20, 24)))
    await run_sql(road, "UPDATE postroad_outbox SET occurred_at = '2026-02-01 00:00:00' WHERE deliver_at IS NULL")
    road.runners.add(road.runner(groups=()))
    told = await fresh(scales.telemetry)
    assert told("outbox_pending_count") == 4
    assert (told("outbox_oldest_unsent_age") or 0) > 86_400


async def test_a_delayed_event_is_no_backlog_before_its_time(small: Scales) -> None:
    road = small.road
    async with road.session() as session, session.begin():
        road.add(session, Weighed("7", 2), delay=3600)
    await run_sql(road, "UPDATE postroad_outbox SET occurred_at = '2026-01-01 00:00:00'")
    road.runners.add(road.runner(groups=()))
    told = await fresh(small.telemetry)
    assert told("outbox_pending_count") == told("pending_outbox") == told("outbox_oldest_unsent_age") == 0


@pytest.mark.parametrize(("depth", "age"), [(Depth(3, 2, None), None), (Depth(2, 2, None), 0), (Depth(0, 0, None), 0)])
async def test_an_age_that_nobody_knows_has_no_value(
    small: Scales, monkeypatch: pytest.MonkeyPatch, depth: Depth, age: float | None
) -> None:
    """A quorum queue without management tells how many wait, and not since when. 0 would look like none."""

    async def estimate(_: str) -> Depth:
        return depth

    async with small.road.running(relay=False):
        monkeypatch.setattr(small.road.broker, "estimate", estimate)
        told = await fresh(small.telemetry)
        monkeypatch.undo()
    assert told("subscription_num_undelivered_messages", subscription=SUBSCRIPTION) == depth.messages
    assert told("subscription_oldest_unacked_message_age", subscription=SUBSCRIPTION) == age


async def test_a_handler_that_takes_long_is_seen(fresh_postgresql_url: str, tmp_path: Path) -> None:
    scales = made(fresh_postgresql_url, f"embedded:{tmp_path}/broker.db")
    await scales.road.migrate()
    async with scales.road as road, road.running():
        await weigh(road, Weighed("7", 99), *(Weighed("7", n) for n in range(2, 6)))
        await scales.holding.wait()

        def all_arrived(told: Scrape) -> bool:
            return told("subscription_num_undelivered_messages", subscription=SUBSCRIPTION) == 5

        told = await eventually(scales.telemetry, all_arrived)
        assert (told("handler_running_seconds", group="scales") or 0) > 0
        assert (told("subscription_oldest_unacked_message_age", subscription=SUBSCRIPTION) or 0) > 0
        scales.go_on.set()
        await road.drain()
        # The last one is committed a moment before it is settled.
        await eventually(scales.telemetry, lambda told: told("handler_running_seconds", group="scales") == 0)


@pytest.mark.spec("F13", "P16")
async def test_a_projection_that_missed_versions_is_seen(small: Scales) -> None:
    road = small.road
    async with road.running():
        for version in (1, 2, 20):
            async with road.session() as session, session.begin():
                road.add(session, Weighed("7", version + 1), version=version)
        await road.drain()
        assert (await fresh(small.telemetry))("projection_version_lag", group="scales") == 18
        assert (await fresh(small.telemetry))("projection_version_lag", group="scales") == 0


@pytest.mark.spec("F13")
async def test_refusals_are_counted_with_the_pause_that_follows(small: Scales) -> None:
    road = small.road
    real = road.broker.send
    refused = asyncio.Event()

    async def refuse(batch):  # type: ignore[no-untyped-def]
        if not refused.is_set():
            refused.set()
            return [Refused("too heavy")] * len(batch)
        return await real(batch)

    road.broker.send = refuse  # type: ignore[method-assign]
    road.relay_options = RelayOptions(poll=0.05, backoff=Backoff(attempts=3, base=0.01))
    async with road.running():
        await weigh(road, Weighed("7", 2))
        await road.drain()
        told = await fresh(small.telemetry)
    assert told("outbox_publish_error_total", topic=TOPIC) == 1
    assert told("outbox_publish_success_total", topic=TOPIC) == 1
    assert told("outbox_publish_attempts_total", topic=TOPIC) == 2
    assert told("outbox_retry_interval_count", topic=TOPIC) == 1
    assert told("outbox_retry_interval_sum", topic=TOPIC) == pytest.approx(0.01)


async def test_the_same_event_twice_is_a_duplicate_absorbed(small: Scales) -> None:
    road = small.road
    async with road.running():
        await weigh(road, Weighed("7", 2))
        await road.drain()
        await run_sql(road, "UPDATE postroad_outbox SET state = 'NEW', published_at = NULL")
        await road.drain()
        told = await fresh(small.telemetry)
    assert told("inbox_duplicates_total", group="scales") == 1
    assert told("projection_process_success_total", group="scales") == 1


async def test_what_cannot_be_read_has_no_value_and_the_rest_is_served(small: Scales) -> None:
    """A number of yesterday would look like a healthy one."""
    road = small.road
    broker = FaultyBroker(road.broker)
    store = FaultyStore(road.store)
    road.broker, road.store = broker, store  # type: ignore[misc]
    async with road.running():
        await weigh(road, Weighed("7", 2))
        await road.drain()
        assert (await fresh(small.telemetry))("outbox_pending_count") == 0
        broker.down = store.down = True
        told = await fresh(small.telemetry)
        broker.down = store.down = False
    assert told("postroad_database_up") == told("postroad_broker_up") == 0
    assert told("outbox_pending_count") is None
    assert told("subscription_num_undelivered_messages") is None
    assert told("outbox_publish_success_total") == 1


@pytest.mark.spec("P16")
async def test_a_broker_that_cannot_count_is_not_down(small: Scales, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pub/Sub in the cloud tells no depth. Its dead letters are counted all the same."""

    async def depth(_: str) -> None:
        raise UnsupportedByBroker("faraway", "depth")

    async def estimate(_: str) -> None:
        return None

    road = small.road
    async with road.running():
        await weigh(road, Weighed("7", 13))
        await road.drain()
        monkeypatch.setattr(road.broker, "depth", depth)
        monkeypatch.setattr(road.broker, "estimate", estimate)
        told = await fresh(small.telemetry)
        monkeypatch.undo()
    assert told("postroad_broker_up") == 1
    assert told("subscription_num_undelivered_messages") is None
    assert told("dlq_message_count", topic=TOPIC) == 1


async def test_an_outage_of_the_broker_shows_in_the_breaker(small: Scales) -> None:
    road = small.road
    broker = FaultyBroker(road.broker)
    road.broker = broker  # type: ignore[misc]
    async with road.running():
        broker.down = True
        await weigh(road, Weighed("7", 2))
        await eventually(small.telemetry, lambda told: told("relay_breaker_open", topic=TOPIC) == 1)
        assert (await fresh(small.telemetry))("relay_outages_total") == 1
        broker.down = False
        await road.drain()
        assert (await fresh(small.telemetry))("relay_breaker_open", topic=TOPIC) == 0


@pytest.mark.spec("G10")
async def test_other_parts_set_gauges_of_their_own_when_asked(small: Scales) -> None:
    async def commands(gauges: Meter) -> None:
        gauges.set("pending_commands", 3)
        gauges.set("commands_by_type", 2, "Command.Genesis.Session.Start")

    small.road.sources.append(commands)
    told = await fresh(small.telemetry)
    assert told("pending_commands") == 3
    assert told("commands_by_type", command_type="Command.Genesis.Session.Start") == 2


async def test_many_who_ask_at_once_cost_the_database_no_more_than_one(small: Scales) -> None:
    asked = 0

    async def source(_: Meter) -> None:
        nonlocal asked
        asked += 1

    small.road.sources.append(source)
    await asyncio.gather(*(small.telemetry.metrics() for _ in range(20)))
    assert asked == 1


async def test_without_telemetry_nothing_is_counted(sqlite_url: str, tmp_path: Path) -> None:
    async with Postroad("post", sqlite_url, f"embedded:{tmp_path}/broker.db") as road:
        assert road.meter is None
        await road.migrate()
        async with road.running(groups=()):
            await weigh(road, Weighed("7", 2))
        assert road.meter is None


async def test_failures_are_counted_from_0_so_that_the_first_of_them_are_a_rise(small: Scales) -> None:
    async with small.road.running():
        told = await fresh(small.telemetry)
    assert told("outbox_publish_error_total", topic=TOPIC) == 0
    assert told("projection_process_error_total", group="scales", event_type="parcel.weighed") == 0


# -- other brokers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("broker", ["kafka_url", "pubsub_url"])
@pytest.mark.spec("P16", "G10")
async def test_depth_and_dead_letters_come_from_the_broker(
    fresh_postgresql_url: str, broker: str, request: pytest.FixtureRequest
) -> None:
    scales = made(fresh_postgresql_url, request.getfixturevalue(broker))
    async with scales.road as road:
        await road.migrate()
        async with road.running():
            await weigh(road, Weighed("1", 13), Weighed("2", 99))
            await scales.holding.wait()
            await weigh(road, Weighed("2", 3), Weighed("2", 4))

            def all_counted(told: Scrape) -> bool:
                waiting = told("subscription_num_undelivered_messages", subscription=SUBSCRIPTION)
                return (waiting, told("dlq_message_count", topic=TOPIC)) == (3, 1)

            told = await eventually(scales.telemetry, all_counted)
            assert (told("subscription_oldest_unacked_message_age", subscription=SUBSCRIPTION) or 0) > 0
            scales.go_on.set()
            await road.drain()


# -- RabbitMQ ----------------------------------------------------------------------------------------------


@pytest.mark.spec("R12", "P16")
async def test_depth_rates_and_dead_letters_come_from_rabbitmqs_management(
    fresh_postgresql_url: str, rabbitmq_url: str
) -> None:
    scales = made(fresh_postgresql_url, rabbitmq_url)
    async with scales.road as road:
        await road.migrate()
        async with road.running():
            await weigh(road, Weighed("1", 13), Weighed("2", 99))
            await scales.holding.wait()
            await weigh(road, Weighed("2", 3), Weighed("2", 4))

            def all_counted(told: Scrape) -> bool:
                waiting = told("subscription_num_undelivered_messages", subscription=SUBSCRIPTION)
                return (waiting, told("dlq_message_count", topic=TOPIC)) == (3, 1)

            await eventually(scales.telemetry, all_counted)
            scales.go_on.set()
            await road.drain()
            told = await fresh(scales.telemetry)
            assert told("subscription_settled_total", group="scales", verdict="ack") == 3
            assert told("subscription_settled_total", group="scales", verdict="dead") == 1
            rates = dict.fromkeys(("publish", "ack"), 0.0)
            async with asyncio.timeout(60):
                while not all(rates.values()):  # they are of the last second
                    await weigh(road, Weighed("3", 2))
                    told = await fresh(scales.telemetry)
                    for kind in rates:
                        rate = told("subscription_message_rate", subscription=SUBSCRIPTION, kind=kind)
                        rates[kind] = max(rates[kind], rate or 0.0)
            for kind in ("publish", "deliver", "ack", "redeliver"):
                assert told("subscription_message_rate", subscription=SUBSCRIPTION, kind=kind) is not None
