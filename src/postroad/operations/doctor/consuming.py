"""Whether what is carried is handled: workers, retries, handlers, dead letters."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final

from postroad.brokers.base import Subscription, depth_as_told
from postroad.gates import GROUP
from postroad.inbox.records import Records
from postroad.operations.dead_letters import dead_pages, topics_of
from postroad.operations.doctor.finding import Level, Problem
from postroad.operations.pauses import Pause, paused
from postroad.operations.status import known_groups, workers

if TYPE_CHECKING:
    from postroad.app import Postroad

LATE: Final = 300.0
"""Seconds after which waiting is no longer normal."""
_MOST: Final = 10_000
"""Rows that are looked at, however many there are."""


async def subscriptions(road: "Postroad") -> AsyncIterator[Problem]:
    """Somebody consumes each of this service's subscriptions, and fast enough."""
    ours = {*road.groups, *await known_groups(road.store)}
    alive, still = await _groups_alive(road), await paused(road.store, GROUP)
    for subscription in await road.broker.subscriptions():
        group = _group(subscription)
        if group not in ours:
            continue  # another service's: its workers are known in its own database
        depth = await depth_as_told(road.broker, subscription.name)
        # None where nobody counts: who consumes can be told all the same. The delayed keep nobody waiting yet.
        messages = depth.messages - depth.delayed if depth else 0
        if group in still:
            yield _paused(still[group], subscription.name, messages)
        elif group not in alive:
            yield _unconsumed(road, subscription.name, group, messages)
        elif depth and depth.oldest and (age := (road.clock.now() - depth.oldest).total_seconds()) > LATE:
            cause = f"The oldest of {messages:,} messages in {subscription.name} is {age / 60:.0f} min old."
            yield Problem(Level.WARNING, cause, "Start more workers.", f"postroad worker --group {group}")


def _unconsumed(road: "Postroad", name: str, group: str, messages: int) -> Problem:
    waiting = f", and {_messages(messages)} in it" if messages else ""
    cause = f"No worker of the group {group} is alive: nobody consumes {name}{waiting}."
    level = Level.FAULT if messages else Level.WARNING
    if group in road.groups:
        return Problem(level, cause, "Start one.", f"postroad worker --group {group}")
    cure = "Bring its handlers back, or delete the subscription in the broker if nobody needs it any more."
    return Problem(level, cause, cure, f"postroad inbox list --group {group}")


def _paused(pause: Pause, name: str, messages: int) -> Problem:
    waiting = f"; {_messages(messages)} in {name}" if messages else ""
    cause = f"The group {pause.name} is paused {pause}{waiting}."
    return Problem(Level.WARNING, cause, "Resume it once its cause is mended.", f"postroad resume {pause.name}")


async def retries(road: "Postroad") -> AsyncIterator[Problem]:
    async with road.store.reading() as connection:
        rows = (await road.store.execute(connection, "inbox_overdue", seconds=LATE, most=_MOST)).rows
    still = await paused(road.store, GROUP)
    for row in [one for one in rows if one.consumer_group not in still]:
        yield Problem(
            Level.WARNING,
            f"{row.records:,} failed or interrupted events of {row.consumer_group} should have been tried again more "
            f"than {LATE / 60:.0f} min ago.",
            "Start a worker of the group; if one runs, look at its log.",
            f"postroad worker --group {row.consumer_group}",
        )


async def handlers(road: "Postroad") -> AsyncIterator[Problem]:
    """No handler was deleted while its events are still on their way: they would die as unknown."""
    async with road.store.reading() as connection:
        run = road.store.execute
        unsettled = (await run(connection, "inbox_unsettled_types", most=_MOST)).rows
        unsent = {row.event_type for outbox in road.outboxes
                  for row in (await run(connection, "unsent_types", outbox=outbox, most=_MOST)).rows}  # fmt: skip
    begun = {(row.consumer_group, row.event_type) for row in unsettled}
    elsewhere = await _groups_alive(road) - {*road.groups}  # another program of this service handles for them
    for group in [one for one in await known_groups(road.store) if one not in elsewhere]:
        gone = sorted(await Records(road.store).known_types(group) - road.registry.types(group))
        # Where nobody counts, there may be some.
        waiting = gone and await _backlog(road, group) != 0
        for kind in gone:
            certain = kind in unsent or (group, kind) in begun
            if certain or waiting:
                where = "are still on their way" if certain else "may be among the messages that wait for it"
                yield Problem(
                    Level.FAULT if certain else Level.WARNING,
                    f"The group {group} has no handler of {kind} any more, but events of it {where}.",
                    "Bring the handler back until they are handled; those that have died can be given back.",
                    "postroad dlq list",
                )


async def dead_letters(road: "Postroad") -> AsyncIterator[Problem]:
    async for page in dead_pages(road.broker, await topics_of(road.broker), limit=1):
        for dead in page:
            yield Problem(
                Level.WARNING,
                f"There are dead letters of {dead.topic}: the first is {dead.type} {dead.event_id or dead.id} of "
                f"{dead.group} ({dead.reason}).",
                "Look at them, mend the cause, and give them back.",
                f"postroad dlq list --topic {dead.topic}",
            )


async def deserted(road: "Postroad") -> Sequence[str]:
    """Sentences about groups for which something waits, that have lost their last handler."""
    strangers = {*await known_groups(road.store)} - {*road.groups}
    if strangers:
        strangers -= await _groups_alive(road)  # another program of the service has them
    waiting = [(group, await _backlog(road, group)) for group in sorted(strangers)]
    return [
        f"The group {group} has no handler here and no worker elsewhere, and {_messages(messages)} for it."
        for group, messages in waiting
        if messages != 0
    ]


async def _backlog(road: "Postroad", group: str) -> int | None:
    """Only of this group: the broker may be shared with hundreds of others. None where nobody counts."""
    names = [one.name for one in await road.broker.subscriptions() if _group(one) == group]
    depths = [await depth_as_told(road.broker, name) for name in names]
    counted = [depth.messages for depth in depths if depth]
    return sum(counted) if len(counted) == len(names) else None


def _messages(number: int | None) -> str:
    if number is None:
        return "messages may wait"
    return "1 message waits" if number == 1 else f"{number:,} messages wait"


async def _groups_alive(road: "Postroad") -> set[str]:
    return {one.detail for one in await workers(road.store) if one.kind == "worker" and not one.gone}


def _group(subscription: Subscription) -> str:
    return subscription.name.removeprefix(f"{subscription.topic}.")
