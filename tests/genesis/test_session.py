"""A session from its start to its end, on every database."""

import pytest

from examples.genesis import shelf, story
from examples.genesis.session import Session, Step
from examples.genesis.story import Stage
from examples.genesis.studio import Studio
from postroad.operations import orphans
from tests.support.studio import all_types, confirm_all, everything, until

pytestmark = pytest.mark.timeout(120)
everywhere = pytest.mark.parametrize("store_kind", ["sqlite", "postgresql", "mariadb"])

WHOLE = [
    "Genesis.Session.Started",
    "Genesis.Session.Theme.Requested",
    "Outliner.Theme.Generated",
    "Genesis.Session.Theme.Proposed",
    "Genesis.Session.Theme.Confirmed",
    "Genesis.Session.World.Requested",
    "Worldbuilder.World.Generated",
    "Genesis.Session.World.Proposed",
    "Genesis.Session.World.Confirmed",
    "Genesis.Session.Character.Requested",
    "Character.Profile.Generated",
    "Genesis.Session.Character.Proposed",
    "Genesis.Session.Character.Confirmed",
    "Genesis.Session.Plot.Requested",
    "Outliner.Plot.Generated",
    "Genesis.Session.Plot.Proposed",
    "Genesis.Session.Plot.Confirmed",
    "Genesis.Session.Finished",
]


@everywhere
@pytest.mark.spec("G1", "G5", "G11")
async def test_a_session_goes_through_all_its_stages_and_its_trace_is_one_whole_tree(studio: Studio) -> None:
    async with studio.road.running():
        id = await studio.start("Dawn", "a lighthouse")
        await confirm_all(studio, id)
        session = await until(studio, id, Step.FINISHED)
        await studio.road.drain()
    assert await all_types(studio) == WHOLE
    assert list(session.chosen) == list(Stage)
    assert session.chosen[Stage.WORLD].title in session.chosen[Stage.PLOT].text
    trace = await studio.trace(id)
    assert trace.correlation_id == f"flow-{id}"
    assert [step.type for step in trace.roots] == ["Command.Genesis.Session.Start"]
    assert trace.broken == []
    assert {step.state for step in trace} == {"COMPLETED", "SENT"}
    assert [step.type for step in trace if step.kind == "event"] == WHOLE
    # Each is the effect of the one before: a command of an event, an event of a command or of a request.
    assert [step.causation_id for step in trace] == [None, *(step.id for step in trace)][:-1]
    road = studio.road
    assert await orphans(road.store, road.outboxes, trace.steps[0].at) == []


@pytest.mark.spec("G11")
async def test_what_the_author_rejects_is_proposed_anew_until_it_pleases(studio: Studio) -> None:
    async with studio.road.running():
        id = await studio.start("Dawn")
        seen = []
        for round in (1, 2):
            session = await until(studio, id, Step.PROPOSED)
            seen.append(session.draft)
            await studio.answer(story.REJECT[Stage.THEME](id, round, "more sea"))
        third = await until(studio, id, Step.PROPOSED)
        await studio.answer(story.CONFIRM[Stage.THEME](id, 3))
        session = await until(studio, id, Step.PROPOSED)
    assert third.round == 3
    assert third.draft is not None
    assert len({draft.title for draft in [*seen, third.draft] if draft}) == 3
    assert "more sea" in third.draft.text
    assert (session.stage, session.chosen) == (Stage.WORLD, {Stage.THEME: third.draft})
    generated = [one.event.round for one in await everything(studio) if one.message.type == "Outliner.Theme.Generated"]
    assert generated == [1, 2, 3]
    assert (await studio.trace(id)).broken == []


async def test_the_read_model_knows_where_every_session_stands(studio: Studio) -> None:
    async with studio.road.running():
        done, waiting = await studio.start("Dawn"), await studio.start("Dusk")
        await confirm_all(studio, done)
        await studio.answer(story.REJECT[Stage.THEME](waiting, 1))
        await until(studio, waiting, Step.PROPOSED)
        await studio.road.drain()
    rows = {row["session_id"]: (row["title"], row["stage"], row["step"]) for row in await shelf.latest(studio.road)}
    assert rows == {done: ("Dawn", "", "finished"), waiting: ("Dusk", "Theme", "proposed")}


async def test_sessions_do_not_get_into_each_others_way(studio: Studio) -> None:
    async with studio.road.running():
        ids = [await studio.start(f"Story {n}") for n in range(5)]
        sessions = [await until(studio, id, Step.PROPOSED) for id in ids]
    assert {session.step for session in sessions} == {Step.PROPOSED}
    assert len({session.draft for session in sessions}) > 1


def test_a_fresh_session_is_nothing_yet() -> None:
    assert Session() == Session("", "", Step.NEW, None, 0, None, {})
