"""All sessions at a glance: a read model that each event of a session moves one step on, and none moves back."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, Column, MetaData, RowMapping, String, Table, select

from examples.genesis import story
from postroad import Postroad
from postroad.message import Message

GROUP: Final = "shelf"
metadata = MetaData()
shelf = Table(
    "genesis_shelf",
    metadata,
    Column("session_id", String(64), primary_key=True),
    Column("title", String(story.LONGEST), nullable=False),
    Column("stage", String(20), nullable=False),
    Column("step", String(20), nullable=False),
    Column("started_at", String(40), nullable=False),
    Column("version", BigInteger, nullable=False),
)


def install(road: Postroad) -> None:
    books = road.projection("genesis_shelf", shelf, group=GROUP)

    @books.on(story.Started)
    def started(event: story.Started, message: Message) -> Mapping[str, Any]:
        at = message.occurred_at.isoformat(timespec="microseconds")
        return {"title": event.title, "stage": "", "step": "started", "started_at": at}

    @books.on(story.Finished, delta=True)
    def finished(event: story.Finished) -> Mapping[str, Any]:
        return {"stage": "", "step": "finished"}

    for made in (story.REQUESTED, story.PROPOSED, story.CONFIRMED, story.REJECTED):
        for cls in made.values():
            books.on(cls, delta=True)(moved)


def moved(event: story.AboutRound) -> Mapping[str, Any]:
    return {"stage": event.stage.value, "step": type(event).__name__.removeprefix(event.stage).lower()}


async def latest(road: Postroad, limit: int = 30) -> Sequence[RowMapping]:
    newest = select(shelf).order_by(shelf.c.started_at.desc(), shelf.c.session_id).limit(limit)
    async with road.store.reading() as connection:
        return (await connection.execute(newest)).mappings().all()
