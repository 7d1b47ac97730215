"""The promises, checked against what is really in the database and in the broker when all is over."""

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from postroad.inbox import ConsumeOptions
from postroad.message import Message

Ask = Callable[[str], Iterable[Any]]
"""A query to the database, and its rows."""

EFFECTS_OF = {"sim.booking.made": ("plain", "picky"), "sim.note.taken": ("reader",)}
ATTEMPTS: Final = 9
"""That a subscriber gives an event before it is given up."""
_ATTEMPTS_OF: Final = {**dict.fromkeys(("plain", "picky", "reader"), ATTEMPTS), "desk": ConsumeOptions().max_retry + 1}


def violations(
    ask: Ask, taken: Sequence[Message], handed: Sequence[str] = (), refused: Collection[str] = ()
) -> list[str]:
    """Sentences; none if every promise was kept. `taken` is what the broker took, `handed` what the bus did, `refused`
    what `picky` had reason to refuse."""
    rows = ask("SELECT consumer_group, event_id, retry_count FROM postroad_inbox WHERE status = 2")
    failed = {(group, str(event_id)): attempts for group, event_id, attempts in rows}
    return [
        *_unwritten(ask, taken),
        *_lost_or_doubled(ask, handed, failed, _given_up_rightly(failed, taken, refused)),
        *_disorder("reached the broker", _arrivals(taken)),
        *_disorder("took effect", _effects(ask)),
    ]


def _unwritten(ask: Ask, taken: Sequence[Message]) -> Iterator[str]:
    """Of bookings only what was committed exists; of notes, only what came with an effect of `plain`."""
    bookings = {row[0] for row in ask("SELECT event_id FROM booking")}
    for message in taken:
        if message.type == "sim.booking.made" and str(message.id) not in bookings:
            yield f"phantom: {message.type} {message.id} reached the broker, but was never committed"
    for group, event_id in ask("SELECT consumer_group, event_id FROM effect"):
        if group in EFFECTS_OF["sim.booking.made"] and event_id not in bookings:
            yield f"phantom: {event_id} took effect in {group}, but was never committed"


def _lost_or_doubled(
    ask: Ask, handed: Sequence[str], failed: Container[tuple[str, str]], excused: set[tuple[str, str]]
) -> Iterator[str]:
    counted = {
        (group, event_id): count
        for group, event_id, count in ask(
            "SELECT consumer_group, event_id, count(*) FROM effect GROUP BY consumer_group, event_id"
        )
    }
    for (group, event_id), count in counted.items():
        if count > 1:
            yield f"doubled: {event_id} took effect {count} times in {group}"
        if (group, event_id) in failed:
            yield f"contradicted: {event_id} took effect in {group}, but its record says that it failed"
    written = [row[0] for row in ask("SELECT event_id FROM booking ORDER BY name")]
    for event_id in written:
        for group in EFFECTS_OF["sim.booking.made"]:
            if (group, event_id) not in counted and (group, event_id) not in excused:
                yield f"lost: {event_id} never took effect in {group}"
    for event_id in handed:
        if ("desk", event_id) not in counted and ("desk", event_id) not in excused:
            yield f"lost: {event_id} was handed to the bus and never took effect"
    noted = sum(group == "plain" for group, _ in counted)
    read = sum(group == "reader" for group, _ in (*counted, *excused))
    if noted != read:
        yield f"lost: {noted} notes were written, {read} were read or given up"


def _given_up_rightly(
    failed: dict[tuple[str, str], int], taken: Sequence[Message], refused: Collection[str]
) -> set[tuple[str, str]]:
    """After all its attempts, or because `picky` will not take it. Whatever else has failed for good is lost."""
    unwelcome = {str(one.id) for one in taken if ("picky", str(one.id)) in failed and _is_unwelcome(one)}.union(refused)
    return {
        (group, event_id)
        for (group, event_id), attempts in failed.items()
        if attempts >= _ATTEMPTS_OF.get(group, 1) or (group == "picky" and event_id in unwelcome)
    }


def _is_unwelcome(message: Message) -> bool:
    return message.type == "sim.booking.made" and bool(msgspec.json.decode(message.payload)["unwelcome"])


def _arrivals(taken: Sequence[Message]) -> dict[str, list[int]]:
    first: dict[str, dict[int, None]] = defaultdict(dict)
    for message in taken:
        first[f"{message.topic} {message.ordering_key}"][message.version or 0] = None
    return {key: list(versions) for key, versions in first.items()}


def _effects(ask: Ask) -> dict[str, list[int]]:
    order: dict[str, list[int]] = defaultdict(list)
    for group, account, version in ask("SELECT consumer_group, account, version FROM effect ORDER BY n"):
        order[f"{group} {account}"].append(version)
    return order


def _disorder(how: str, order: dict[str, list[int]]) -> Iterator[str]:
    for key, versions in sorted(order.items()):
        if versions != sorted(versions):
            yield f"out of order: {key} {how} as {versions}"
