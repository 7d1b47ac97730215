"""Each known risk of outbox and consumer, provoked on PostgreSQL with every broker there is an adapter for."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from postroad import Backoff, Message, Postroad, RelayOptions, SubscriberOptions, event, operations
from postroad.brokers.base import Subscription, Topology
from postroad.errors import UnsupportedByBroker
from postroad.operations.doctor import Level, examine
from postroad.relay.leases import ShardLeases
from postroad.runner import Runner
from tests.support.components import ROOT

pytestmark = pytest.mark.spec("F15")

GROUP = "projection"
QUICK = Backoff(attempts=3, base=0.01)

# As a consumer writes it that knows no framework: an older version never replaces a newer one.
UPSERT = """INSERT INTO video_projection AS p (video, title, version) VALUES (:video, :title, :version)
ON CONFLICT (video) DO UPDATE SET title = EXCLUDED.title, version = EXCLUDED.version
 WHERE p.version < EXCLUDED.version"""


@dataclass
class Stage:
    """A write side and a read side in one database, and as many processes of them as a test wants."""

    database_url: str
    broker_url: str
    event: type
    topic: str
    handled: list[tuple[str, int]] = field(default_factory=list)
    disturb: Callable[[str, int], Any] = lambda video, version: None
    runners: Sequence[Runner] = ()

    @property
    def deadline(self) -> float:
        """As short as the broker takes it."""
        return 2.0 if self.broker_url.startswith(("embedded", "amqp")) else 10.0

    def road(self, group: str = GROUP, table: str = "video_projection") -> Postroad:
        road = Postroad(
            "catalog",
            self.database_url,
            self.broker_url,
            relay=RelayOptions(poll=0.05, backoff=QUICK),
            subscriber=SubscriberOptions(backoff=QUICK, ack_deadline=self.deadline),
        )

        async def project(event: Any, message: Message, session: AsyncSession) -> None:
            if (outcome := self.disturb(event.video, message.version or 0)) is not None:
                await outcome
            values = {"video": event.video, "title": event.title, "version": message.version}
            await session.execute(text(UPSERT.replace("video_projection", table)), values)
            self.handled.append((event.video, message.version or 0))

        road.on(self.event, group=group)(project)
        return road

    @asynccontextmanager
    async def processes(self, count: int = 1) -> AsyncIterator[Postroad]:
        async with AsyncExitStack() as stack:
            roads = [await stack.enter_async_context(self.road()) for _ in range(count)]
            self.runners = [road.runner() for road in roads]
            for runner in self.runners:
                await stack.enter_async_context(runner.started())
            yield roads[0]

    async def write(self, road: Postroad, *videos: str) -> None:
        for video in videos:
            async with road.session() as session, session.begin():
                road.add(session, self.event(video=video, title=f"title of {video}"))

    async def rows(self, road: Postroad, sql: str) -> list[tuple[Any, ...]]:
        async with road.store.reading() as connection:
            return [tuple(row) for row in await connection.execute(text(sql))]

    async def run(self, road: Postroad, sql: str) -> None:
        async with road.store.transaction() as connection:
            await connection.execute(text(sql))

    async def projected(self, road: Postroad, table: str = "video_projection") -> dict[str, int]:
        return dict(await self.rows(road, f"SELECT video, version FROM {table}"))  # type: ignore[arg-type]


@pytest.fixture
async def stage(fresh_postgresql_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Stage:
    name = f"video{uuid4().hex[:10]}"  # a broker may be shared with earlier tests
    topic = f"catalog.{name}.events"

    @event(f"{name}.published", topic=topic, aggregate=name, key="video")
    class VideoPublished(msgspec.Struct, frozen=True):
        video: str
        title: str

    monkeypatch.setattr("postroad.app.known_topics", lambda: {topic})
    stage = Stage(fresh_postgresql_url, broker_url, VideoPublished, topic)
    async with stage.road() as road:
        await road.migrate()
        await road.broker.apply(road.topology)
        for table in ("video_projection", "rebuilt"):
            await stage.run(road, f"CREATE TABLE {table} (video text PRIMARY KEY, title text, version bigint)")
    return stage


async def test_a_relay_that_dies_leaves_a_backlog_that_is_told_and_then_carried_by_others(stage: Stage) -> None:
    async with stage.road() as road:
        dead = ShardLeases(
            road.store, road.outboxes[0], name="dead", ttl=15.0, clock=road.clock, randomness=road.randomness
        )
        await dead.keep()
        await stage.write(road, *(f"v{n % 4}" for n in range(12)))
        await stage.run(road, "UPDATE postroad_worker SET seen_at = now() - interval '1 hour'")
        status = await operations.status(road.store, road.outboxes)
        assert status.outboxes[0].waiting == 12
        told = {one.check: one.level for one in (await examine(road)).findings}
        assert told["relays"] is Level.FAULT
        await stage.run(road, "UPDATE postroad_shard SET expires_at = now() - interval '1 s'")
    async with stage.processes(2) as road:
        await road.drain()
        assert await stage.projected(road) == {f"v{n}": 3 for n in range(4)}
        status = await operations.status(road.store, road.outboxes)
        assert status.outboxes[0].waiting == 0
    assert len(stage.handled) == 12


async def test_what_is_published_twice_has_its_effect_once(stage: Stage) -> None:
    async with stage.processes() as road:
        await stage.write(road, "v1", "v1")
        await road.drain()
        # As a relay leaves it that died between the broker's confirmation and its mark.
        await stage.run(road, "UPDATE postroad_outbox SET state = 'NEW', published_at = NULL")
        await road.drain()
        assert await stage.rows(road, "SELECT state FROM postroad_outbox") == [("SENT",), ("SENT",)]
        assert await stage.projected(road) == {"v1": 2}
    assert stage.handled == [("v1", 1), ("v1", 2)]


async def test_an_old_version_under_a_new_id_does_not_replace_a_newer_one(stage: Stage) -> None:
    async with stage.processes() as road:
        await stage.write(road, "v1", "v1")
        await road.drain()
        stale = Message(
            id=uuid4(),
            type=f"{stage.topic.split('.')[1]}.published",
            topic=stage.topic,
            aggregate_type=stage.topic.split(".")[1],
            aggregate_id="v1",
            version=1,
            occurred_at=road.clock.now(),
            payload=msgspec.json.encode({"video": "v1", "title": "stale"}),
        )
        await road.broker.send([stale])
        await road.drain()
        assert stage.handled[-1] == ("v1", 1)
        assert await stage.projected(road) == {"v1": 2}


async def test_an_aggregate_keeps_its_order_through_failures_relays_and_workers(stage: Stage) -> None:
    failed: set[tuple[str, int]] = set()

    def fail_at_first(video: str, version: int) -> None:
        if version % 3 == 0 and (video, version) not in failed:
            failed.add((video, version))
            raise RuntimeError("not now")

    stage.disturb = fail_at_first
    async with stage.processes(2) as road:
        await stage.write(road, *(f"v{n % 3}" for n in range(18)))
        await road.drain()
    assert len(failed) == 6
    for video in ("v0", "v1", "v2"):
        assert [version for one, version in stage.handled if one == video] == [1, 2, 3, 4, 5, 6]


async def test_a_handler_that_takes_longer_than_the_deadline_is_not_interrupted_by_another(stage: Stage) -> None:
    begun: list[str] = []

    def slowly(video: str, version: int) -> Any:
        begun.append(video)
        return asyncio.sleep(stage.deadline * 1.5)  # without extension the other worker would have it by now

    stage.disturb = slowly
    async with stage.processes(2) as road:
        await stage.write(road, "v1")
        await road.drain()
        assert await stage.projected(road) == {"v1": 1}
    assert begun == ["v1"]
    # Nor did it come to the other to be found a duplicate there.
    assert [one.statistics.duplicates for runner in stage.runners for one in runner.subscribers] == [0, 0]


async def test_a_poison_message_is_put_aside_told_and_given_back_after_the_cause_is_mended(stage: Stage) -> None:
    def poisoned(video: str, version: int) -> None:
        if video == "bad":
            raise RuntimeError("cannot be handled")

    stage.disturb = poisoned
    async with stage.processes() as road:
        await stage.write(road, "bad", "good")
        await road.drain()
        assert await stage.projected(road) == {"good": 1}
        page = await operations.dead_page(road.broker, [stage.topic], limit=10)
        (dead,) = await operations.with_attempts(road.store, page)
        assert dead.attempts == QUICK.attempts
        if not stage.broker_url.startswith("kafka"):  # there all tests share the topics, and may have hundreds
            (told_of,) = (await operations.status(road.store, road.outboxes, road.broker)).dead_letters
            assert told_of == dead
        told = {one.check: one.level for one in (await examine(road, patience=60.0)).findings}
        assert told["dead letters"] is Level.WARNING
        stage.disturb = lambda video, version: None
        await operations.retry_dead(road.store, road.broker, [dead], actor="a person", reason="mended")
        await road.drain()
        assert await stage.projected(road) == {"good": 1, "bad": 1}


async def test_what_is_retried_in_its_group_is_no_dead_letter_any_more(stage: Stage) -> None:
    def poisoned(video: str, version: int) -> None:
        raise RuntimeError("cannot be handled")

    stage.disturb = poisoned
    async with stage.processes() as road:
        await stage.write(road, "v1")
        await road.drain()
        (record,) = await operations.inbox_page(road.store, group=GROUP, failed=True)
        stage.disturb = lambda video, version: None
        await operations.retry_record(road.store, road.broker, GROUP, record.event_id, actor="a person")
        await road.drain()
        assert await stage.projected(road) == {"v1": 1}
        assert await operations.dead_page(road.broker, [stage.topic]) == []


async def test_a_projection_can_be_built_again_from_what_the_broker_kept(stage: Stage) -> None:
    async with stage.processes() as road:
        beginning = road.clock.now() - timedelta(minutes=1)
        await stage.write(road, "v1", "v2", "v1")
        await road.drain()
        before = await stage.projected(road)
        if not road.broker.features.seek:
            with pytest.raises(UnsupportedByBroker, match="seek"):
                await road.broker.seek(f"{stage.topic}.{GROUP}", beginning)
            return
    # The old group's inbox has seen them all: a group of its own builds beside it.
    async with stage.road("projection-2", "rebuilt") as again:
        name = f"{stage.topic}.projection-2"
        await again.broker.apply(
            Topology((stage.topic,), (Subscription(name, stage.topic, ack_deadline=stage.deadline),))
        )
        await again.broker.seek(name, beginning)
        async with again.running(relay=False):
            await again.drain()
            assert await stage.projected(again, "rebuilt") == before


def test_the_page_of_risks_names_tests_that_exist() -> None:
    page = (ROOT / "docs/risks.md").read_text(encoding="utf-8")
    risks = [line for line in page.splitlines() if line.startswith("|")][2:]
    named = [re.findall(r"`([\w/]+\.py)::(test_\w+)`", line) for line in risks]
    assert len(risks) == 6
    assert all(named)
    for path, name in (one for tests in named for one in tests):
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{name}"
    told = {name for tests in named for path, name in tests if path.endswith("test_risks.py")}
    assert told == {name for name in globals() if name.startswith("test_")} - {
        "test_the_page_of_risks_names_tests_that_exist"
    }
