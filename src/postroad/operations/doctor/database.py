"""The database itself: it answers, and its clock is ours."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from postroad.errors import PostroadError
from postroad.operations.doctor.finding import Level, Problem

if TYPE_CHECKING:
    from postroad.app import Postroad

FAR: Final = 5.0
"""Seconds between two clocks that are more than a network's delay."""


async def answers(road: "Postroad") -> AsyncIterator[Problem]:
    store = road.store
    if store.file is not None and not store.file.exists():
        # Not opened, because that would create it.
        cause = f"There is no database file {store.file} yet."
        yield Problem(Level.FAULT, cause, "Create it with Postroad's tables.", "postroad db migrate")
        return
    try:
        async with store.reading() as connection:
            await connection.exec_driver_sql("SELECT 1")
    except PostroadError as error:
        yield Problem(Level.FAULT, str(error), f"Make it answer at {store.host}, then look again.")


async def clock(road: "Postroad") -> AsyncIterator[Problem]:
    async with road.store.reading() as connection:
        before = road.clock.now()
        there = await road.store.server_time(connection)
        after = road.clock.now()
    apart = max((before - there).total_seconds(), (there - after).total_seconds())
    if apart > FAR:
        yield Problem(
            Level.WARNING,
            f"The clock of this machine and that of the database are {apart:,.0f} s apart: events carry wrong times, "
            "and delayed ones come too early or too late.",
            "Let both follow the same time server (NTP).",
            "timedatectl set-ntp true",
        )
