"""What the broker holds as dead: look, give back, throw away."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from postroad.brokers.base import Broker, DeadLetter
from postroad.errors import OperationRefused
from postroad.inbox.records import Records
from postroad.message import ordering_key, parse_id
from postroad.operations import audit
from postroad.operations.fingerprint import fingerprint
from postroad.operations.portions import Progress, in_portions, untold
from postroad.operations.readable import readable
from postroad.operations.together import together
from postroad.stores.base import Store

_PAGE: Final = 200
_AT_ONCE: Final = 8
"""Topics that are asked together: of some brokers each answer takes a connection, and there may be hundreds."""


@dataclass(frozen=True, slots=True)
class DeadEvent:
    """A dead letter as a person sees it."""

    id: str
    """The broker's handle, good within its topic."""
    topic: str
    group: str
    event_id: str
    """As the message says; empty if it does not."""
    type: str
    key: str
    reason: str
    attempts: int
    died_at: datetime
    attributes: dict[str, str]
    payload: Any


async def topics_of(broker: Broker) -> Sequence[str]:
    """The topics that somebody subscribes to: only there can anything have died."""
    return sorted({subscription.topic for subscription in await broker.subscriptions()})


async def dead_page(broker: Broker, topics: Sequence[str], *, limit: int = 50, after: str = "") -> Sequence[DeadEvent]:
    """By topic, oldest first. `after` is the last id of the previous page, where there is one topic."""
    found: list[DeadEvent] = []
    async for page in dead_pages(broker, topics, limit=limit, after=after):
        found += page
        if len(found) >= limit:
            break
    return found[:limit]


async def dead_pages(
    broker: Broker, topics: Sequence[str], *, limit: int, after: str = ""
) -> AsyncIterator[Sequence[DeadEvent]]:
    """The first of each topic."""
    for first in range(0, len(topics), _AT_ONCE):
        some = topics[first : first + _AT_ONCE]
        for letters in await together(broker.dead_letters(topic, limit=limit, after=after) for topic in some):
            yield [_plain(letter) for letter in letters]


async def all_dead(broker: Broker, topics: Sequence[str], after: str = "") -> AsyncGenerator[DeadEvent, None]:
    """Topic by topic; `after` is an id of the first."""
    for first in range(0, len(topics), _AT_ONCE):
        some = topics[first : first + _AT_ONCE]
        places = [after if topic == topics[0] else "" for topic in some]
        pages = await together(
            broker.dead_letters(topic, limit=_PAGE, after=place) for topic, place in zip(some, places, strict=True)
        )
        for topic, letters in zip(some, pages, strict=True):
            while letters:
                for letter in letters:
                    yield _plain(letter)
                letters = await broker.dead_letters(topic, limit=_PAGE, after=letters[-1].id)


async def dead_from(
    broker: Broker, topics: Sequence[str], place: str = "", *, group: str = "", cause: str = ""
) -> AsyncGenerator[DeadEvent, None]:
    """By topic, oldest first, from behind a `place_of_dead` on, or behind an id of the only topic."""
    topic, _, after = place.rpartition("~")
    if after and not topic and len(topics) > 1:
        raise OperationRefused(
            f"after is {place!r}, which is no place in a list of several topics. Choose one of them."
        )
    rest = sorted(one for one in topics if one >= topic)
    if topic and rest[:1] != [topic]:
        after = ""  # the topic has gone since
    async for one in all_dead(broker, rest, after):
        if is_alike(one, group, cause):
            yield one


def place_of_dead(dead: DeadEvent) -> str:
    return f"{dead.topic}~{dead.id}"


def is_alike(dead: DeadEvent, group: str, cause: str) -> bool:
    """Whether it died in that group of that cause; either may be empty."""
    return (not group or dead.group == group) and (not cause or fingerprint(dead.reason) == cause)


async def own_dead(
    store: Store, broker: Broker, groups: Sequence[str], *, topic: str = "", group: str = "", cause: str = ""
) -> Sequence[DeadEvent]:
    """All dead letters of this service's groups, narrowed by what is not empty.

    Those of other services are theirs to give back: their inboxes are not here, and would let them die again.
    `groups` are those that the application knows; those that have handled something are known to the database.
    """
    own = {*groups, *(row.consumer_group for row in (await store.read("groups_known")).rows)}
    if group and group not in own:
        raise OperationRefused(
            f"Group {group} is not of this service, which has {', '.join(sorted(own)) or 'none'}. "
            "Give its dead letters back where it is handled."
        )
    topics = [topic] if topic else await topics_of(broker)
    return [one async for one in all_dead(broker, topics) if one.group in own and is_alike(one, group, cause)]


