"""The tables of both services. Neither refers to the other's: what one knows of the other came by an event."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, DateTime, Dialect, MetaData, String, Table, Text, TypeDecorator

from postroad import Postroad


class Moment(TypeDecorator[datetime]):
    """SQLite has no time zones: what comes back is UTC, as it went in."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=value.tzinfo or UTC)


def _facts() -> list[Column[Any]]:
    """Nullable, because a deleted row of the projection keeps only its key and version."""
    return [
        Column("uploader_id", String(36)),
        Column("title", String(200)),
        Column("description", Text),
        Column("duration_micros", BigInteger),
        Column("published_at", Moment),
        Column("status", String(32)),
        Column("media_status", String(32)),
        Column("analysis_status", String(32)),
    ]


written = MetaData()
videos = Table(
    "videos",
    written,
    Column("video_id", String(36), primary_key=True),
    *_facts(),
    Column("version", BigInteger, nullable=False),
    Column("updated_at", Moment, nullable=False),
)

read = MetaData()
video_search = Table(
    "video_search",
    read,
    Column("video_id", String(36), primary_key=True),
    *_facts(),
    Column("updated_at", Moment),
    Column("version", BigInteger, nullable=False),
    Column("deleted", Boolean, nullable=False),
)


async def prepare(road: Postroad, tables: MetaData) -> None:
    """Postroad's tables and the service's own, where the service's role puts them."""
    await road.migrate()
    async with road.store.migrating() as connection:
        await connection.run_sync(tables.create_all)
