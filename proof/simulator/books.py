"""The promises about commands, their events and the read model, checked when all is over."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import msgspec

from postroad.message import Message
from proof.simulator.ledger import Ask
from proof.simulator.tills import Ticket, joined
from proof.simulator.workload import ACCOUNTS

_EVENTS = (
    "SELECT event_id, aggregate_id, aggregate_version, event_type, payload, causation_id"
    " FROM postroad_domain_events ORDER BY aggregate_id, aggregate_version"
)


Row = tuple[int | None, int | None, int, bool]
"""Of the read model: balance, moves, version, whether it is deleted."""


class Stored(msgspec.Struct, frozen=True):
    id: str
    till: str
    version: int
    type: str
    payload: Any
    cause: str | None


def violations(
    ask: Ask, taken: Sequence[Message], tickets: Sequence[Ticket], acknowledged: Sequence[tuple[UUID, list[UUID]]]
) -> list[str]:
    """Sentences; none if every promise was kept."""
    events = history(ask)
    status = {str(id): told for id, told in ask("SELECT command_id, status FROM postroad_command_box")}
    return [
        *_effects(ask, events, status),
        *_answers(events, status, acknowledged),
        *_asked(ask, events, status, tickets),
        *_joined(ask, status),
        *_gaps(events),
        *_outbox(events, taken),
        *_rows(ask, events),
    ]


def history(ask: Ask) -> list[Stored]:
    return [
        Stored(str(id), till, version, type, msgspec.json.decode(bytes(payload)), cause)
        for id, till, version, type, payload, cause in ask(_EVENTS)
    ]


def _effects(ask: Ask, events: Sequence[Stored], status: dict[str, str]) -> Iterator[str]:
    """A command that is completed had its effect once, with all its events; any other has left nothing."""
    caused = Counter(event.cause for event in events)
    moved: dict[str, list[int]] = defaultdict(list)
    for id, count in ask("SELECT command_id, events FROM moved"):
        moved[id].append(count)
    for id in sorted({*status, *moved, *(cause for cause in caused if cause)}):
        told, effects = status.get(id, "nowhere"), moved[id]
        if len(effects) > 1:
            yield f"doubled: command {id} took effect {len(effects)} times"
        elif told == "COMPLETED" and not effects:
            yield f"lost: command {id} is completed and has no effect"
        elif told != "COMPLETED" and (effects or caused[id]):
            yield f"contradicted: command {id} is {told}, but took effect, with {caused[id]} events"
        elif effects and effects != [caused[id]]:
            yield f"lost: command {id} has {caused[id]} of its {effects[0]} events"


def _answers(
    events: Sequence[Stored], status: dict[str, str], acknowledged: Sequence[tuple[UUID, list[UUID]]]
) -> Iterator[str]:
    for id, told in acknowledged:
        if status.get(str(id)) != "COMPLETED":
            yield f"lost: a caller was told that command {id} is done, but it is {status.get(str(id))}"
        if {str(one) for one in told} != {event.id for event in events if event.cause == str(id)}:
            yield f"contradicted: a caller was told of other events of command {id} than there are"


def _asked(ask: Ask, events: Sequence[Stored], status: dict[str, str], tickets: Sequence[Ticket]) -> Iterator[str]:
    """What was written down with a business row is in the box, and nothing else; what was appended by hand is there."""
    asked = {(number, kind) for number, kind in ask("SELECT number, kind FROM asked")}
    for ticket in tickets:
        there = (ticket.number, ticket.kind) in asked
        if ticket.kind == "submitted" and there != (str(ticket.id) in status):
            yield f"{'lost' if there else 'phantom'}: command {ticket.id} and the row it was to commit with"
    by_hand = sum(kind == "by hand" for _, kind in asked)
    found = sum(event.cause is None for event in events)
    if by_hand != found:
        yield f"{'lost' if found < by_hand else 'phantom'}: {by_hand} events were appended by hand, there are {found}"


def _joined(ask: Ask, status: dict[str, str]) -> Iterator[str]:
    """What a handler brings about within its transaction is there if, and only if, the handler's effect is."""
    accounts = {account for (account,) in ask("SELECT account FROM effect WHERE consumer_group = 'picky'")}
    for account in ACCOUNTS:
        key = f"account/{account}"
        if (key in accounts) != (status.get(str(joined(key))) == "COMPLETED"):
            yield f"contradicted: {key} and the command within the handler of its events"


def _gaps(events: Sequence[Stored]) -> Iterator[str]:
    versions: dict[str, list[int]] = defaultdict(list)
    for event in events:
        versions[event.till].append(event.version)
        if event.payload.get("upon", event.version - 1) != event.version - 1:
            yield f"out of order: version {event.version} of till {event.till} was decided upon {event.payload['upon']}"
    for till, found in versions.items():
        if found != list(range(1, len(found) + 1)):
            yield f"out of order: the history of till {till} has the versions {found}"


def _outbox(events: Sequence[Stored], taken: Sequence[Message]) -> Iterator[str]:
    """What has left the outbox: its rows are pruned long before."""
    kept = {(event.id, event.till, event.version) for event in events}
    sent = {(str(one.id), one.aggregate_id, one.version) for one in taken if one.aggregate_type == "till"}
    for id, till, version in sorted(kept - sent):
        yield f"lost: domain event {id}, version {version} of till {till}, was never sent"
    for unknown in sorted(sent - kept, key=str):
        yield f"phantom: {unknown} was sent, but is no domain event"


def rows_of(events: Sequence[Stored]) -> dict[str, Row]:
    """The read model as the history makes it, folded here."""
    expected: dict[str, Row] = {}
    for event in events:
        balance, moves, _, deleted = expected.get(event.till, (0, 0, 0, False))
        match event.type:
            case "Sim.Till.Moved" if not deleted:
                balance, moves = (balance or 0) + event.payload["amount"], (moves or 0) + 1
            case "Sim.Till.Counted":
                balance, moves, deleted = event.payload["balance"], 0, False
            case "Sim.Till.Closed":
                balance, moves, deleted = None, None, True
        expected[event.till] = (balance, moves, event.version, deleted)
    return expected


def _rows(ask: Ask, events: Sequence[Stored]) -> Iterator[str]:
    expected = rows_of(events)
    rows = ask("SELECT till, balance, moves, version, deleted FROM till")
    found = {till: (balance, moves, version, bool(deleted)) for till, balance, moves, version, deleted in rows}
    for till in sorted(expected.keys() | found.keys()):
        if expected.get(till) != found.get(till):
            yield f"lost: the view of till {till} is {found.get(till)}, its history makes {expected.get(till)}"
