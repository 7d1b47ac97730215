"""A small part of a story-writing service: sessions that are started, given a theme and finished."""

from typing import Any

import msgspec

from postroad import Postroad, event
from postroad.errors import AggregateNotFound, PermissionDenied

TOPIC = "genesis.session.events"


@event("Genesis.Session.Started", topic=TOPIC, aggregate="session", key="session_id")
class SessionStarted(msgspec.Struct, frozen=True):
    session_id: str
    title: str


@event("Genesis.Session.Theme.Proposed", topic=TOPIC, aggregate="session", key="session_id")
class ThemeProposed(msgspec.Struct, frozen=True):
    session_id: str
    number: int


@event("Genesis.Session.Finished", topic=TOPIC, aggregate="session", key="session_id")
class SessionFinished(msgspec.Struct, frozen=True):
    session_id: str


@event("Genesis.Library.Extended", topic="genesis.library.events", aggregate="library", key="library")
class LibraryExtended(msgspec.Struct, frozen=True):
    library: str
    session_id: str


class StartSession(msgspec.Struct, frozen=True):
    session_id: str
    title: str = "untitled"

    def validate(self) -> None:
        if not self.title.strip():
            raise ValueError("field title: must not be empty")


class ProposeTheme(msgspec.Struct, frozen=True):
    session_id: str


class FinishSession(msgspec.Struct, frozen=True):
    session_id: str


class Session(msgspec.Struct, frozen=True):
    started: bool = False
    themes: int = 0

    def evolve(self, event: object) -> "Session":
        match event:
            case SessionStarted():
                return Session(True, self.themes)
            case ThemeProposed():
                return Session(self.started, self.themes + 1)
        return self


def declare(road: Postroad) -> Postroad:
    """The commands and what they do."""
    road.command("Command.Genesis.Session.Start", aggregate="session", key="session_id")(StartSession)
    road.command("Command.Genesis.Session.Theme.Propose", aggregate="session", key="session_id")(ProposeTheme)
    road.command("Command.Genesis.Session.Finish", aggregate="session", key="session_id")(FinishSession)

    @road.handles(StartSession, state=Session)
    def start(command: StartSession, state: Session) -> list[object]:
        if state.started:
            raise PermissionDenied(f"Session {command.session_id} has been started already.")
        return [SessionStarted(session_id=command.session_id, title=command.title)]

    @road.handles(ProposeTheme, state=Session)
    async def propose(command: ProposeTheme, state: Session) -> object:
        if not state.started:
            raise AggregateNotFound(f"There is no session {command.session_id}.")
        return ThemeProposed(session_id=command.session_id, number=state.themes + 1)

    @road.handles(FinishSession)
    def finish(command: FinishSession) -> list[object]:
        id = command.session_id
        return [SessionFinished(session_id=id), LibraryExtended(library="all", session_id=id)]

    return road


def genesis(url: str, broker: str, **options: Any) -> Postroad:
    return declare(Postroad("genesis", url, broker, **options))
