"""What must hold after every run, and what does not."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from postroad.commands import CommandRecord
from postroad.handlers import Registry
from postroad.inbox import Record
from postroad.message import Message
from postroad.stores.base import TABLES
from postroad.testing.survival.calls import Call, label
from postroad.testing.survival.commands import COMMANDS, has_failed, is_finished
from postroad.testing.survival.database import Written
from postroad.testing.survival.faults import Fault
from postroad.testing.survival.outcome import UNSEEN, Outcome

_RECORDS: Final = {COMMANDS: TABLES["commands"]}
Place = tuple[str, UUID]
"""A group and an event."""


@dataclass(frozen=True, slots=True)
class Played:
    """A run that is over, and what it left behind."""

    fault: Fault | None
    points: Mapping[str, Sequence[str]]
    struck: bool
    cut: bool
    calls: Sequence[Call]
    log: Sequence[Call | Fault]
    written: Mapping[UUID, Written]
    foreign: Mapping[UUID, Message]
    records: Mapping[Place, Record]
    registry: Registry
    outcome: Outcome
    failure: str = ""
    """What the scenario raised, if it did not come to its end."""
    commands: Mapping[UUID, CommandRecord] = field(default_factory=dict)
    """What became of those that this service carries out."""
    effects: Outcome = field(default_factory=lambda: Outcome([]))
    """The rows of the user's own tables."""
    blind: Mapping[UUID, str] = field(default_factory=dict)
    """Events whose commit cannot be disturbed, and why."""
    before: Outcome = field(default_factory=lambda: UNSEEN)
    """What there was to be seen before the scenario began."""

    def attempts(self) -> Counter[Place]:
        return Counter((call.group, message.id) for call in self.calls for message in call.messages)

    def name(self, event_id: UUID) -> str:
        if event_id in self.written:
            return str(self.written[event_id])
        told = (label(m) for call in self.calls for m in call.messages if m.id == event_id)
        return next(told, label(self.foreign[event_id]) if event_id in self.foreign else f"event {event_id}")

    def key_of(self, group: str, event_id: UUID) -> str:
        messages = (message for call in self.calls if call.is_for(group, event_id) for message in call.messages)
        return next(message.aggregate_id for message in messages if message.id == event_id)

    def handler(self, group: str, event_id: UUID) -> str:
        named = (call.handler for call in self.calls if call.is_for(group, event_id))
        return next(named, "its handler")

    def stopped(self) -> dict[Place, Record]:
        return {place: record for place, record in self.records.items() if record.stopped}

    def handled_before(self) -> list[Place]:
        """What was done and settled when the process died, and is not called again."""
        if self.fault is None or not self.fault.takes_memory or self.fault not in self.log:
            return []
        struck = self.log.index(self.fault)
        calls = [call for call in self.log[:struck] if isinstance(call, Call) and call.committed]
        return [
            (call.group, message.id)
            for call in calls
            for message in call.messages
            if not any(isinstance(later, Call) and later.is_for(call.group, message.id) for later in self.log[struck:])
        ]

    def repeated(self, usual: "Played") -> list[Place]:
        """What was called more often than in the undisturbed run."""
        there = usual.attempts()
        return [place for place, count in self.attempts().items() if count > max(1, there[place])]


@dataclass(frozen=True, slots=True)
class Finding:
    headline: str
    place: Place | None = None
    causes: Sequence[str] = field(default_factory=tuple)
    cures: Sequence[str] = field(default_factory=tuple)
    expected: Outcome | None = None
    """The outcome that there should have been, if it is the outcome that is wrong."""
    as_what: str = "as without the fault"


def judge(played: Played, usual: Played) -> list[Finding]:
    """Whatever is wrong with a run, its outcome apart; `usual` is the undisturbed one."""
    found = [
        *_ghosts(played),
        *_lost(played),
        *_given_up(played, usual),
        *_doubled(played),
        *_disordered(played),
    ]
    if played.failure:
        found.append(Finding(f"Your scenario raised {played.failure}."))
    return found


