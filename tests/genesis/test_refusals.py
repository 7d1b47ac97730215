"""What a session says no to: the pure class alone, then the whole with a command box around it."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest

from examples.genesis import story
from examples.genesis.refusals import AlreadyStarted, DraftReplaced, OutOfOrder, SessionFinished, SessionNotFound
from examples.genesis.session import Session, Step
from examples.genesis.story import CONFIRM, PROPOSE, REJECT, REQUEST, Draft, Finish, Stage, Start
from examples.genesis.studio import Studio
from postroad.errors import CommandConflict, CommandRefused, ValidationFailed
from tests.support.studio import everything

DRAFT = Draft("The price of remembering", "A story.")
ID = "s-1"


def stage_by_stage() -> list[story.About]:
    """Every command of a session in the only order that leads to its end."""
    way: list[story.About] = [Start(ID, "Dawn")]
    for stage in Stage:
        way += [REQUEST[stage](ID), PROPOSE[stage](ID, 1, DRAFT), CONFIRM[stage](ID, 1)]
    return [*way, Finish(ID)]


def after(commands: Sequence[story.About]) -> Session:
    session = Session()
    for command in commands:
        for event in session.decide(command):
            session = session.evolve(event)
    return session


def test_the_whole_way_ends_in_a_finished_story() -> None:
    session = after(stage_by_stage())
    assert session.step is Step.FINISHED
    assert session.chosen == dict.fromkeys(Stage, DRAFT)


@pytest.mark.spec("G11")
def test_at_every_point_of_the_way_only_the_next_command_is_taken() -> None:
    way = stage_by_stage()
    for place in range(len(way) + 1):
        session = after(way[:place])
        taken = []
        for command in way:
            try:
                session.decide(command)
            except CommandRefused:
                continue
            taken.append(command)
        assert taken == way[place : place + 1]


@pytest.mark.parametrize(
    ("before", "command", "error"),
    [
        (0, Finish(ID), SessionNotFound),
        (1, Start(ID, "Dusk"), AlreadyStarted),
        (1, REQUEST[Stage.WORLD](ID), OutOfOrder),
        (1, Finish(ID), OutOfOrder),
        (2, CONFIRM[Stage.THEME](ID, 1), OutOfOrder),
        (2, REQUEST[Stage.THEME](ID), OutOfOrder),
        (3, PROPOSE[Stage.THEME](ID, 1, DRAFT), OutOfOrder),
        (3, CONFIRM[Stage.WORLD](ID, 1), OutOfOrder),
        (3, CONFIRM[Stage.THEME](ID, 2), DraftReplaced),
        (4, REJECT[Stage.THEME](ID, 1), OutOfOrder),
        (14, REJECT[Stage.PLOT](ID, 1), SessionFinished),
    ],
)
def test_a_command_out_of_order_is_refused_by_an_error_of_its_own(
    before: int, command: story.About, error: type[Exception]
) -> None:
    with pytest.raises(error):
        after(stage_by_stage()[:before]).decide(command)


def test_a_draft_that_was_rejected_cannot_be_confirmed_by_a_late_click() -> None:
    session = after([*stage_by_stage()[:3], REJECT[Stage.THEME](ID, 1, "more sea"), PROPOSE[Stage.THEME](ID, 2, DRAFT)])
    with pytest.raises(DraftReplaced, match="draft 1 of the Theme, but draft 2"):
        session.decide(CONFIRM[Stage.THEME](ID, 1))
    with pytest.raises(DraftReplaced):
        session.decide(PROPOSE[Stage.THEME](ID, 1, DRAFT))


@pytest.mark.parametrize("store_kind", ["sqlite", "postgresql", "mariadb"])
@pytest.mark.spec("G11")
async def test_every_command_asked_twice_is_done_once(studio: Studio) -> None:
    way = [*stage_by_stage()[:3], REJECT[Stage.THEME](ID, 1, "more sea"), PROPOSE[Stage.THEME](ID, 2, DRAFT)]
    way += [CONFIRM[Stage.THEME](ID, 2), *stage_by_stage()[4:]]
    assert {type(command) for command in way} >= {type(command) for command in stage_by_stage()}
    for command in way:
        id = uuid4()
        first = await studio.road.execute(command, command_id=id)
        assert first
        assert list(await studio.road.execute(command, command_id=id)) == list(first)
    # A rejection is two events: rejected, and requested once more.
    assert len(await everything(studio)) == len(way) + 1


@pytest.mark.parametrize("stage", list(Stage))
async def test_a_rejection_asked_twice_asks_for_one_new_draft(studio: Studio, stage: Stage) -> None:
    for command in stage_by_stage()[: 3 * (list(Stage).index(stage) + 1)]:
        await studio.road.execute(command)
    id = uuid4()
    for _ in range(2):
        events = await studio.road.execute(REJECT[stage](ID, 1), command_id=id)
        assert [one.message.type.rpartition(".")[2] for one in events] == ["Rejected", "Requested"]
    assert (await studio.session(ID)).round == 2


async def test_what_is_refused_leaves_nothing_behind(studio: Studio) -> None:
    id = await studio.start("Dawn")
    before = await everything(studio)
    with pytest.raises(OutOfOrder):
        await studio.answer(CONFIRM[Stage.THEME](id, 1))
    with pytest.raises(SessionNotFound):
        await studio.answer(CONFIRM[Stage.THEME]("nobody", 1))
    assert await everything(studio) == before


@pytest.mark.parametrize("given", [{"title": " "}, {"title": "x" * 201}, {"title": "x", "idea": "x" * 201}])
async def test_a_bad_field_is_named(studio: Studio, given: dict[str, Any]) -> None:
    with pytest.raises(ValidationFailed, match=f"field {list(given)[-1]}: must have"):
        await studio.start(**given)


async def test_one_id_for_two_stories_is_a_conflict(studio: Studio) -> None:
    id = uuid4()
    assert await studio.start("Dawn", command_id=id) == await studio.start("Dawn", command_id=id)
    with pytest.raises(CommandConflict):
        await studio.start("Dusk", command_id=id)
