"""The broker: it answers, everything is there and as it should be, and somebody listens."""

import math
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final

from postroad.brokers.base import Change, Concern, Examined, Topology
from postroad.errors import ConfigurationError, PostroadError, UnsupportedByBroker
from postroad.operations.doctor.files import broker_file
from postroad.operations.doctor.finding import Level, Problem
from postroad.retry import Backoff

if TYPE_CHECKING:
    from postroad.app import Postroad

_CREATED: Final = "Relays and workers create and correct it when they start."
_DAY: Final = 86_400.0
_REFUSED: Final = (ConfigurationError, UnsupportedByBroker)
"""Said of what is asked for, by a broker that answers."""


async def answers(road: "Postroad") -> AsyncIterator[Problem]:
    file = broker_file(road)
    if file is not None and not file.exists():
        # Not opened, because that would create it.
        cause = f"There is no broker file {file} yet."
        yield Problem(Level.FAULT, cause, "Relays and workers create it when they start.", "postroad run")
        return
    try:
        await road.broker.plan(road.topology)
    except _REFUSED:
        pass  # it does answer; what is wrong there, the next check tells
    except PostroadError as error:
        yield Problem(Level.FAULT, str(error), f"Make it answer at {road.broker.address}, then look again.")


async def topology(road: "Postroad") -> AsyncIterator[Problem]:
    """What a start would create or change. If it is refused, piece by piece: one that is wrong must not hide the
    others."""
    try:
        changes = await road.broker.plan(road.topology)
    except _REFUSED:
        async for problem in _piece_by_piece(road):
            yield problem
        return
    for change in changes:
        yield _planned(change)


async def _piece_by_piece(road: "Postroad") -> AsyncIterator[Problem]:
    told: set[Change] = set()
    for piece in _pieces(road.topology):
        try:
            for change in await road.broker.plan(piece):
                if change not in told:
                    told.add(change)
                    yield _planned(change)
        except _REFUSED as error:
            yield Problem(Level.FAULT, str(error), "Relays and workers refuse to start until it is corrected.")


async def bindings(road: "Postroad") -> AsyncIterator[Problem]:
    """Nothing leads to our queues that nobody asks for. What is missing there, the topology tells."""
    for concern in await _concerns(road, "bindings"):
        yield Problem(Level.WARNING, concern.cause, concern.cure, concern.command)


async def confirms(road: "Postroad") -> AsyncIterator[Problem]:
    """What counts as sent is kept by more than the word of one server, and was asked for at all."""
    for concern in await _concerns(road, "confirms"):
        yield Problem(Level.WARNING, concern.cause, concern.cure, concern.command)


async def _concerns(road: "Postroad", about: str) -> list[Concern]:
    broker = road.broker
    found = await broker.concerns(road.topology) if isinstance(broker, Examined) else ()
    return [concern for concern in found if concern.about == about]


async def readers(road: "Postroad") -> AsyncIterator[Problem]:
    """Somebody reads each topic."""
    ours = {subscription.topic for subscription in road.topology.subscriptions}
    for topic in await unread_topics(road):
        yield Problem(
            Level.WARNING,
            f"Nobody subscribes to {topic}: its events are refused, lost or kept for nobody, as brokers differ.",
            "Start the service that reads it once, so that its subscription is there; or write no such events.",
            "postroad run" if topic in ours else "",
        )


async def unread_topics(road: "Postroad") -> list[str]:
    """Those that the service may write, and nobody subscribes to."""
    read = {subscription.topic for subscription in await road.broker.subscriptions()}
    return [topic for topic in road.topology.topics if topic not in read]


async def retention(road: "Postroad") -> AsyncIterator[Problem]:
    """The inbox remembers an event for as long as it can come again."""
    wanted = {subscription.name for subscription in road.topology.subscriptions}
    for subscription in await road.broker.subscriptions():
        if subscription.name not in wanted:
            continue
        group = subscription.name.removeprefix(f"{subscription.topic}.")
        window = retry_window(road.options_of(group).backoff)
        horizon = road.outbox_retention + max(subscription.retention, window)
        if road.inbox_retention < horizon:
            yield Problem(
                Level.FAULT,
                f"A message of {subscription.name} can come again for {horizon / _DAY:.3g} days, but the inbox forgets "
                f"after {road.inbox_retention / _DAY:.3g}: it would be handled twice.",
                f"Give Postroad an inbox_retention of at least {math.ceil(horizon / _DAY)} days, in seconds: "
                f"Postroad(…, inbox_retention={math.ceil(horizon / _DAY)} * 86_400).",
            )


def retry_window(backoff: Backoff) -> float:
    """Seconds from the first attempt to the last."""
    total, failed = 0.0, 1
    while (wait := backoff.after(failed)) is not None and failed < _ENOUGH:
        total, failed = total + wait, failed + 1
    # What is left of a very long list: the wait no longer changes, or grows beyond all bounds anyway.
    return total + (backoff.attempts - failed) * wait if wait is not None else total


_ENOUGH: Final = 1_000


def _pieces(wanted: Topology) -> Iterator[Topology]:
    for topic in wanted.topics:
        yield Topology((topic,), ())
    for subscription in wanted.subscriptions:
        yield Topology((), (subscription,))
    for schema in wanted.schemas:
        yield Topology((), (), (schema,))


def _planned(change: Change) -> Problem:
    return Problem(Level.FAULT, _cause(change), _CREATED, "postroad run")


def _cause(change: Change) -> str:
    if change.action == "create":
        return f"The {change.kind} {change.name} is missing."
    return f"The {change.kind} {change.name} is not as it should be ({change.detail})."
