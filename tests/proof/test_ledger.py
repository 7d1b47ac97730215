"""The ledger finds what it is there to find. One that cannot fail proves nothing."""

from dataclasses import replace

import pytest

from proof.chaos.journal import Journal, Outcome
from proof.chaos.ledger import Appearance, Books, Effect, Evidence, Payment
from proof.chaos.purse_ledger import Leg, Purses, Row

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


# --- commands, and the read model of what they did ----------------------------------------------------

LEGS = [
    Leg("e1", "c1", "p", 1, -5),
    Leg("e2", "c1", "q", 1, 5),
    Leg("e3", "c2", "q", 2, -2),
    Leg("e4", "c2", "p", 2, 2),
]
PURSES = Purses(
    commands={"c1": "COMPLETED", "c2": "COMPLETED", "c3": "FAILED", "c4": "FAILED"},
    effects=["c1", "c2"],
    events=LEGS,
    outbox=LEGS,
    rows={"p": Row(-3, 2, 2), "q": Row(3, 2, 2)},
    journal=Journal({"c1": Outcome.KEPT, "c2": Outcome.UNKNOWN, "c3": Outcome.UNDONE, "c4": Outcome.UNKNOWN}),
)


def purses_books(**changes: object) -> Books:
    return replace(SOUND, purses=replace(PURSES, **changes)).books()  # type: ignore[arg-type]


def test_a_command_of_unknown_outcome_may_be_completed_or_not() -> None:
    assert purses_books() == Books()
    assert PURSES.completed == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"effects": ["c1"]},
        {"effects": ["c1", "c2", "c2"]},
        {"effects": ["c1", "c2", "c4"]},
        {"effects": ["c1", "c2", "c9"]},
        {"events": LEGS[:3], "outbox": LEGS[:3], "rows": {"p": Row(-5, 1, 1), "q": Row(3, 2, 2)}},
        {"commands": PURSES.commands | {"c2": "FAILED"}},
        {"commands": PURSES.commands | {"c2": "PROCESSING"}},
        {"journal": Journal({"c4": Outcome.KEPT})},
        {"journal": Journal({"c9": Outcome.KEPT})},
        {"journal": Journal({"c1": Outcome.UNDONE})},
    ],
    ids=[
        "completed without its effect", "its effect twice", "failed with an effect", "an effect of nobody",
        "completed without one of its events", "failed with events", "without an end",
        "failed, its caller was told yes", "unknown, its caller was told yes", "completed, its caller was told no",
    ],
)  # fmt: skip
def test_a_command_that_is_contradicted_is_found(changes: dict[str, object]) -> None:
    assert purses_books(**changes) == Books(commands_wrong=1)


def test_a_domain_event_that_is_not_in_the_outbox_is_found_and_the_other_way_round() -> None:
    assert purses_books(outbox=LEGS[:3], rows={"p": Row(-5, 1, 1), "q": Row(3, 2, 2)}) == Books(outbox_wrong=1)
    assert purses_books(outbox=[*LEGS, Leg("e5", "", "r", 1, 0)], rows=PURSES.rows | {"r": Row(0, 1, 1)}) == Books(
        outbox_wrong=1
    )


@pytest.mark.parametrize("row", [Row(-1, 3, 2), Row(-5, 1, 1), Row(-3, 2, 3), None], ids=str)
def test_a_row_of_the_read_model_that_is_not_what_the_outbox_says_is_found(row: Row | None) -> None:
    rows = {purse: found for purse, found in {**PURSES.rows, "p": row}.items() if found}
    assert purses_books(rows=rows) == Books(read_model_wrong=1)


def test_what_is_missing_after_the_repair_is_found() -> None:
    assert replace(SOUND, unmended=2).books() == Books(unmended=2)
