"""Waiting until everything written so far has come to its end."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from postroad.brokers.base import Subscription, Topology
from postroad.clock import SKEW
from postroad.errors import (
    BrokerUnavailable,
    ConfigurationError,
    StoreBusy,
    StoreUnavailable,
    SubscriptionMissing,
)

if TYPE_CHECKING:
    from postroad.app import Postroad

_SHORTEST, _LONGEST = 0.01, 0.25
_WHENEVER: Final = datetime(9999, 12, 31, tzinfo=UTC)

Ask = Callable[[], Awaitable[str]]
"""What is still on its way; empty if nothing."""


async def drain(road: "Postroad", timeout: float) -> None:
    _check_timeout(timeout)
    deadline = road.clock.monotonic() + timeout
    # Writers on other hosts stamp with their own clocks: allow them to be a little ahead of ours.
    written_by = road.clock.now() + timedelta(seconds=1)
    if road.commands.handled:
        await _until_nothing(road, partial(_unfinished, road), deadline, timeout)
    await _until_nothing(road, partial(unsent, road, written_by), deadline, timeout)
    # Whatever is published after this moment was written after the call; by whose clock, only the broker knows.
    sent_by = road.clock.now() + SKEW
    for subscription in road.topology.subscriptions:
        await _until_nothing(road, partial(_unhandled, road, subscription, sent_by), deadline, timeout)
    for group in road.groups:
        await _until_nothing(road, partial(_kept, road, group, written_by), deadline, timeout)


async def _unfinished(road: "Postroad") -> str:
    """A command that has failed for good waits for a person."""
    return "unfinished commands" if (await road.store.read("command_unfinished")).rows else ""


async def unsent(road: "Postroad", written_by: datetime) -> str:
    """What the outboxes still have to send, whenever it is due. A parked event is settled, and so is its queue."""
    bounds: dict[str, Any] = {"written_by": written_by, "due_by": _WHENEVER}
    async with road.store.reading() as connection:
        for outbox in road.outboxes:
            if (await road.store.execute(connection, "unsent_exists", outbox=outbox, **bounds)).rows:
                return f"unsent events in {outbox.name}"
    return ""


async def _unhandled(road: "Postroad", subscription: Subscription, sent_by: datetime) -> str:
    try:
        depth = await road.broker.depth(subscription.name)
    except SubscriptionMissing:
        return await _unheard(road, subscription)
    settled = not depth.messages or (not depth.delayed and depth.oldest is not None and depth.oldest > sent_by)
    return "" if settled else f"{depth.messages} messages in {subscription.name}"


async def _unheard(road: "Postroad", subscription: Subscription) -> str:
    """Nobody has worked in this group yet. To a topic that is not there, nothing can have been sent."""
    topic = subscription.topic
    for change in await road.broker.plan(Topology((topic,))):
        if (change.action, change.kind, change.name) == ("create", "topic", topic):
            return ""
    group = subscription.name.removeprefix(f"{topic}.")
    return f"group {group} has no subscription yet to {topic}: start a worker, or run postroad topology apply"


async def _kept(road: "Postroad", group: str, written_by: datetime) -> str:
    """What no broker will deliver again: the scheduler runs it, after a person has asked for it for instance."""
    found = await road.store.read("inbox_kept", group=group, written_by=written_by)
    return f"events to be tried again by {group}" if found.rows else ""


async def _until_nothing(road: "Postroad", ask: Ask, deadline: float, timeout: float) -> None:
    pause = _SHORTEST
    while waiting := await _answer(ask):
        left = deadline - road.clock.monotonic()
        if left <= 0:
            raise TimeoutError(f"not drained within {timeout:g} s: {waiting}")
        # Never beyond the deadline, at which is asked once more: what was done in the last moment counts.
        await road.clock.sleep(min(pause, left))
        pause = min(pause * 2, _LONGEST)


async def _answer(ask: Ask) -> str:
    try:
        return await ask()
    except (BrokerUnavailable, StoreUnavailable, StoreBusy) as outage:
        # Relays and workers wait for its end, and so does whoever waits for them.
        return str(outage)


def _check_timeout(timeout: float) -> None:
    # Not a number would be no time at all, and never over.
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise ConfigurationError(f"drain: timeout is {timeout!r}. Give a number of seconds, 0 or more.")
