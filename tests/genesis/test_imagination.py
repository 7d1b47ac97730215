"""The same request gives the same draft, and the next round another one."""

import os
import subprocess
import sys

import pytest

from examples.genesis.imagination import imagine
from examples.genesis.story import REQUESTED, Draft, Stage
from tests.support.components import ROOT

CHOSEN: dict[str, Draft] = {stage: Draft(f"The {stage}", "…") for stage in Stage}


def draft(stage: Stage, session: str = "s-1", round: int = 1, wish: str = "") -> Draft:
    return imagine(REQUESTED[stage](session, round, "a lighthouse", wish, CHOSEN))


@pytest.mark.parametrize("stage", list(Stage))
def test_five_rounds_give_five_drafts_and_ten_sessions_more_than_one(stage: Stage) -> None:
    assert len({draft(stage, round=round).title for round in range(1, 6)}) == 5
    assert len({draft(stage, f"s-{n}").title for n in range(10)}) > 2
    assert draft(stage, round=400).text


def test_drafts_build_on_what_was_said_and_chosen() -> None:
    assert "a lighthouse" in draft(Stage.THEME).text
    assert "The World" in draft(Stage.CHARACTER).text
    assert all(f"The {stage}" in draft(Stage.PLOT).text for stage in (Stage.WORLD, Stage.CHARACTER))
    assert "more sea" in draft(Stage.WORLD, wish="more sea").text


def test_another_process_imagines_the_same() -> None:
    code = "from tests.genesis.test_imagination import *; print(repr(draft(Stage.PLOT)))"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, check=True)
    assert told.stdout.decode().strip() == repr(draft(Stage.PLOT))
