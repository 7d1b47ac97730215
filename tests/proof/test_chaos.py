"""The short campaign, on every store with one broker and on every broker; the ledger must balance and enough must
have been done to it. `make chaos` takes each store to each broker."""

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proof.chaos import storm
from proof.chaos.bank import LEASE, ack_deadline
from proof.chaos.ground import STORES
from proof.chaos.plan import SHORT
from proof.chaos.servers import installed
from proof.chaos.storm import Storm
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
def test_nothing_is_lost_invented_doubled_or_reordered_on_kafka(
    tmp_path: Path, postgresql_url: str, kafka_url: str
) -> None:
    balanced(tmp_path, ["postgresql"], "kafka")


@pytest.mark.timeout(420)
@pytest.mark.spec("F4", "F5", "P6", "T6")
def test_nothing_is_lost_invented_or_doubled_on_pubsub_nor_reordered_while_streams_last(
    tmp_path: Path, pubsub_url: str
) -> None:
    (result,) = balanced(tmp_path, ["sqlite"], "pubsub")
    assert result["in_order"] >= 200
    assert result["not_possible"] == ["broker_restarts"]


class Nobody:
    """A fleet of no processes, and the ground on which it stands."""

    broker_url = "embedded:"
    database = broker = None

    def __init__(self) -> None:
        self.thawed = asyncio.Event()

    def freeze(self, name: str) -> bool:
        return True

    def thaw(self, name: str) -> None:
        self.thawed.set()


class Loaded(random.Random):
    """Dice that always fall on the same side."""

    def __init__(self, side: float) -> None:
        super().__init__(0)
        self._side = side

    def random(self) -> float:
        return self._side


@pytest.mark.parametrize(("side", "counted"), [(0.0, False), (0.99, True)], ids=["a writer", "a relay or a worker"])
async def test_only_who_has_a_lease_is_stalled_past_it(
    monkeypatch: pytest.MonkeyPatch, side: float, counted: bool
) -> None:
    monkeypatch.setattr(storm, "_PAST", 0.001)
    nobody: Any = Nobody()
    raging = Storm(replace(SHORT["embedded"], stall_every=0.0), nobody, nobody, nobody, Loaded(side))
    freezing = asyncio.create_task(raging._freeze())
    await nobody.thawed.wait()
    freezing.cancel()
    assert (raging.tally.freezes > 0) == counted


def test_a_worker_is_stalled_past_its_deadline_too_where_that_is_early() -> None:
    nobody: Any = Nobody()
    raging = Storm(SHORT["embedded"], nobody, nobody, nobody, random.Random(0))
    assert raging._past_lease("worker-1") > ack_deadline("embedded:") > raging._past_lease("relay-1") > LEASE
    nobody.broker_url = "pubsub:x"
    assert ack_deadline("pubsub:x") > raging._past_lease("worker-1") > LEASE


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
    told = json.loads(report.read_text())
    results: list[dict[str, Any]] = told["results"]
    assert told["total"]["kills"] == sum(result["tally"]["kills"] for result in results)
    assert told["total"]["stalls"] == sum(result["stalls"] for result in results)
    assert [(one["store"], one["broker"]) for one in results] == [(store, broker) for store in stores]
    for result in results:
        assert set(result["books"].values()) == {0}
        assert result["shortfalls"] == result["crashes"] == []
    return results
