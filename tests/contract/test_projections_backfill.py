"""Rows that were there before anybody listened become snapshots, and the read model then follows the live stream."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import BigInteger, Column, MetaData, String, Table, delete, insert, select, update

from postroad.errors import ConfigurationError, StoreUnavailable
from postroad.stores import Store
from tests.support.projections import Catalog, VideoDeleted, VideoSaved, catalog

owned = Table(
    "owned_video",
    MetaData(),
    Column("id", String(64), primary_key=True),
    Column("title", String(200)),
    Column("views", BigInteger),
)


def snapshot(row: Any) -> VideoSaved:
    return VideoSaved(row.id, row.title, row.views)


class Owner:
    """Has its rows for long, and writes events for its changes since today. The consumer is in the same process."""

    def __init__(self, videos: Catalog) -> None:
        self.videos, self.road = videos, videos.road

    async def create(self, count: int) -> None:
        async with self.road.store.engine.begin() as connection:
            await connection.run_sync(owned.metadata.create_all)
            rows = [{"id": f"v{n:03}", "title": "as it was", "views": n} for n in range(count)]
            await connection.execute(insert(owned), rows)

    async def change(self, video: str, title: str) -> None:
        async with self.road.session() as session, session.begin():
            await session.execute(update(owned).where(owned.c.id == video).values(title=title))
            row = (await session.execute(select(owned).where(owned.c.id == video))).one()
            self.road.add(session, snapshot(row))

    async def remove(self, video: str) -> None:
        async with self.road.session() as session, session.begin():
            await session.execute(delete(owned).where(owned.c.id == video))
            self.road.add(session, VideoDeleted(video))

    async def add(self, video: str) -> None:
        async with self.road.session() as session, session.begin():
            await session.execute(insert(owned).values(id=video, title="new", views=0))
            self.road.add(session, VideoSaved(video, "new"))

    async def backfill(self, **options: Any) -> int:
        return await self.road.backfill("videos", select(owned), key=owned.c.id, event=snapshot, **options)

    async def rows(self) -> dict[str, tuple[Any, ...]]:
        async with self.road.store.reading() as connection:
            return {row.id: (row.title, row.views) for row in await connection.execute(select(owned))}


@pytest.fixture
async def owner(store: Store, store_url: str) -> AsyncIterator[Owner]:
    async with catalog(store_url) as videos:
        yield Owner(videos)


async def projected(owner: Owner) -> dict[str, tuple[Any, ...]]:
    await owner.road.drain()
    return {video: row[:2] for video, row in (await owner.videos.rows()).items()}


@pytest.mark.spec("F10")
async def test_existing_rows_become_a_projection_page_by_page(owner: Owner) -> None:
    await owner.create(25)
    async with owner.road.running():
        assert await owner.backfill(page=10) == 25
        assert await projected(owner) == await owner.rows()
        assert await owner.backfill(page=10) == 25  # it has ended: nothing more is written
    async with owner.road.store.reading() as connection:
        assert len((await connection.exec_driver_sql("SELECT 1 FROM postroad_outbox")).all()) == 25


@pytest.mark.spec("F10")
async def test_rows_that_change_while_the_backfill_runs_are_neither_lost_nor_set_back(owner: Owner) -> None:
    """Writers change, remove and add rows all the time, before and behind the place of the backfill."""
    await owner.create(60)
    stop = asyncio.Event()

    async def write(first: int) -> None:
        for n in itertools.count():
            if stop.is_set():
                return
            video = f"v{(first + n * 7) % 60:03}"
            match n % 5:
                case 0:
                    await owner.add(f"w{first}-{n}")
                case 1 if video in await owner.rows() and n < 20:
                    await owner.remove(video)
                case _ if video in await owner.rows():
                    await owner.change(video, f"changed {n}")

    async with owner.road.running():
        writers = [asyncio.create_task(write(0))]
        assert await owner.backfill(page=5) > 0
        stop.set()
        await asyncio.gather(*writers)
        assert await projected(owner) == await owner.rows()


@pytest.mark.spec("F10")
async def test_a_change_between_reading_a_row_and_writing_its_snapshot_is_not_possible(owner: Owner) -> None:
    """The row is locked: a writer that comes in between waits, and its version comes after the snapshot's."""
    await owner.create(1)
    writers: list[asyncio.Task[None]] = []

    def event(row: Any) -> VideoSaved:
        writers.append(asyncio.create_task(owner.change("v000", "newer")))
        return snapshot(row)

    await owner.road.backfill("videos", select(owned), key=owned.c.id, event=event)
    await asyncio.gather(*writers)
    async with owner.road.running():
        assert await projected(owner) == {"v000": ("newer", 0)}


@pytest.mark.spec("F10")
async def test_a_backfill_that_died_goes_on_where_it_was(owner: Owner) -> None:
    await owner.create(30)
    seen: list[str] = []

    def dying(row: Any) -> VideoSaved:
        seen.append(row.id)
        if len(seen) == 14:
            raise StoreUnavailable("away")
        return snapshot(row)

    with pytest.raises(StoreUnavailable):
        await owner.road.backfill("videos", select(owned), key=owned.c.id, event=dying, page=10)
    assert await owner.backfill(page=10) == 30
    async with owner.road.running():
        assert await projected(owner) == await owner.rows()
    async with owner.road.store.reading() as connection:
        assert len((await connection.exec_driver_sql("SELECT 1 FROM postroad_outbox")).all()) == 30


async def test_a_backfill_can_be_slowed_down(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    await owner.create(20)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(owner.road.clock, "sleep", sleep, raising=False)
    await owner.backfill(page=10, per_second=100)
    assert pauses == [0.1, 0.1]


async def test_a_backfill_without_a_size_is_refused(sqlite_url: str) -> None:
    async with catalog(sqlite_url) as videos:
        with pytest.raises(ConfigurationError, match="page and per_second must be more than 0"):
            await Owner(videos).backfill(page=0)
