"""A story-writing service that has lived for a while, and ways to do it harm."""

from collections.abc import Sequence
from uuid import UUID

from postroad import Postroad
from postroad.consistency import Finding
from postroad.eventstore import DomainEvent
from tests.support.genesis import FinishSession, ProposeTheme, StartSession, change

OLD = "'2000-01-01 00:00:00'"


async def lived(road: Postroad, *, sessions: int = 2) -> list[UUID]:
    """A few sessions from start to end, all handled; the ids of the first one's events in order."""
    events: list[DomainEvent] = []
    async with road.running():
        for number in range(sessions):
            for command in (StartSession(f"s-{number}"), ProposeTheme(f"s-{number}"), FinishSession(f"s-{number}")):
                events += await road.execute(command)
        await road.drain()
    return [one.id for one in events if one.message.aggregate_id == "s-0"]


async def found(road: Postroad, grace: float = 0.0) -> dict[str, Sequence[Finding]]:
    report = await road.check(grace=grace)
    return {kind: report.of(kind) for kind in {one.kind for one in report.findings}}


def literal(road: Postroad, id: UUID) -> str:
    return f"x'{id.hex}'" if road.store.dialect == "mysql" else f"'{id}'"


async def forget(road: Postroad, table: str, id: UUID, column: str = "event_id") -> None:
    await change(road, f"DELETE FROM {table} WHERE {column} = {literal(road, id)}")


def at(road: Postroad, id: UUID) -> str:
    return f"WHERE event_id = {literal(road, id)}"


def of(session: str, act: str) -> str:
    return f"WHERE aggregate_id = '{session}' AND command_type = 'Command.Genesis.Session.{act}'"