def _ghosts(played: Played) -> list[Finding]:
    real = {*played.written, *played.foreign}
    return [
        Finding(
            f"`{played.handler(*place)}` (group {place[0]}) was called for {played.name(place[1])}, "
            "which was never committed.",
            place,
            ["Somebody published the event before the transaction that wrote it had committed, and it did not."],
            ["Leave the publishing to the relay, or publish after the commit."],
        )
        for place in played.attempts()
        if place[0] != COMMANDS and place[1] not in real
    ]


def _expected(played: Played) -> list[Place]:
    """Every event and each group that must see it. A parked event waits for a person, and its key with it."""
    parked = {one.key for one in played.written.values() if one.parked}
    ids = [(one.id, one.type) for one in played.written.values() if one.key not in parked]
    ids += [(message.id, message.type) for message in played.foreign.values()]
    return [(group, id) for group in played.registry.groups for id, kind in ids if kind in played.registry.types(group)]


def _lost(played: Played) -> list[Finding]:
    found = []
    for place in _expected(played):
        record = played.records.get(place)
        if record is None:
            found.append(Finding(f"{played.name(place[1])} was committed but never reached group {place[0]}.", place))
        elif not record.processed_at and not record.stopped:
            found.append(
                Finding(
                    f"`{played.handler(*place)}` (group {place[0]}) never came to an end with {played.name(place[1])}.",
                    place,
                    [f"Its last error: {record.error_msg}."] if record.error_msg else [],
                )
            )
    unfinished = [one for one in played.commands.values() if not is_finished(one)]
    return found + [
        Finding(
            f"{label(one.message)} was written down but never came to an end.",
            (COMMANDS, one.command_id),
            [f"Its last error: {one.error_message}."] if one.error_message else [],
        )
        for one in unfinished
    ]


def _given_up(played: Played, usual: Played) -> list[Finding]:
    found = [
        Finding(
            f"`{played.handler(*place)}` (group {place[0]}) gave up on {played.name(place[1])}: {record.error_msg}.",
            place,
            ["Without the fault it succeeds. What an earlier call had done outside the database stood in its way."],
            ["When it is called again, it must accept what its earlier call has already done."],
        )
        for place, record in played.stopped().items()
        if place not in usual.stopped()
    ]
    found += [
        Finding(
            f"`{played.handler(COMMANDS, id)}` gave up on {label(one.message)}: {one.error_message}.",
            (COMMANDS, id),
            ["Without the fault it succeeds. What an earlier call had done outside the database stood in its way."],
            ["When it is called again, it must accept what its earlier call has already done."],
        )
        for id, one in played.commands.items()
        if has_failed(one) and not (id in usual.commands and has_failed(usual.commands[id]))
    ]
    usually = {one.id for one in usual.written.values() if one.parked}
    parked = [one for one in played.written.values() if one.parked and one.id not in usually]
    return found + [Finding(f"{one} is parked in the outbox: the broker refused it.") for one in parked]


def _doubled(played: Played) -> list[Finding]:
    done = Counter((call.group, message.id) for call in played.calls if call.committed for message in call.messages)
    return [
        Finding(
            f"`{played.handler(*place)}` (group {place[0]}) committed its effect {count} times for "
            f"{played.name(place[1])}.",
            place,
            [f"Its record did not hold. Does something delete from {_RECORDS.get(place[0], TABLES['inbox'])}?"],
        )
        for place, count in done.items()
        if count > 1
    ]


def _disordered(played: Played) -> list[Finding]:
    """Within a group and a key, first effects come in the order of the versions."""
    reached: dict[tuple[str, str], int] = defaultdict(int)
    seen: set[Place] = set()
    found = []
    for call in played.calls:
        for message in call.messages if call.committed else ():
            place = (call.group, message.id)
            if place in seen or message.deliver_at is not None:
                continue
            seen.add(place)
            version = message.version or 0
            if version < reached[call.group, message.ordering_key]:
                found.append(
                    Finding(
                        f"`{call.handler}` (group {call.group}) handled {label(message)} (version {version}) "
                        "after a later event of the same key.",
                        place,
                    )
                )
            reached[call.group, message.ordering_key] = max(version, reached[call.group, message.ordering_key])
    return found
