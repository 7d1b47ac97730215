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


async def kept(road: Postroad) -> dict[str, list[Any]]:
    """What is stored: the commands' states, the events with their versions, and what the outbox has of them."""
    async with road.store.reading() as connection:

        async def ask(sql: str) -> list[Any]:
            return [tuple(row) for row in await connection.exec_driver_sql(road.store.fill(sql))]

        return {
            "commands": [row[0] for row in await ask("SELECT status FROM {commands} ORDER BY seq")],
            "events": await ask("SELECT event_id, aggregate_id, aggregate_version FROM {domain_events} ORDER BY 1"),
            "outbox": await ask("SELECT event_id, aggregate_id, version FROM postroad_outbox ORDER BY 1"),
        }


async def expire_leases(road: Postroad) -> None:
    """As if every holder had been silent for longer than its lease."""
    await change(road, "UPDATE {commands} SET locked_until = '2000-01-01 00:00:00' WHERE status = 'PROCESSING'")


async def change(road: Postroad, sql: str) -> None:
    async with road.store.transaction() as connection:
        await connection.exec_driver_sql(road.store.fill(sql))
