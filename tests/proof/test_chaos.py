"""The short campaign, on every store with one broker and on every broker; the ledger must balance and enough must
have been done to it. `make chaos` takes each store to each broker."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from proof.chaos.ground import STORES
from proof.chaos.servers import installed
from tests.support.components import ROOT, missing


@pytest.mark.timeout(420)
@pytest.mark.spec("F4", "F5", "P6", "T6")
def test_nothing_is_lost_invented_doubled_or_reordered(
    tmp_path: Path, sqlite_url: str, postgresql_url: str, mariadb_url: str
) -> None:
    """Servers of its own, which it may restart; the fixtures only name the components."""
    balanced(tmp_path, STORES, "embedded")


@pytest.mark.timeout(420)
@pytest.mark.spec("F4", "F5", "P6", "T6")
def test_nothing_is_lost_invented_doubled_or_reordered_on_rabbitmq(
    tmp_path: Path, mariadb_url: str, rabbitmq_url: str
) -> None:
    balanced(tmp_path, ["mariadb"], "rabbitmq")


@pytest.mark.timeout(420)
@pytest.mark.spec("F4", "F5", "P6", "T6")
def test_nothing_is_lost_invented_doubled_or_reordered_on_kafka(tmp_path: Path, kafka_url: str) -> None:
    balanced(tmp_path, ["sqlite"], "kafka")


@pytest.mark.timeout(420)
@pytest.mark.spec("F4", "F5", "P6", "T6")
def test_nothing_is_lost_invented_or_doubled_on_pubsub_nor_reordered_while_streams_last(
    tmp_path: Path, pubsub_url: str
) -> None:
    (result,) = balanced(tmp_path, ["sqlite"], "pubsub")
    assert result["in_order"] >= 200
    assert result["not_possible"] == ["broker_restarts"]


def balanced(folder: Path, stores: Sequence[str], broker: str) -> list[dict[str, Any]]:
    for name in (*stores, broker):
        if name not in ("sqlite", "embedded") and not installed(name):
            missing(name, "its programs are not installed, and this test restarts it")
    report = folder / "chaos.json"
    path = os.pathsep.join(["src", ".", *filter(None, sys.path)])
    chosen = [argument for store in stores for argument in ("--store", store)]
    done = subprocess.run(
        [sys.executable, "-m", "proof.chaos", "--seed", "11", "--json", str(report), "--broker", broker, *chosen],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    results: list[dict[str, Any]] = json.loads(report.read_text())["results"]
    assert [(one["store"], one["broker"]) for one in results] == [(store, broker) for store in stores]
    for result in results:
        assert set(result["books"].values()) == {0}
        assert result["shortfalls"] == result["crashes"] == []
    return results