async def find_dead(broker: Broker, topics: Sequence[str], ids: Sequence[str]) -> Sequence[DeadEvent]:
    """By the broker's id or by the event's. Raises OperationRefused if one is not there or is ambiguous."""
    found: dict[str, list[DeadEvent]] = {id: [] for id in ids}
    async for dead in all_dead(broker, topics):
        for id in {dead.id, dead.event_id} & found.keys():
            found[id].append(dead)
    for id, matches in found.items():
        if not matches:
            raise OperationRefused(f"There is no dead letter {id}. List them with: postroad dlq list")
        if len({dead.topic for dead in matches}) > 1:
            topics_told = " and of ".join(dead.topic for dead in matches)
            raise OperationRefused(f"{id} is a dead letter of {topics_told}. Say which with --topic.")
    return list({(dead.topic, dead.id): dead for matches in found.values() for dead in matches}.values())


async def dead_of(broker: Broker, topic: str, group: str, event_id: UUID) -> Sequence[DeadEvent]:
    """The letter of one event in one group; none where the broker holds none."""
    letters = all_dead(broker, [topic])
    return [one async for one in letters if one.group == group and message_id(one) == event_id]


async def with_attempts(store: Store, dead: Sequence[DeadEvent]) -> Sequence[DeadEvent]:
    """As often as the inbox says they were tried, where it knows: some brokers count deliveries, others nothing."""
    asked = [(one, message_id(one)) for one in dead]
    known = await Records(store).attempts([(one.group, id) for one, id in asked if id])
    return [replace(one, attempts=known.get((one.group, id), one.attempts)) if id else one for one, id in asked]


async def retry_dead(
    store: Store,
    broker: Broker,
    dead: Sequence[DeadEvent],
    *,
    actor: str,
    reason: str = "",
    progress: Progress = untold,
) -> int:
    """Back to the subscriptions they came from, with all attempts before them; how many."""
    return sum([await _revive(store, broker, portion, actor, reason) for portion in in_portions(dead, progress)])


async def _revive(store: Store, broker: Broker, dead: Sequence[DeadEvent], actor: str, reason: str) -> int:
    """The inbox records first: a message that came back to a record that says "failed for good" would die again."""
    async with store.transaction() as connection:
        for one in dead:
            if event_id := message_id(one):
                await store.execute(connection, "inbox_revive", group=one.group, event_id=event_id)
            await audit.record(store, connection, actor=actor, action="dlq.retry", subject=_subject(one), detail=reason)
    return sum([await broker.revive(topic, ids) for topic, ids in _by_topic(dead).items()])


async def discard_dead(store: Store, broker: Broker, dead: Sequence[DeadEvent], *, actor: str, reason: str) -> int:
    """Throws them away for good; how many. The audit table keeps what they were."""
    if not reason.strip():
        raise OperationRefused("Discarding a dead letter needs a reason. Say why nobody will miss it.")
    async with store.transaction() as connection:
        for one in dead:
            if event_id := message_id(one):
                await store.execute(connection, "inbox_discard", group=one.group, event_id=event_id)
            await audit.record(
                store, connection, actor=actor, action="dlq.discard", subject=_subject(one), detail=reason
            )
    return sum([await broker.discard(topic, ids) for topic, ids in _by_topic(dead).items()])


def _by_topic(dead: Sequence[DeadEvent]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in dead:
        found.setdefault(one.topic, []).append(one.id)
    return found


def _subject(dead: DeadEvent) -> str:
    return f"{dead.group}/{dead.event_id or dead.id}"


def message_id(dead: DeadEvent) -> UUID | None:
    try:
        return parse_id(dead.event_id)
    except ValueError:
        return None


def _plain(letter: DeadLetter) -> DeadEvent:
    attributes = letter.attributes
    aggregate = (attributes.get("aggregate_type", ""), attributes.get("aggregate_id", ""))
    return DeadEvent(
        id=letter.id,
        topic=letter.topic,
        group=letter.subscription.removeprefix(f"{letter.topic}."),
        event_id=attributes.get("event_id", ""),
        type=attributes.get("event_type", ""),
        key=ordering_key(*aggregate) if all(aggregate) else "",
        reason=letter.reason,
        attempts=letter.attempts,
        died_at=letter.died_at,
        attributes=dict(attributes),
        payload=readable(
            letter.data,
            attributes.get("content_type", "application/json"),
            attributes.get("event_type", ""),
            _version(attributes.get("schema_version", "")),
        ),
    )


def _version(text: str) -> int:
    """What is dead may lack anything."""
    number = text.removeprefix("v")
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 10 else 1
