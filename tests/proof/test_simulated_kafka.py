"""The simulator with Kafka's adapter, on a model of Kafka's rules: from the outbox to the handler's effect."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proof.simulator.faults import KAFKA_PUBLISH, KAFKA_REQUEST, KAFKA_SERVER
from proof.simulator.runs import simulator
from proof.simulator.world import LEAST_FAULTS

ROOT = Path(__file__).parents[2]
SEEDS = 150
# Whoever is killed leaves its connections behind.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.timeout(600)
def test_over_kafka_too_no_seed_breaks_a_promise(tmp_path: Path) -> None:
    figures_file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "proof.simulator", "--broker", "kafka"]
    done = subprocess.run(
        [*command, "--seeds", str(SEEDS), "--json", str(figures_file)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(figures_file.read_text())
    assert figures["seeds"] == SEEDS
    assert figures["fewest faults of a seed"] >= LEAST_FAULTS
    assert figures["by kind"]["dismissed"] > SEEDS
    assert figures["by kind"].keys() >= {*KAFKA_PUBLISH, *KAFKA_REQUEST, *KAFKA_SERVER}


def test_a_member_that_leaves_unheard_keeps_no_partitions(quiet: None) -> None:
    with simulator(broker="kafka") as one:
        assert one.run(1552).violations == []


def test_over_kafka_too_the_same_seed_is_the_same_story(quiet: None) -> None:
    with simulator(broker="kafka") as one:
        first, second = (one.run(1, tracing=True).trace for _ in range(2))
    assert len(first) > 300
    assert first == second
