"""A request and its answer under every fault: a process dies at each commit and each publish, messages come twice,
late, or to a worker that stalls. There is one answer in the end, and it is the same."""

from typing import Any
from uuid import UUID

import pytest

from examples.genesis import story, workers
from examples.genesis.session import Session
from examples.genesis.story import Stage
from examples.genesis.studio import decide
from postroad import Postroad
from postroad.testing import rows

START, REQUEST = UUID("00000000-0001-7000-8000-000000000001"), UUID("00000000-0001-7000-8000-000000000002")


def build(database_url: str) -> Postroad:
    road = Postroad("genesis", database_url)
    for command in story.declare_commands(road):
        road.handles(command, state=Session)(decide)
    workers.install(road)
    for event in (story.Started, story.GENERATED[Stage.THEME]):  # the page's
        road.on(event, group="page")(lambda event: None)
    return road


async def a_theme_is_requested(road: Postroad) -> None:
    await road.execute(story.Start("s-1", "Dawn"), command_id=START)
    await road.execute(story.REQUEST[Stage.THEME]("s-1"), command_id=REQUEST)


async def seen(road: Postroad) -> list[Any]:
    return list(await rows(road, "SELECT event_type, aggregate_version, payload FROM postroad_domain_events"))


@pytest.mark.spec("G11")
def test_an_answer_survives_every_fault(survives: Any) -> None:
    survives(build, a_theme_is_requested, outcome=seen)
