"""Waiting until everything written so far has come to its end."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postroad.app import Postroad

_SHORTEST, _LONGEST = 0.01, 0.25


async def drain(road: "Postroad", timeout: float) -> None:
    deadline = road.clock.monotonic() + timeout
    pause = _SHORTEST
    # Writers on other hosts stamp with their own clocks: allow them to be a little ahead of ours.
    written_by = road.clock.now() + timedelta(seconds=1)
    while waiting := await unsent(road, written_by):
        pause = await _pause(road, pause, deadline, timeout, waiting)
    # Whatever is published after this moment was written after the call.
    sent_by = road.clock.now()
    for subscription in road.topology.subscriptions:
        while True:
            depth = await road.broker.depth(subscription.name)
            if not depth.messages or (not depth.delayed and depth.oldest is not None and depth.oldest > sent_by):
                break
            pause = await _pause(road, pause, deadline, timeout, f"{depth.messages} messages in {subscription.name}")


async def unsent(road: "Postroad", written_by: datetime) -> str:
    """What the outboxes still have to send; empty if nothing. A parked event is settled, and so is its queue."""
    async with road.store.reading() as connection:
        for outbox in road.outboxes:
            if (await road.store.execute(connection, "unsent_exists", outbox=outbox, written_by=written_by)).rows:
                return f"unsent events in {outbox.name}"
    return ""


async def _pause(road: "Postroad", pause: float, deadline: float, timeout: float, waiting: str) -> float:
    if road.clock.monotonic() + pause > deadline:
        raise TimeoutError(f"not drained within {timeout:g} s: {waiting}")
    await road.clock.sleep(pause)
    return min(pause * 2, _LONGEST)
