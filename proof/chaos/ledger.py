"""The books: what is in the database against what happened to it."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from sqlalchemy import text

from postroad import Postroad
from proof.chaos.bank import GROUPS
from proof.chaos.journal import Journal, Outcome
from proof.chaos.purse_ledger import Purses, collect_purses


class Payment(NamedTuple):
    id: str
    transfer: str
    account: str


class Effect(NamedTuple):
    consumer: str
    payment: str
    account: str
    version: int


class Appearance(NamedTuple):
    """A message in the broker's log."""

    event_id: str
    account: str
    version: int


@dataclass(frozen=True)
class Books:
    lost: int = 0
    """Effects that a committed payment lacks; payments that were committed for certain and are not there."""
    phantom: int = 0
    """Effects without a payment; payments that were rolled back for certain and are there."""
    doubled: int = 0
    out_of_order: int = 0
    """First effects of an account in another order than their versions, in any group, where order is promised."""
    wire_out_of_order: int = 0
    """First appearances in the broker's log in another order than their versions."""
    wire_missing: int = 0
    """Payments more than there are events in the broker's log: then its order proves nothing."""
    commands_wrong: int = 0
    """Commands whose state is contradicted by their effects, their events or what their callers were told."""
    outbox_wrong: int = 0
    """Domain events without their outbox row, or the other way round."""
    read_model_wrong: int = 0
    """Rows of the read model other than the outbox makes them."""
    unmended: int = 0
    """Events that were missing before any was taken away on purpose, or are missing after the repair."""

    @property
    def balanced(self) -> bool:
        return not any(asdict(self).values())


@dataclass(frozen=True)
class Evidence:
    payments: Sequence[Payment]
    effects: Sequence[Effect]
    """In the order in which they happened."""
    appearances: Sequence[Appearance]
    """In the order in which the broker took them."""
    journal: Journal
    in_order: int | None = None
    """How many of the effects are promised to be in order, from the first on; None: all."""
    purses: Purses = field(default_factory=Purses)
    unmended: int = 0

    @property
    def out_of_order_unpromised(self) -> int | None:
        return None if self.in_order is None else self._out_of_order(None) - self._out_of_order(self.in_order)

    def _out_of_order(self, first: int | None) -> int:
        return _inversions(
            ((effect.consumer, effect.payment), (effect.consumer, effect.account), effect.version)
            for effect in self.effects[:first]
        )

    @property
    def wire_duplicates(self) -> int:
        return len(self.appearances) - self._events_on_the_wire

    @property
    def _events_on_the_wire(self) -> int:
        return len({appearance.event_id for appearance in self.appearances})

    @property
    def unknown_but_there(self) -> int:
        """Transfers whose commit was reported as failed, and had happened."""
        return len(self.journal.of(Outcome.UNKNOWN) & {payment.transfer for payment in self.payments})

    def books(self, groups: Iterable[str] = GROUPS) -> Books:
        happened = {(effect.consumer, effect.payment) for effect in self.effects}
        due = {(group, payment.id) for group in groups for payment in self.payments}
        there = {payment.transfer for payment in self.payments}
        undone = self.journal.of(Outcome.UNDONE)
        return Books(
            lost=len(due - happened) + len(self.journal.of(Outcome.KEPT) - there),
            phantom=len(happened - due) + sum(payment.transfer in undone for payment in self.payments),
            doubled=len(self.effects) - len(happened),
            out_of_order=self._out_of_order(self.in_order),
            wire_out_of_order=_inversions(self.appearances),
            wire_missing=max(0, len(self.payments) - self._events_on_the_wire),
            commands_wrong=self.purses.contradictions,
            outbox_wrong=self.purses.outbox_differs,
            read_model_wrong=self.purses.rows_wrong,
            unmended=self.unmended,
        )


async def collect(
    road: Postroad,
    appearances: Sequence[Appearance],
    journal: Journal,
    in_order_until: int | None = None,
    commands: Journal | None = None,
    unmended: int = 0,
) -> Evidence:
    """`in_order_until` is the id of the last effect that was promised to be in order, `commands` what those who asked
    for commands were told."""
    async with road.store.reading() as connection:
        payments = (await connection.execute(text("SELECT id, transfer, account FROM payment"))).fetchall()
        effects = (
            await connection.execute(text("SELECT id, consumer, payment, account, version FROM effect ORDER BY id"))
        ).fetchall()
    in_order = None if in_order_until is None else sum(id <= in_order_until for id, *_ in effects)
    found = [Effect(*effect) for _, *effect in effects]
    purses = await collect_purses(road, commands or Journal())
    return Evidence([Payment(*row) for row in payments], found, appearances, journal, in_order, purses, unmended)


def _inversions(sequence: Iterable[tuple[object, object, int]]) -> int:
    """Of (what, key, version): how many come for the first time after a higher version of their key."""
    seen: set[object] = set()
    highest: dict[object, int] = {}
    wrong = 0
    for what, key, version in sequence:
        if what not in seen:
            seen.add(what)
            wrong += version < highest.get(key, 0)
            highest[key] = max(version, highest.get(key, 0))
    return wrong
