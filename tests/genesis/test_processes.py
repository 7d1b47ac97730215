"""The capabilities as processes of their own, and what is left of it when they are killed."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from examples.genesis import story
from examples.genesis.session import Step
from examples.genesis.story import CAPABILITIES, Stage
from examples.genesis.studio import STUDIO, Studio
from postroad.subscriber import SubscriberOptions
from tests.genesis.test_session import WHOLE
from tests.support.components import ROOT
from tests.support.studio import all_types, until

pytestmark = pytest.mark.timeout(180)
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
DEADLINE = 1.0
"""Seconds until a dead worker's request goes to another."""


@pytest.fixture
async def studio(database_url: str, broker_address: str) -> AsyncIterator[Studio]:
    studio = Studio(database_url, broker_address, subscriber=SubscriberOptions(ack_deadline=DEADLINE))
    await studio.prepare()
    yield studio
    await studio.aclose()


@asynccontextmanager
async def hesitant(studio: Studio, group: str) -> AsyncIterator[asyncio.subprocess.Process]:
    road = studio.road
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.hesitant_worker",
        road.database_url,
        road.broker_url,
        group,
        str(DEADLINE),
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        await process.communicate()


async def killed_when_asked(studio: Studio, stage: Stage) -> None:
    async with hesitant(studio, CAPABILITIES[stage][0]) as process:
        assert process.stdout is not None
        assert await process.stdout.readline() == f"asked for {stage}\n".encode()


@pytest.mark.parametrize("store_kind", ["postgresql"])
@pytest.mark.spec("G11")
async def test_workers_killed_between_request_and_answer_propose_once(studio: Studio) -> None:
    async with studio.road.running(groups=STUDIO):
        id = await studio.start("Dawn")
        for stage in Stage:
            if stage is not Stage.PLOT:  # the Outliner's second
                await killed_when_asked(studio, stage)
                assert (await studio.session(id)).step is Step.REQUESTED
            async with studio.road.running(relay=False, groups=[CAPABILITIES[stage][0]]):
                await until(studio, id, Step.PROPOSED)
            await studio.answer(story.CONFIRM[stage](id, 1))
        await until(studio, id, Step.FINISHED)
    assert await all_types(studio) == WHOLE
    assert (await studio.trace(id)).broken == []


def postroad(*words: str, **environment: str) -> Any:
    command = [sys.executable, "-m", "postroad", *words, "--json"]
    told = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT | environment, capture_output=True, text=True, check=True)
    return json.loads(told.stdout)


@pytest.mark.spec("G1")
def test_every_name_is_in_order_and_every_command_has_its_event(tmp_path: Path) -> None:
    found = postroad("names", "check", "examples.genesis.road:road", DATABASE_URL=f"sqlite:///{tmp_path / 'x.db'}")
    assert found["faults"] == []
    assert len(found["commands"]) == 18
    assert set(found["commands"].values()) | {name for _, name in CAPABILITIES.values()} == set(found["events"])
    assert set(WHOLE) <= set(found["events"])


@pytest.mark.spec("G5")
async def test_the_command_trace_shows_the_whole_tree(studio: Studio) -> None:
    async with studio.road.running():
        id = await studio.start("Dawn")
        await until(studio, id, Step.PROPOSED)
        await studio.answer(story.REJECT[Stage.THEME](id, 1, "more sea"))
        await until(studio, id, Step.PROPOSED)
    addresses = {"DATABASE_URL": studio.road.database_url, "BROKER_URL": studio.road.broker_url}
    found = await asyncio.to_thread(postroad, "trace", f"flow-{id}", "--app", "examples.genesis.road:road", **addresses)
    assert found["broken"] == []
    steps = {step["id"]: step for step in found["steps"]}

    def way(id: str | None) -> list[str]:
        return [*way(steps[id]["causation_id"]), steps[id]["type"].removeprefix("Genesis.Session.")] if id else []

    assert way(found["steps"][-1]["id"]) == [
        "Command.Genesis.Session.Start",
        "Started",
        "Command.Genesis.Session.Theme.Request",
        "Theme.Requested",
        "Outliner.Theme.Generated",
        "Command.Genesis.Session.Theme.Propose",
        "Theme.Proposed",
        "Command.Genesis.Session.Theme.Reject",
        "Theme.Requested",
        "Outliner.Theme.Generated",
        "Command.Genesis.Session.Theme.Propose",
        "Theme.Proposed",
    ]
