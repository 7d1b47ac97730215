"""The books of the purses: commands, their events, the outbox and the read model against each other."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import select, text

from postroad import Postroad
from proof.chaos.journal import Journal, Outcome
from proof.chaos.purses import LEGS, PURSE

_COMMANDS = text("SELECT command_id, status FROM postroad_command_box")
_EVENTS = text("SELECT event_id, causation_id, aggregate_id, aggregate_version, payload FROM postroad_domain_events")
_SENT = text(
    "SELECT event_id, causation_id, aggregate_id, version, payload FROM postroad_outbox WHERE aggregate_type = 'purse'"
)


class Leg(NamedTuple):
    """What one event says, in the event store or in the outbox."""

    id: str
    command: str
    purse: str
    version: int
    amount: int


class Row(NamedTuple):
    balance: int
    moves: int
    version: int


@dataclass(frozen=True)
class Purses:
    commands: Mapping[str, str] = field(default_factory=dict)
    """Their states, by id."""
    effects: Sequence[str] = ()
    """Ids of the commands that left a row."""
    events: Sequence[Leg] = ()
    outbox: Sequence[Leg] = ()
    rows: Mapping[str, Row] = field(default_factory=dict)
    journal: Journal = field(default_factory=Journal)
    """What the callers were told."""

    @property
    def completed(self) -> int:
        return sum(status == "COMPLETED" for status in self.commands.values())

    @property
    def contradictions(self) -> int:
        """Commands that are completed without having had their effect and all their events once, that are not and had
        some, or whose callers were told something else."""
        effects, legs = Counter(self.effects), Counter(event.command for event in self.events)
        told = self.journal.of(Outcome.KEPT) | self.journal.of(Outcome.UNDONE)
        return sum(
            (effects[id], legs[id]) != ((1, LEGS) if self._is_done(id) else (0, 0))
            or (id in told and self._is_done(id) != (self.journal.outcomes[id] is Outcome.KEPT))
            for id in {*self.commands, *effects, *legs, *told}
        )

    def _is_done(self, id: str) -> bool:
        return self.commands.get(id) == "COMPLETED"

    @property
    def outbox_differs(self) -> int:
        """Events that are in the event store only, or in the outbox only."""
        return len(set(self.events) ^ set(self.outbox))

    @property
    def rows_wrong(self) -> int:
        """Rows of the read model that are other than the outbox makes them."""
        made: dict[str, Row] = {}
        for leg in sorted(self.outbox, key=lambda leg: leg.version):
            before = made.get(leg.purse, Row(0, 0, 0))
            made[leg.purse] = Row(before.balance + leg.amount, before.moves + 1, leg.version)
        return sum(made.get(purse) != self.rows.get(purse) for purse in made.keys() | self.rows.keys())


async def collect_purses(road: Postroad, journal: Journal) -> Purses:
    def legs(rows: Sequence[Any]) -> list[Leg]:
        return [
            Leg(str(id_out(id)), cause or "", purse, version, msgspec.json.decode(bytes(payload))["amount"])
            for id, cause, purse, version, payload in rows
        ]

    id_out = road.store.id_out
    async with road.store.reading() as connection:
        commands = (await connection.execute(_COMMANDS)).fetchall()
        effects = (await connection.execute(text("SELECT command_id FROM moved"))).scalars().all()
        events = (await connection.execute(_EVENTS)).fetchall()
        outbox = (await connection.execute(_SENT)).fetchall()
        rows = (await connection.execute(select(PURSE))).fetchall()
    return Purses(
        commands={str(id_out(id)): status for id, status in commands},
        effects=effects,
        events=legs(events),
        outbox=legs(outbox),
        rows={row.purse: Row(row.balance, row.moves, row.version) for row in rows},
        journal=journal,
    )
