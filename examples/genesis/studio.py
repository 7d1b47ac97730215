"""The wiring, and what an author may do."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from examples.genesis import guide, shelf, story, workers
from examples.genesis.refusals import SessionNotFound
from examples.genesis.session import Session
from examples.genesis.story import AGGREGATE, About, AboutRound
from postroad import Postroad
from postroad.eventstore import DomainEvent
from postroad.message import new_id
from postroad.operations.trace import Trace

SOURCE: Final = "genesis"
WORKERS: Final = ("outliner", "worldbuilder", "character")
"""The capabilities, each a consumer group that runs in a process of its own."""
STUDIO: Final = (guide.GROUP, shelf.GROUP)
"""What runs beside the API."""


def decide(command: About, state: Session) -> Sequence[object]:
    return state.decide(command)


class Studio:
    def __init__(self, database_url: str | None = None, broker_url: str | None = None, **options: Any) -> None:
        self.road = Postroad(SOURCE, database_url, broker_url, **options)
        for command in story.declare_commands(self.road):
            self.road.handles(command, state=Session)(decide)
        for part in (workers, guide, shelf):
            part.install(self.road)

    async def prepare(self) -> None:
        """Tables, topics and subscriptions."""
        await self.road.migrate()
        async with self.road.store.migrating() as connection:
            await connection.run_sync(shelf.metadata.create_all)
        await self.road.broker.apply(self.road.topology)

    async def start(self, title: str, idea: str = "", command_id: UUID | None = None) -> str:
        """A session is called by the id of the command that started it: asked twice, it is still one session."""
        id = command_id or new_id(self.road.clock.now(), self.road.randomness)
        await self.road.execute(story.Start(str(id), title, idea), command_id=id)
        return str(id)

    async def answer(self, command: AboutRound, command_id: UUID | None = None) -> None:
        """The author's word on a draft; in the trace it hangs on the proposal that it answers."""
        history = await self.history(command.session_id)
        about = (type(command).stage, command.round)
        proposals = [
            e for e in history if isinstance(e.event, story.Proposed) and (e.event.stage, e.event.round) == about
        ]
        await self.road.execute(command, command_id=command_id, cause=(proposals or history)[-1])

    async def session(self, session_id: str) -> Session:
        session = Session()
        for one in await self.history(session_id):
            session = session.evolve(one.event)
        return session

    async def history(self, session_id: str) -> Sequence[DomainEvent]:
        found = await self.road.events.stream(AGGREGATE, session_id)
        if not found:
            raise SessionNotFound(session_id)
        return found

    async def trace(self, session_id: str) -> Trace:
        """All that came of its beginning."""
        flow = (await self.history(session_id))[0].message.correlation_id
        return await self.road.trace(str(flow))

    async def aclose(self) -> None:
        await self.road.aclose()
