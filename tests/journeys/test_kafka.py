"""From the business transaction to the handler's effect by way of a real Kafka."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import msgspec
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from postroad import Postroad, event, operations
from postroad.errors import PoisonError
from postroad.message import Message
from postroad.relay import RelayOptions
from postroad.retry import PUBLISH, Backoff
from postroad.subscriber import SubscriberOptions
from tests.support.kafka import create_topic, records, remove_topics

TOPIC, SCROLLS = (f"journey.{kind}{uuid4().hex[:8]}.events" for kind in ("chapter", "scroll"))


@event("chapter.written", topic=TOPIC, aggregate="chapter", key="chapter")
class ChapterWritten(msgspec.Struct, frozen=True):
    chapter: str
    step: int
    words: str = ""


@pytest.fixture
async def road(fresh_postgresql_url: str, kafka_url: str) -> AsyncIterator[Postroad]:
    async with opened(fresh_postgresql_url, kafka_url) as road:
        await road.migrate()
        async with road.session() as session, session.begin():
            await session.execute(text("CREATE TABLE trail (id SERIAL, chapter VARCHAR(20), step INT)"))
        yield road
    # A new group begins with all that is there, and the next test has a new group.
    remove_topics(kafka_url, TOPIC, f"{TOPIC}.dlq", SCROLLS)


def opened(database_url: str, kafka_url: str) -> Postroad:
    return Postroad(
        "stories",
        database_url,
        kafka_url,
        relay=RelayOptions(backoff=replace(PUBLISH, base=0.01)),
        subscriber=SubscriberOptions(backoff=Backoff(attempts=3, base=0.05)),
    )


async def note(session: AsyncSession, written: ChapterWritten) -> None:
    row = {"chapter": written.chapter, "step": written.step}
    await session.execute(text("INSERT INTO trail (chapter, step) VALUES (:chapter, :step)"), row)


async def trail(road: Postroad) -> dict[str, list[int]]:
    async with road.session() as session:
        rows = (await session.execute(text("SELECT chapter, step FROM trail ORDER BY id"))).all()
    found: dict[str, list[int]] = {}
    for chapter, step in rows:
        found.setdefault(chapter, []).append(step)
    return found


async def write(road: Postroad, chapters: str, steps: int, *, first: int = 0) -> None:
    for step in range(first, first + steps):
        async with road.session() as session, session.begin():
            for chapter in chapters:
                road.add(session, ChapterWritten(chapter, step))


async def test_a_delayed_event_waits_for_its_time_and_nothing_waits_for_it(road: Postroad) -> None:
    """Kafka keeps nothing back, so the outbox does."""
    handled: list[tuple[int, datetime]] = []

    @road.on(ChapterWritten, group=f"g{uuid4().hex[:8]}")
    async def record(written: ChapterWritten) -> None:
        handled.append((written.step, datetime.now(UTC)))

    async with road.running():
        async with road.session() as session, session.begin():
            due = datetime.now(UTC) + timedelta(seconds=1)
            road.add(session, ChapterWritten("a", 0), delay=1)
            road.add(session, ChapterWritten("a", 1))
        await road.drain(60)
    assert [step for step, _ in handled] == [1, 0]
    assert handled[1][1] >= due


@pytest.mark.spec("P6")
async def test_every_effect_happens_once_and_in_order_although_handlers_fail(road: Postroad) -> None:
    group = f"g{uuid4().hex[:8]}"
    failed: set[ChapterWritten] = set()

    @road.on(ChapterWritten, group=group)
    async def record(written: ChapterWritten, session: AsyncSession) -> None:
        if written.step % 2 and written not in failed:
            failed.add(written)
            raise ConnectionError("the printer does not answer")
        await note(session, written)

    async with road.running():
        await write(road, "abcd", 5)
        await road.drain(60)
    assert await trail(road) == {chapter: list(range(5)) for chapter in "abcd"}
    assert len(failed) == 8


@pytest.mark.spec("P6", "T6")
async def test_a_second_worker_that_comes_while_handlers_work_doubles_nothing(road: Postroad, kafka_url: str) -> None:
    """Partitions move, with events that are being handled: the inbox lets each through once."""
    group, at_work = f"g{uuid4().hex[:8]}", asyncio.Event()

    async def record(written: ChapterWritten, session: AsyncSession) -> None:
        at_work.set()
        await note(session, written)
        await asyncio.sleep(0.02)

    async with opened(road.database_url, kafka_url) as second:
        for each in (road, second):
            each.on(ChapterWritten, group=group)(record)
        async with road.running():
            await write(road, "abcdefgh", 10)
            await at_work.wait()
            async with second.running():
                await write(road, "abcdefgh", 10, first=10)
                await road.drain(60)
    assert await trail(road) == {chapter: list(range(20)) for chapter in "abcdefgh"}


async def test_poison_dies_at_once_and_is_revived_for_its_group_alone(road: Postroad) -> None:
    groups = [f"g{uuid4().hex[:8]}" for _ in range(2)]
    cured = False
    seen: list[str] = []

    @road.on(ChapterWritten, group=groups[0])
    async def strict(written: ChapterWritten, session: AsyncSession) -> None:
        if not cured:
            raise PoisonError("no such chapter")
        await note(session, written)

    @road.on(ChapterWritten, group=groups[1])
    async def easy(written: ChapterWritten, message: Message) -> None:
        seen.append(str(message.id))

    async with road.running():
        await write(road, "a", 1)
        await road.drain(60)
        (letter,) = await road.broker.dead_letters(TOPIC)
        assert letter.reason == "PoisonError: no such chapter"
        cured = True
        dead = await operations.dead_page(road.broker, [TOPIC])
        assert await operations.retry_dead(road.store, road.broker, dead, actor="ann") == 1
        await road.drain(60)
    assert await trail(road) == {"a": [0]}
    assert len(seen) == 1


@pytest.mark.spec("G7")
async def test_publishing_is_tried_again_five_times_then_failed_with_an_alert(
    road: Postroad, kafka_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(kafka_url, SCROLLS, max_message_bytes="4000")

    # Not before: whatever else runs in this process would make the topic, as topics are made usually.
    @event("scroll.unrolled", topic=SCROLLS, aggregate="scroll", key="scroll")
    class ScrollUnrolled(msgspec.Struct, frozen=True):
        scroll: str
        words: str

    async def states() -> dict[str, tuple[str, int]]:
        async with road.session() as session:
            query = f"SELECT aggregate_id, state, attempts FROM {road.outboxes[0].name}"
            return {row[0]: (row[1], row[2]) for row in await session.execute(text(query))}

    async with road.session() as session, session.begin():
        road.add(session, ScrollUnrolled("long", "x" * 5_000))
        road.add(session, ScrollUnrolled("short", "x"))
    with caplog.at_level(logging.WARNING, "postroad.relay"):
        async with road.running():
            await road.drain(60)
    assert await states() == {"long": ("FAILED", 6), "short": ("SENT", 0)}
    refusals = [record for record in caplog.records if "refused by the broker" in record.getMessage()]
    assert len(refusals) == 5
    (alert,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "is parked after 6 attempts: Broker: Message size too large" in alert.getMessage()
    assert [record.key() for record in records(kafka_url, SCROLLS)] == [b"short"]
