"""A genesis session, told by what can be seen of it."""

import asyncio

from examples.genesis import story
from examples.genesis.session import Session, Step
from examples.genesis.story import Stage
from examples.genesis.studio import Studio
from postroad.eventstore import DomainEvent


async def until(studio: Studio, id: str, step: Step) -> Session:
    """The session when it has come to this step."""
    async with asyncio.timeout(60):
        while (session := await studio.session(id)).step is not step:  # noqa: ASYNC110  # it may be another process's work
            await asyncio.sleep(0.02)
    return session


async def confirm_all(studio: Studio, id: str) -> None:
    """The author takes every first draft."""
    for stage in Stage:
        await until(studio, id, Step.PROPOSED)
        await studio.answer(story.CONFIRM[stage](id, 1))
    await until(studio, id, Step.FINISHED)


async def all_types(studio: Studio) -> list[str]:
    return [one.message.type for one in await everything(studio)]


async def everything(studio: Studio) -> list[DomainEvent]:
    return list(await studio.road.events.all(limit=1_000))
