"""Canaries: they go the whole way, leave no trace in the business, and their absence is seen."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from postroad import Canary, Postroad, RelayOptions
from postroad.brokers.base import Schema
from postroad.cli.running import Plan, canary_of
from postroad.errors import ConfigurationError, InvalidName, InvalidSetting
from postroad.operations import Tail, dead_page, topics_of
from postroad.stores.tables import OutboxTable
from postroad.telemetry.canary import TYPE, CanaryWriter
from postroad.telemetry.meter import MOST_SERIES
from postroad.telemetry.telemetry import Telemetry
from postroad.testing import FaultyBroker, VirtualClock
from tests.support.outbox import until
from tests.support.telemetry import LABELS, TOPIC, Weighed, count_sql, eventually, fresh, run_sql, weigh

OUTBOX = "SELECT COUNT(*) FROM postroad_outbox WHERE event_type = 'postroad.canary'"
SOON = "2126-01-01 00:00:00"
OFTEN = Canary((TOPIC,), every=0.05)


def made(
    source: str, database_url: str, broker: str, canary: Canary | None, *groups: str
) -> tuple[Postroad, list[str]]:
    road = Postroad(source, database_url, broker, canary=canary, relay=RelayOptions(poll=0.02))
    seen: list[str] = []
    for group in groups:

        @road.on(Weighed, group=group)
        async def read(event: Weighed) -> None:
            seen.append(event.parcel)

    return road, seen


@pytest.fixture
async def quiet(database_url: str, tmp_path: Path) -> AsyncIterator[Postroad]:
    """Nothing runs in it but what a test starts."""
    road, _ = made("post", database_url, f"embedded:{tmp_path}/broker.db", Canary((TOPIC,)), "scales")
    async with road:
        await road.migrate()
        yield road


async def went_the_whole_way(database_url: str, broker: str) -> None:
    road, seen = made("post", database_url, broker, OFTEN, "scales", "labels")
    telemetry = Telemetry(road)
    async with road:
        await road.migrate()
        runner = road.runner()
        async with runner.started():
            await weigh(road, Weighed("7"))
            await road.drain()
            for group in ("scales", "labels"):
                await eventually(
                    telemetry, lambda told, group=group: told("canary_age_seconds", group=group) is not None
                )
            await until(lambda: all(subscriber.canaries for subscriber in runner.subscribers))
            told = await fresh(telemetry)
            age = told("canary_age_seconds", topic=TOPIC, group="scales", source="post")
            assert age is not None
            assert age < 60
            assert seen == ["7", "7"]
            assert {subscriber.statistics.handled for subscriber in runner.subscribers} == {1}
            assert {subscriber.statistics.acked for subscriber in runner.subscribers} == {1}
            assert told("outbox_publish_success_total") == told("events_by_type") == 1
        assert await count_sql(road, "SELECT COUNT(*) FROM postroad_inbox") == 2
        assert await dead_page(road.broker, [TOPIC], limit=10) == []


async def test_a_canary_reaches_every_group_and_no_handler_record_or_count(database_url: str, tmp_path: Path) -> None:
    await went_the_whole_way(database_url, f"embedded:{tmp_path}/broker.db")


async def test_a_canary_crosses_every_broker(sqlite_url: str, observed_broker_url: str) -> None:
    await went_the_whole_way(sqlite_url, observed_broker_url)


async def test_another_services_canaries_are_told_by_their_source_and_not_buried(tmp_path: Path) -> None:
    broker = f"embedded:{tmp_path}/broker.db"
    ours, _ = made("post", f"sqlite:///{tmp_path}/post.db", broker, OFTEN, "scales")
    theirs, _ = made("office", f"sqlite:///{tmp_path}/office.db", broker, None, "labels")
    telemetry = Telemetry(theirs)
    async with ours, theirs:
        await ours.migrate()
        await theirs.migrate()
        async with theirs.running(), ours.running():
            await eventually(telemetry, lambda told: told("canary_age_seconds", source="post") is not None)
        assert await dead_page(theirs.broker, await topics_of(theirs.broker), limit=10) == []


async def test_a_relay_that_stopped_is_seen_within_a_minute(tmp_path: Path) -> None:
    """The consumer is well, and nothing tells it that it gets nothing any more."""
    clock = VirtualClock()
    url, broker = f"sqlite:///{tmp_path}/post.db", f"embedded:{tmp_path}/broker.db"
    road = Postroad("post", url, broker, canary=Canary((TOPIC,)), clock=clock)
    road.on(Weighed, group="scales")(lambda event: None)
    telemetry = Telemetry(road)
    async with road:
        await road.migrate()
        runner = road.runner(relay=False)
        road.runners.add(runner)
        clock.shift(59)
        assert ((await fresh(telemetry))("canary_age_seconds") or 0) < 60
        clock.shift(2)
        assert ((await fresh(telemetry))("canary_age_seconds") or 0) > 60
        runner.subscribers[0]._handling.canaries[TOPIC, "post"] = clock.now() - timedelta(seconds=5)
        assert (await fresh(telemetry))("canary_age_seconds", source="post") == 5


async def test_without_topics_it_flies_where_this_service_writes_and_somebody_reads(quiet: Postroad) -> None:
    writer = CanaryWriter(quiet, Canary(every=0.001))
    await quiet.broker.apply(quiet.topology)
    await writer.run_once()
    assert await count_sql(quiet, OUTBOX) == 0  # nothing has been sent yet
    await weigh(quiet, Weighed("7"))
    await run_sql(quiet, f"UPDATE postroad_outbox SET state = 'SENT', published_at = '{SOON}', topic = '{LABELS}'")
    await writer.run_once()
    assert await count_sql(quiet, OUTBOX) == 0  # nobody reads it
    await run_sql(quiet, f"UPDATE postroad_outbox SET topic = '{TOPIC}'")
    await writer.run_once()
    assert await count_sql(quiet, f"{OUTBOX} AND aggregate_id = '{TOPIC}'") == 1
    await run_sql(quiet, "DELETE FROM postroad_outbox WHERE event_type <> 'postroad.canary'")
    await run_sql(quiet, f"UPDATE postroad_outbox SET state = 'SENT', published_at = '{SOON}', topic = 'x'")
    await asyncio.sleep(0.002)
    await writer.run_once()
    assert await count_sql(quiet, OUTBOX) == 2  # for however long nothing else is written


async def test_it_does_not_fly_where_a_schema_would_refuse_it(quiet: Postroad) -> None:
    schema = Schema(TOPIC, "parcels-v1", "avro", '{"type": "string"}')
    await quiet.broker.apply(quiet.topology)
    await weigh(quiet, Weighed("7"))
    await run_sql(quiet, f"UPDATE postroad_outbox SET state = 'SENT', published_at = '{SOON}'")
    quiet.schemas = (schema,)
    await CanaryWriter(quiet, Canary()).run_once()
    assert await count_sql(quiet, OUTBOX) == 0
    with pytest.raises(InvalidSetting, match=f"canary.topics: names {TOPIC}, where the broker would refuse a canary"):
        Postroad("post", "sqlite://", schemas=[schema], canary=Canary((TOPIC,)))


async def test_a_broker_in_trouble_does_not_keep_a_canary_from_its_outbox(quiet: Postroad) -> None:
    broker = FaultyBroker(quiet.broker)
    quiet.broker = broker  # type: ignore[misc]
    await quiet.broker.apply(quiet.topology)
    writer = CanaryWriter(quiet, Canary(every=0.001))
    await weigh(quiet, Weighed("7"))
    await run_sql(quiet, f"UPDATE postroad_outbox SET state = 'SENT', published_at = '{SOON}'")
    broker.down = True
    await writer.run_once()
    assert await count_sql(quiet, OUTBOX) == 0
    broker.down = False
    await writer.run_once()
    assert await count_sql(quiet, OUTBOX) == 1


async def test_a_receiver_that_receives_nothing_any_more_is_seen(tmp_path: Path) -> None:
    """Its process lives, beats and tells of itself as ever; only canaries do not come any more."""
    road, _ = made("post", f"sqlite:///{tmp_path}/post.db", f"embedded:{tmp_path}/broker.db", None, "scales")
    road.canary = Canary(every=0.05)
    telemetry = Telemetry(road)
    async with road:
        await road.migrate()
        runner = road.runner()
        async with runner.started():
            await weigh(road, Weighed("7"))
            (subscriber,) = runner.subscribers
            await eventually(telemetry, lambda told: told("canary_age_seconds", topic=TOPIC) is not None)
            hung = asyncio.Event()
            for receiver in subscriber._receivers:
                receiver.receive = hung.wait  # type: ignore[method-assign]
            await eventually(telemetry, lambda told: (told("canary_age_seconds") or 0) > 1)
            told = await fresh(telemetry)
            assert told("workers_alive", group="scales") == 1


async def test_no_more_routes_are_told_of_than_a_table_of_metrics_takes(quiet: Postroad) -> None:
    (subscriber,) = quiet.runner(relay=False).subscribers
    message = CanaryWriter(quiet, Canary())._message(quiet.outboxes[0], TOPIC)
    for _ in range(2):  # those that are known already are heard of on
        for number in range(MOST_SERIES + 1):
            subscriber._handling._hear(msgspec.structs.replace(message, topic=f"topic.{number}"))
    assert list(subscriber.canaries) == [(f"topic.{number}", "post") for number in range(MOST_SERIES)]


async def test_a_canary_that_never_came_after_a_restart_is_missed(tmp_path: Path) -> None:
    clock = VirtualClock()
    url, broker = f"sqlite:///{tmp_path}/post.db", f"embedded:{tmp_path}/broker.db"
    road = Postroad("post", url, broker, canary=Canary(), clock=clock)
    road.on(Weighed, group="scales")(lambda event: None)
    telemetry = Telemetry(road)
    async with road:
        await road.migrate()
        road.runners.add(road.runner(relay=False))
        clock.shift(31)
        assert (await fresh(telemetry))("canary_age_seconds") is None
        await CanaryWriter(road, Canary((TOPIC,))).run_once()
        assert (await fresh(telemetry))("canary_age_seconds", topic=TOPIC, group="scales", source="post") == 31


async def test_one_that_has_not_left_is_not_followed_by_another(quiet: Postroad) -> None:
    writer = CanaryWriter(quiet, Canary((TOPIC,), every=0.001))
    for _ in range(3):
        await writer.run_once()
        await asyncio.sleep(0.002)
    assert await count_sql(quiet, OUTBOX) == 1
    await run_sql(quiet, "UPDATE postroad_outbox SET state = 'SENT', published_at = '2126-01-01 00:00:00'")
    await writer.run_once()
    assert await count_sql(quiet, OUTBOX) == 2


async def test_two_processes_write_one_canary(quiet: Postroad) -> None:
    canary = Canary((TOPIC,), every=3_600.0)
    await CanaryWriter(quiet, canary).run_once()
    await run_sql(quiet, "UPDATE postroad_outbox SET state = 'SENT', published_at = '2126-01-01 00:00:00'")
    await CanaryWriter(quiet, canary).run_once()
    assert await count_sql(quiet, OUTBOX) == 1


async def test_those_of_more_than_an_hour_ago_are_removed_and_nothing_else(quiet: Postroad) -> None:
    await weigh(quiet, Weighed("7"))
    await CanaryWriter(quiet, Canary((TOPIC,), every=0.001)).run_once()
    await run_sql(quiet, "UPDATE postroad_outbox SET state = 'SENT', published_at = '2020-01-01 00:00:00'")
    await asyncio.sleep(0.002)
    await CanaryWriter(quiet, Canary((TOPIC,), every=0.001)).run_once()
    assert await count_sql(quiet, OUTBOX) == 1
    assert await count_sql(quiet, "SELECT COUNT(*) FROM postroad_outbox WHERE state = 'NEW'") == 1
    assert await count_sql(quiet, "SELECT COUNT(*) FROM postroad_outbox WHERE event_type = 'parcel.weighed'") == 1


async def test_an_outbox_in_two_tables_is_cleared_of_them_too(database_url: str, tmp_path: Path) -> None:
    table = OutboxTable("facts", append_only=True)
    async with Postroad("post", database_url, f"embedded:{tmp_path}/broker.db", outboxes=[table]) as road:
        await road.migrate()
        writer = CanaryWriter(road, Canary((TOPIC,), every=0.001))
        await writer.run_once()
        await run_sql(road, "UPDATE facts_delivery SET state = 'SENT', published_at = '2020-01-01 00:00:00'")
        await asyncio.sleep(0.002)
        await writer.run_once()
        assert await count_sql(road, "SELECT COUNT(*) FROM facts") == 1
        assert await count_sql(road, "SELECT COUNT(*) FROM facts_delivery") == 1


async def test_who_follows_the_events_is_not_shown_canaries(quiet: Postroad) -> None:
    tail = Tail(quiet.store, quiet.outboxes)
    await tail.look()
    await CanaryWriter(quiet, Canary((TOPIC,))).run_once()
    await weigh(quiet, Weighed("7"))
    await quiet.broker.apply(quiet.topology)
    (relay,) = quiet.runner(groups=()).relays
    assert await relay.run_once() == 2
    assert [event.type for event in await tail.look()] == ["parcel.weighed"]


async def test_a_process_without_a_relay_writes_none(quiet: Postroad) -> None:
    async with quiet.running(relay=False):
        await asyncio.sleep(0.05)
    assert await count_sql(quiet, OUTBOX) == 0


@pytest.mark.parametrize(
    ("declared", "given", "http", "flies"),
    [
        (None, None, None, None),
        (None, None, "9464", None),
        (None, 3, None, Canary(every=3)),
        (None, 0, "9464", None),
        (OFTEN, None, "9464", OFTEN),
        (OFTEN, 3, None, Canary((TOPIC,), every=3)),
        (OFTEN, 0, None, None),
    ],
)
def test_the_command_line_decides_unless_it_says_nothing(
    declared: Canary | None, given: int | None, http: str | None, flies: Canary | None
) -> None:
    plan = Plan(http=http, canary=None if given is None else timedelta(seconds=given))
    assert canary_of(declared, plan) == flies


def test_what_cannot_be_watched_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="takes the topics to watch"):
        Canary("shop.order.events")  # type: ignore[arg-type]
    with pytest.raises(InvalidName):
        Canary(("Shop_Orders",))
    with pytest.raises(ConfigurationError, match=r"canary\.every"):
        Canary((TOPIC,), every=0)
    assert TYPE == "postroad.canary"
