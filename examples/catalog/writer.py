"""The write side. A video changes only at the version that its editor has seen, and its event commits with it."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from google.protobuf.wrappers_pb2 import Int64Value, StringValue
from sqlalchemy import RowMapping, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from examples.catalog import schema
from examples.catalog.events import VideoCreated, VideoDeleted, VideoUpdated, timestamp
from examples.catalog.refusals import VersionConflict, VideoNotFound
from examples.catalog.schema import videos
from postroad import Canary, Postroad

SOURCE: Final = "catalog-writer"
CHANGEABLE: Final = ("title", "description", "duration_micros", "status", "media_status", "analysis_status")


class Writer:
    def __init__(
        self, database_url: str | None = None, broker_url: str | None = None, canary: Canary | None = None
    ) -> None:
        self.road = Postroad(SOURCE, database_url, broker_url, canary=canary)

    async def prepare(self) -> None:
        await schema.prepare(self.road, schema.written)

    async def create(self, facts: Mapping[str, Any]) -> RowMapping:
        now, video_id = self.road.clock.now(), str(uuid.uuid4())
        row = {**facts, "video_id": video_id, "version": 1, "updated_at": now}
        async with self.road.session() as session, session.begin():
            await session.execute(insert(videos), row)
            self.road.add(session, _created(row, now), version=1)
            return await _found(session, video_id)

    async def update(self, video_id: str, version: int, changes: Mapping[str, Any]) -> RowMapping:
        """What is not among the changes stays; a change that changes nothing is none."""
        async with self.road.session() as session, session.begin():
            before = await _found(session, video_id)
            changed = {name: value for name, value in changes.items() if before[name] != value}
            if before["version"] != version:
                raise VersionConflict(video_id, version, before["version"])
            if not changed:
                return before
            values = {**changed, "version": version + 1, "updated_at": self.road.clock.now()}
            await _only(session, update(videos).values(values), video_id, version)
            self.road.add(session, _updated(video_id, changed), version=version + 1)
            return await _found(session, video_id)

    async def delete(self, video_id: str, version: int, reason: str | None = None) -> None:
        async with self.road.session() as session, session.begin():
            before = await _found(session, video_id)
            if before["version"] != version:
                raise VersionConflict(video_id, version, before["version"])
            await _only(session, delete(videos), video_id, version)
            told = VideoDeleted(video_id=video_id, reason=None if reason is None else StringValue(value=reason))
            self.road.add(session, told, version=version + 1)

    async def find(self, video_id: str) -> RowMapping:
        async with self.road.session() as session:
            return await _found(session, video_id)

    async def latest(self, limit: int = 50) -> Sequence[RowMapping]:
        newest = select(videos).order_by(videos.c.updated_at.desc(), videos.c.video_id).limit(limit)
        async with self.road.session() as session:
            return (await session.execute(newest)).mappings().all()


async def _found(session: AsyncSession, video_id: str) -> RowMapping:
    row = (await session.execute(select(videos).where(videos.c.video_id == video_id))).mappings().one_or_none()
    if row is None:
        raise VideoNotFound(video_id)
    return row


async def _only(session: AsyncSession, change: Any, video_id: str, version: int) -> None:
    """Two editors may have read the same version. The database decides which of them was faster."""
    done = await session.execute(change.where(videos.c.video_id == video_id, videos.c.version == version))
    if done.rowcount != 1:  # type: ignore[attr-defined]
        raise VersionConflict(video_id, version, (await _found(session, video_id))["version"])


def _created(row: Mapping[str, Any], now: datetime) -> VideoCreated:
    description, duration, published = row.get("description"), row.get("duration_micros"), row.get("published_at")
    return VideoCreated(
        video_id=row["video_id"],
        uploader_id=row["uploader_id"],
        title=row["title"],
        description=None if description is None else StringValue(value=description),
        duration_micros=None if duration is None else Int64Value(value=duration),
        published_at=None if published is None else timestamp(published),
        version=row["version"],
        occurred_at=timestamp(now),
        status=row["status"],
        media_status=row["media_status"],
        analysis_status=row["analysis_status"],
    )


def _updated(video_id: str, changed: Mapping[str, Any]) -> VideoUpdated:
    wrapped = {
        name: Int64Value(value=value) if name == "duration_micros" else StringValue(value=value)
        for name, value in changed.items()
    }
    return VideoUpdated(video_id=video_id, **wrapped)  # type: ignore[arg-type]
