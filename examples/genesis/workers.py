"""Outliner, Worldbuilder and Character: each answers what is requested of it, with an event of its own."""

from sqlalchemy.ext.asyncio import AsyncSession

from examples.genesis.imagination import imagine
from examples.genesis.story import CAPABILITIES, GENERATED, REQUESTED, Requested
from postroad import Postroad


def install(road: Postroad) -> None:
    for stage, (capability, _) in CAPABILITIES.items():
        road.on(REQUESTED[stage], group=capability)(answer)


async def answer(request: Requested, session: AsyncSession, road: Postroad) -> None:
    """In the transaction that notes the request as handled: a worker that dies answers later, and once."""
    answered = GENERATED[request.stage](request.session_id, request.round, imagine(request))
    await road.events.append(session, [answered])
