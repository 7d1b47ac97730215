"""The read side: a table for searching, grown from events alone."""

from collections.abc import Sequence
from datetime import UTC
from typing import Any, Final

from sqlalchemy import RowMapping, or_, select

from examples.catalog import schema
from examples.catalog.events import READER, VideoCreated, VideoDeleted, VideoUpdated
from examples.catalog.refusals import VideoNotFound
from examples.catalog.schema import video_search
from examples.catalog.writer import CHANGEABLE
from postroad import Message, Postroad, SubscriberOptions
from postroad.projections import DELETE, Projection

SOURCE: Final = "catalog-reader"
_GRACE: Final = 3.0
"""Cloud Run kills ten seconds after it has asked to stop."""


class Reader:
    def __init__(self, database_url: str | None = None, broker_url: str | None = None) -> None:
        options = SubscriberOptions(ack_deadline=60, grace=_GRACE)
        self.road = Postroad(SOURCE, database_url, broker_url, subscriber=options)
        found = self.road.projection("video_search", video_search, group=READER, deleted="deleted")
        _follow(found)

    async def prepare(self) -> None:
        await schema.prepare(self.road, schema.read)

    async def search(self, words: str = "", limit: int = 50) -> Sequence[RowMapping]:
        """Every word must stand in the title or in the description. The newest change comes first."""
        table = video_search
        found = select(table).where(~table.c.deleted).order_by(table.c.updated_at.desc(), table.c.video_id)
        for word in words.split():
            found = found.where(
                or_(*(c.icontains(word, autoescape=True) for c in (table.c.title, table.c.description)))
            )
        async with self.road.session() as session:
            return (await session.execute(found.limit(limit))).mappings().all()

    async def find(self, video_id: str) -> RowMapping:
        wanted = select(video_search).where(video_search.c.video_id == video_id, ~video_search.c.deleted)
        async with self.road.session() as session:
            row = (await session.execute(wanted)).mappings().one_or_none()
        if row is None:
            raise VideoNotFound(video_id)
        return row


def _follow(videos: Projection) -> None:
    @videos.on(VideoCreated)
    def created(video: VideoCreated, message: Message) -> dict[str, Any]:
        return {
            "uploader_id": video.uploader_id,
            "title": video.title,
            "description": video.description.value if video.HasField("description") else None,
            "duration_micros": video.duration_micros.value if video.HasField("duration_micros") else None,
            "published_at": video.published_at.ToDatetime(UTC) if video.HasField("published_at") else None,
            "status": video.status,
            "media_status": video.media_status,
            "analysis_status": video.analysis_status,
            "updated_at": message.occurred_at,
        }

    @videos.on(VideoUpdated, delta=True)
    def updated(video: VideoUpdated, message: Message) -> dict[str, Any]:
        changed = {name: getattr(video, name).value for name in CHANGEABLE if video.HasField(name)}
        return {**changed, "updated_at": message.occurred_at}

    @videos.on(VideoDeleted)
    def deleted(video: VideoDeleted) -> object:
        return DELETE
