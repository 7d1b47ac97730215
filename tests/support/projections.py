"""A read model of videos: three kinds of events, its table, and a service that keeps it."""

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Boolean, Column, Index, MetaData, String, Table, select, text

from postroad import Postroad, event
from postroad.message import Message
from postroad.projections import DELETE, OutboxSource, Projection, Rebuild
from postroad.retry import Backoff
from postroad.subscriber import Subscriber, SubscriberOptions
from tests.support.consuming import NotedDelivery

TOPIC = "catalog.video.events"
GROUP = "catalog-reader"
NAME = "video_search"


@event("video.saved", topic=TOPIC, aggregate="video", key="video_id")
class VideoSaved(msgspec.Struct, frozen=True):
    """The whole state."""

    video_id: str
    title: str
    views: int = 0


@event("video.viewed", topic=TOPIC, aggregate="video", key="video_id")
class VideoViewed(msgspec.Struct, frozen=True):
    """A change: one view more."""

    video_id: str


@event("video.deleted", topic=TOPIC, aggregate="video", key="video_id")
class VideoDeleted(msgspec.Struct, frozen=True):
    video_id: str


@event("video.shared", topic=TOPIC, aggregate="video", key="video_id")
class VideoShared(msgspec.Struct, frozen=True):
    """Of no interest to the projection, but to another handler of its group."""

    video_id: str


def make_table(name: str = NAME) -> Table:
    return Table(
        name,
        MetaData(),
        Column("video_id", String(64), primary_key=True),
        Column("title", String(200)),
        Column("views", BigInteger),
        Column("version", BigInteger, nullable=False),
        Column("deleted", Boolean, nullable=False, default=False),
        Index("video_by_title", "title"),
    )


class Catalog:
    """The consuming service. Messages are handed to its subscriber, or travel by its outbox and broker."""

    def __init__(self, url: str, broker_url: str = "embedded:", table: Table | None = None, **options: Any) -> None:
        backoff = Backoff(attempts=2, base=60.0)
        self.road = Postroad("catalog", url, broker_url, subscriber=SubscriberOptions(backoff=backoff), **options)
        self.table = make_table() if table is None else table
        self.effects: list[str] = []
        self.videos = declare(self.road, self.table)

        @self.road.on(VideoShared, group=GROUP)
        async def shared(event: VideoShared) -> None:
            self.effects.append(event.video_id)

    @property
    def store(self) -> Any:
        return self.road.store

    def subscriber(self) -> Subscriber:
        return self.road._subscriber(GROUP)

    async def deliver(self, *messages: Message) -> list[tuple[Any, ...]]:
        verdicts: list[tuple[Any, ...]] = []
        await self.subscriber().handle([NotedDelivery(message, verdicts) for message in messages])
        return verdicts

    async def rows(self, table: str = NAME) -> dict[str, tuple[Any, ...]]:
        """What readers see, by key: title, views and version."""
        query = f"SELECT video_id, title, views, version FROM {table} WHERE NOT deleted ORDER BY video_id"
        async with self.store.reading() as connection:
            return {row[0]: tuple(row[1:]) for row in await connection.execute(text(query))}

    async def versions(self) -> dict[str, int]:
        """Of tombstones, too."""
        async with self.store.reading() as connection:
            found = await connection.execute(select(self.table.c.video_id, self.table.c.version))
            return {row[0]: row[1] for row in found}

    async def tables(self) -> set[str]:
        """Those beside the projection's."""
        async with self.store.reading() as connection:
            return {what for what in ("shadow", "old") if await self.store.has_table(connection, f"{NAME}_{what}")}

    async def run(self, sql: str, **values: Any) -> None:
        async with self.store.transaction() as connection:
            await connection.execute(text(sql), values)

    async def lapse(self) -> None:
        """As if the process that rebuilds had been silent for longer than its lease."""
        await self.run("UPDATE postroad_projections SET expires_at = '2000-01-01 00:00:00'")

    async def write(self, *events: object) -> None:
        async with self.road.session() as session, session.begin():
            for one in events:
                self.road.add(session, one)

    def outbox(self) -> OutboxSource:
        return OutboxSource(self.store, self.road.outboxes, "video")

    def rebuild(self, source: Any = None, **options: Any) -> Rebuild:
        return Rebuild(self.road, self.videos, source or self.outbox(), **options)


def declare(road: Postroad, table: Table, **options: Any) -> Projection:
    videos = road.projection(NAME, table, group=GROUP, deleted="deleted", **options)

    @videos.on(VideoSaved)
    def saved(event: VideoSaved) -> dict[str, Any]:
        return {"title": event.title, "views": event.views}

    @videos.on(VideoViewed, delta=True)
    def viewed(event: VideoViewed, row: dict[str, Any]) -> dict[str, Any]:
        return {"views": (row.get("views") or 0) + 1}

    @videos.on(VideoDeleted)
    def deleted(event: VideoDeleted) -> Any:
        return DELETE

    return videos


async def create(road: Postroad, table: Table) -> None:
    async with road.store.engine.begin() as connection:
        await connection.run_sync(table.metadata.create_all)


@asynccontextmanager
async def catalog(url: str, **options: Any) -> AsyncIterator[Catalog]:
    """With its tables, in a database that is migrated."""
    made = Catalog(url, **options)
    try:
        await create(made.road, made.table)
        yield made
    finally:
        await made.road.aclose()


def message(event: Any, version: int | None, **changes: Any) -> Message:
    values: dict[str, Any] = {
        "id": uuid.uuid4(),
        "type": event.__postroad__.name,
        "topic": TOPIC,
        "aggregate_type": "video",
        "aggregate_id": event.video_id,
        "version": version,
        "occurred_at": datetime.now(UTC),
        "payload": msgspec.json.encode(event),
    }
    return Message(**values | changes)


def saved(video: str, version: int, title: str = "", views: int = 0) -> Message:
    return message(VideoSaved(video, title or f"{video} {version}", views), version)


def viewed(video: str, version: int) -> Message:
    return message(VideoViewed(video), version)


def deleted(video: str, version: int) -> Message:
    return message(VideoDeleted(video), version)


HISTORY = [saved("a", 1), saved("b", 1), viewed("a", 2), deleted("b", 2), saved("c", 1)]
SERVED = {"a": ("a 1", 1, 2), "c": ("c 1", 0, 1)}
"""What readers see after it."""


class Listed:
    """A source of given messages; `between` is awaited before each."""

    def __init__(self, messages: Sequence[Message], between: Any = None) -> None:
        self.messages, self._between = messages, between

    async def size(self) -> int:
        return len(self.messages)

    async def read(self) -> AsyncIterator[Message]:
        for one in list(self.messages):
            if self._between:
                await self._between()
            yield one
