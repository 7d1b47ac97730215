"""The ledger finds what it is there to find. One that cannot fail proves nothing."""

from dataclasses import replace

import pytest

from proof.chaos.ledger import Appearance, Books, Effect, Evidence, Payment
from proof.chaos.writer import Journal, Outcome

PAYMENTS = [Payment("p1", "t1", "a"), Payment("p2", "t1", "a"), Payment("p3", "t2", "b")]
VERSIONS = {"p1": 1, "p2": 2, "p3": 1}
EFFECTS = [
    Effect(group, payment.id, payment.account, VERSIONS[payment.id])
    for group in ("alpha", "beta")
    for payment in PAYMENTS
]
APPEARANCES = [Appearance(f"e-{payment.id}", payment.account, VERSIONS[payment.id]) for payment in PAYMENTS]
JOURNAL = Journal({"t1": Outcome.KEPT, "t2": Outcome.UNKNOWN, "t3": Outcome.UNDONE, "t4": Outcome.UNKNOWN})
SOUND = Evidence(PAYMENTS, EFFECTS, APPEARANCES, JOURNAL)


def test_sound_books_balance() -> None:
    assert SOUND.books() == Books()
    assert SOUND.books().balanced


def test_a_commit_of_unknown_outcome_may_be_there_or_not() -> None:
    assert SOUND.unknown_but_there == 1


@pytest.mark.parametrize("missing", EFFECTS)
def test_a_missing_effect_is_lost(missing: Effect) -> None:
    found = replace(SOUND, effects=[effect for effect in EFFECTS if effect != missing]).books()
    assert found.lost == 1
    assert not found.balanced


def test_a_payment_that_was_committed_for_certain_and_is_gone_is_lost() -> None:
    journal = Journal(JOURNAL.outcomes | {"t9": Outcome.KEPT})
    assert replace(SOUND, journal=journal).books() == Books(lost=1)


def test_an_effect_without_a_payment_is_a_phantom() -> None:
    effects = [*EFFECTS, Effect("alpha", "p9", "c", 1)]
    assert replace(SOUND, effects=effects).books() == Books(phantom=1)


def test_a_payment_that_was_rolled_back_for_certain_and_is_there_is_a_phantom() -> None:
    rolled_back = Payment("p9", "t3", "c")
    effects = [*EFFECTS, Effect("alpha", "p9", "c", 1), Effect("beta", "p9", "c", 1)]
    appearances = [*APPEARANCES, Appearance("e-p9", "c", 1)]
    found = replace(SOUND, payments=[*PAYMENTS, rolled_back], effects=effects, appearances=appearances).books()
    assert found == Books(phantom=1)


@pytest.mark.parametrize("again", EFFECTS)
def test_an_effect_that_happened_twice_is_doubled_and_not_out_of_order(again: Effect) -> None:
    assert replace(SOUND, effects=[*EFFECTS, again]).books() == Books(doubled=1)


def test_an_effect_before_its_predecessor_is_out_of_order() -> None:
    effects = [EFFECTS[1], EFFECTS[0], *EFFECTS[2:]]
    assert replace(SOUND, effects=effects).books() == Books(out_of_order=1)


def test_another_groups_order_does_not_matter() -> None:
    effects = [EFFECTS[0], EFFECTS[3], EFFECTS[4], EFFECTS[1], EFFECTS[2], EFFECTS[5]]
    assert replace(SOUND, effects=effects).books() == Books()


def test_a_first_appearance_behind_a_later_version_is_out_of_order_on_the_wire() -> None:
    appearances = [APPEARANCES[1], APPEARANCES[0], APPEARANCES[2]]
    assert replace(SOUND, appearances=appearances).books() == Books(wire_out_of_order=1)


def test_a_second_appearance_is_a_duplicate_and_not_out_of_order() -> None:
    found = replace(SOUND, appearances=[*APPEARANCES, APPEARANCES[0]])
    assert found.books() == Books()
    assert found.wire_duplicates == 1


def test_a_payment_that_never_appeared_is_missing_on_the_wire() -> None:
    found = replace(SOUND, appearances=[*APPEARANCES[1:], APPEARANCES[1]]).books()
    assert found == Books(wire_missing=1)


def test_where_order_is_promised_for_a_time_only_what_came_later_is_counted_apart() -> None:
    effects = [EFFECTS[1], EFFECTS[0], EFFECTS[2], EFFECTS[4], EFFECTS[3], EFFECTS[5]]
    found = replace(SOUND, effects=effects, in_order=3)
    assert found.books() == Books(out_of_order=1)
    assert found.out_of_order_unpromised == 1
    assert replace(found, in_order=1).books() == Books()
    assert SOUND.out_of_order_unpromised is None
