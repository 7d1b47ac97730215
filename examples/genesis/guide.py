"""The guide: what has happened leads to the next command. Each is carried out in the transaction of its event."""

from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from examples.genesis.story import CONFIRMED, GENERATED, PROPOSE, REQUEST, Confirmed, Finish, Generated, Stage, Started
from postroad import Postroad

GROUP: Final = "guide"


def install(road: Postroad) -> None:
    road.on(Started, group=GROUP)(begin)
    for stage in Stage:
        road.on(GENERATED[stage], group=GROUP)(propose)
        road.on(CONFIRMED[stage], group=GROUP)(go_on)


async def begin(event: Started, session: AsyncSession, road: Postroad) -> None:
    await road.execute(REQUEST[Stage.THEME](event.session_id), session=session)


async def propose(event: Generated, session: AsyncSession, road: Postroad) -> None:
    await road.execute(PROPOSE[event.stage](event.session_id, event.round, event.draft), session=session)


async def go_on(event: Confirmed, session: AsyncSession, road: Postroad) -> None:
    following = event.stage.next
    await road.execute(REQUEST[following](event.session_id) if following else Finish(event.session_id), session=session)
