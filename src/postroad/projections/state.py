"""What the database knows of a projection: whether it is being rebuilt, by whom, and what happened meanwhile."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from postroad.errors import LeaseLost, OperationRefused
from postroad.message import Message
from postroad.stores.base import Store

LEASE: Final = 60.0
"""Seconds after which a silent rebuild counts as dead."""


@dataclass(frozen=True, slots=True)
class State:
    name: str
    generation: int
    """How often it has been rebuilt, or begun to be."""
    state: str
    """live or rebuilding; the table serves its readers in both"""
    progress: int
    """Events that the rebuild has read."""
    total: int
    started_at: datetime | None
    expires_at: datetime | None


async def states(store: Store) -> list[State]:
    return [
        State(
            row.name,
            row.generation,
            row.state,
            row.progress,
            row.total,
            store.time_out(row.started_at),
            store.time_out(row.expires_at),
        )
        for row in (await store.read("projections_all")).rows
    ]


# -- those who change the projection -------------------------------------------------------------------


async def fence(store: Store, connection: AsyncConnection, name: str) -> bool:
    """Whether a rebuild is under way; it can neither begin nor end before the transaction does."""
    found = await store.execute(connection, "projection_fence", name=name)
    if not found.rows:
        await store.execute(connection, "projection_declare", name=name)
        found = await store.execute(connection, "projection_fence", name=name)
    return bool(found.rows[0].state == "rebuilding")


async def note(store: Store, connection: AsyncConnection, name: str, messages: Sequence[Message]) -> None:
    """For the rebuild, which reads it before it ends."""
    for message in messages:
        await store.execute(connection, "journal_add", name=name, message=msgspec.msgpack.encode(message))


# -- the one that rebuilds it --------------------------------------------------------------------------


async def begin(store: Store, name: str, token: UUID) -> None:
    """From the commit on, whoever changes the projection notes it. Raises OperationRefused while another rebuilds."""
    async with store.transaction() as connection:
        await store.execute(connection, "projection_exclude")
        await store.execute(connection, "projection_declare", name=name)
        begun = await store.execute(connection, "projection_begin", name=name, token=token, seconds=LEASE)
        if begun.rowcount != 1:
            raise OperationRefused(
                f"Projection {name} is being rebuilt already. Wait for its end; a rebuild that died is given up "
                f"{LEASE:g} seconds after its last sign of life."
            )
        await store.execute(connection, "journal_clear", name=name)


async def advance(store: Store, connection: AsyncConnection, name: str, token: UUID, progress: int, total: int) -> None:
    """In the transaction of each step, at its end: whoever was taken over cannot commit."""
    moved = await store.execute(
        connection, "projection_advance", name=name, token=token, progress=progress, total=total, seconds=LEASE
    )
    if moved.rowcount != 1:
        raise lost(name)


async def noted(store: Store, connection: AsyncConnection, name: str, limit: int) -> list[Message]:
    """The oldest of what was noted, which is thereby taken out."""
    page = (await store.execute(connection, "journal_page", name=name, limit=limit)).rows
    # One by one, not up to the last: an earlier position may be committed later, and nobody has read it yet.
    positions = [row.position for row in page]
    if positions:
        await store.execute(connection, "journal_forget", positions=positions)
    return [msgspec.msgpack.decode(bytes(row.message), type=Message) for row in page]


@asynccontextmanager
async def alone(store: Store, name: str, token: UUID) -> AsyncIterator[tuple[AsyncConnection, AsyncConnection, int]]:
    """While nobody changes the projection, and only for the holder of the token: a connection that guards, one to work
    with, and the generation. Both are the same, unless a change of the schema would commit, and so end the guard."""
    async with store.transaction() as guard:
        await store.execute(guard, "projection_exclude")
        locked = (await store.execute(guard, "projection_lock", name=name, token=token)).rows
        if not locked:
            raise lost(name)
        if not store.ddl_commits:
            yield guard, guard, locked[0].generation
            return
        async with store.transaction() as work:
            yield guard, work, locked[0].generation


class Caretaker:
    """Gives up rebuilds whose process is gone: nobody needs to note anything for them any more."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run_once(self, goes_on: Callable[[], bool] = lambda: True) -> int:
        """For as long as `goes_on` says so; how many there were."""
        given_up = 0
        for row in (await self._store.read("projections_lapsed")).rows:
            if not goes_on():
                break
            async with self._store.transaction() as connection:
                lapsed = await self._store.execute(connection, "projection_lapse", name=row.name)
                if lapsed.rowcount:
                    await self._store.execute(connection, "journal_clear", name=row.name)
                    given_up += 1
        return given_up


def lost(name: str) -> LeaseLost:
    return LeaseLost(
        f"The rebuild of {name} was silent for longer than {LEASE:g} seconds and was given up; the table is as it was. "
        "Begin again."
    )
