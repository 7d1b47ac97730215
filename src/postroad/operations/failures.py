"""What went wrong, alike with alike: a thousand failures of one cause are one line."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from postroad.brokers.base import Broker
from postroad.inbox.records import Records
from postroad.operations.commands import command_page
from postroad.operations.dead_letters import dead_page, topics_of
from postroad.operations.fingerprint import fingerprint
from postroad.operations.pages import Filter, matching
from postroad.redact import HIDDEN
from postroad.stores.base import Store
from postroad.stores.tables import OutboxTable

MOST: Final = 1_000
"""Failures of each kind that are looked at."""
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Failure:
    where: str
    """parked or retrying (in the outbox), group (its handler failed), refused (it said no), dead letter or command"""
    place: str
    """The topic that would not take it, the group whose handler failed or refused it, or the command's type."""
    type: str
    id: str
    error: str
    at: datetime
    topic: str = ""
    """Of a dead letter: with its `letter`, where it is found."""
    letter: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """Failures in one place that say the same but for ids, numbers, times and quotations."""

    where: str
    place: str
    fingerprint: str
    count: int
    types: Sequence[str]
    first: datetime
    last: datetime
    words: str
    """The longest part that all of them have in common, to search for."""
    examples: Sequence[Failure]
    """The newest few."""


async def causes(store: Store, outboxes: Sequence[OutboxTable], broker: Broker | None) -> Sequence[Cause]:
    """The most frequent first, out of the newest 1,000 of each kind."""
    dead = await _dead(broker) if broker is not None else []
    told = {(failure.place, failure.id) for failure in dead}
    in_groups = [failure for failure in await _in_groups(store) if (failure.place, failure.id) not in told]
    return grouped([*await _unsent(store, outboxes), *in_groups, *dead, *await _commands(store)])


def grouped(failures: Iterable[Failure]) -> Sequence[Cause]:
    alike: dict[tuple[str, str, str], list[Failure]] = {}
    for failure in failures:
        alike.setdefault((failure.where, failure.place, fingerprint(failure.error)), []).append(failure)
    found = []
    for (where, place, print_), members in alike.items():
        members.sort(key=lambda failure: failure.at, reverse=True)
        types = sorted({failure.type for failure in members})
        first, last = members[-1].at, members[0].at
        words = max(print_.replace(HIDDEN, "…").split("…"), key=len).strip()
        found.append(Cause(where, place, print_, len(members), types, first, last, words, members[:_SHOWN]))
    return sorted(found, key=lambda cause: (-cause.count, cause.where, cause.place, cause.fingerprint))


async def _unsent(store: Store, outboxes: Sequence[OutboxTable]) -> list[Failure]:
    return [
        Failure(where, event.topic, event.type, str(event.id), event.last_error or "", event.occurred_at)
        for state, where in (("FAILED", "parked"), ("RETRY", "retrying"))
        for event in await matching(store, outboxes, Filter(state), limit=MOST)
    ]


async def _in_groups(store: Store) -> list[Failure]:
    """Also those that will be tried again."""
    return [
        Failure(where, one.group, one.event_type, str(one.event_id), one.error_msg or "", one.received_at)
        for where, refused in (("group", False), ("refused", True))
        for one in await Records(store).failures(refused=refused, limit=MOST)
    ]


async def _commands(store: Store) -> list[Failure]:
    """Also those that will be tried again."""
    return [
        Failure("command", one.type, one.type, str(one.id), one.error or "", one.finished_at or one.created_at)
        for one in await command_page(store, status="FAILED", limit=MOST)
    ]


async def _dead(broker: Broker) -> list[Failure]:
    return [
        Failure(
            "dead letter",
            dead.group,
            dead.type,
            dead.event_id or dead.id,
            dead.reason,
            dead.died_at,
            dead.topic,
            dead.id,
        )
        for dead in await dead_page(broker, await topics_of(broker), limit=MOST)
    ]
