"""The short campaign, every store with every broker: the ledger must balance, and enough must have been done to it."""

import asyncio
import json
import os
import random
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from proof.chaos import __main__ as command
from proof.chaos import pairs, storm
from proof.chaos.bank import LEASE, SUBSCRIPTIONS, ack_deadline, found, make_road, pay
from proof.chaos.brokers import EMBEDDED, WIRES, Wire
from proof.chaos.campaign import NotAtRest, Result, _drained
from proof.chaos.ledger import Books
from proof.chaos.plan import SHORT, STORES, Tally
from proof.chaos.report import left_in_broker
from proof.chaos.servers import installed
from proof.chaos.storm import Storm
from tests.support.components import ROOT, missing


@pytest.mark.timeout(900)
@pytest.mark.spec("F4", "F5", "P6", "T6")
def test_nothing_is_lost_invented_doubled_or_reordered_on_any_store_with_any_broker(
    tmp_path: Path,
    sqlite_url: str,
    postgresql_url: str,
    mariadb_url: str,
    rabbitmq_url: str,
    kafka_url: str,
    pubsub_url: str,
) -> None:
    """Servers of its own, which it may restart; the fixtures only name the components."""
    told = campaigned(tmp_path / "chaos.json")
    results = told["results"]
    assert told["not_at_rest"] == []
    assert [(one["store"], one["broker"]) for one in results] == list(product(STORES, (wire.name for wire in WIRES)))
    assert told["total"]["kills"] == sum(result["tally"]["kills"] for result in results)
    assert told["total"]["stalls"] == sum(result["stalls"] for result in results)
    assert 0 < max(result["seconds"] for result in results) <= told["total"]["seconds"]
    for result in results:
        assert set(result["books"].values()) == {0}
        assert result["shortfalls"] == result["crashes"] == []
        on_pubsub = result["broker"] == "pubsub"
        assert result["not_possible"] == (["broker_restarts"] if on_pubsub else [])
        assert not on_pubsub or result["in_order"] >= 200


def test_no_pair_is_spared_a_kind_of_fault() -> None:
    for plan in SHORT.values():
        assert all(least > 0 for least in asdict(plan.minimum).values())
        assert plan.restarts > 0
        assert plan.disk_full > 0


RESULT: Final = Result(
    store="sqlite", broker="embedded", disk="-", not_possible=(), tally=Tally(), books=Books(), in_order=None,
    out_of_order_unpromised=None, events=7, commands=0, commands_refused=0, rolled_back=0, unknown=0,
    unknown_but_there=0, wire_duplicates=0, crashes=(), seconds=1.0, shortfalls=(), left_in_broker={},
)  # fmt: skip


def test_a_pair_that_finds_no_rest_is_named_and_the_others_are_told_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def restless_on_kafka(store: str, wire: Wire, *_: object) -> Result:
        if wire.name == "kafka":
            raise NotAtRest("what its processes did")
        return replace(RESULT, store=store, broker=wire.name)

    monkeypatch.setattr(pairs, "campaign", restless_on_kafka)
    figures = tmp_path / "chaos.json"
    done = CliRunner().invoke(command.main, ["--store", "mariadb", "--json", str(figures)])
    assert done.exit_code == 1
    assert "mariadb × kafka did not come to rest" in done.output
    assert "what its processes did" in done.output
    told = json.loads(figures.read_text())
    assert told["not_at_rest"] == [["mariadb", "kafka"]]
    assert [one["broker"] for one in told["results"]] == ["embedded", "rabbitmq", "pubsub"]
    assert told["total"]["events"] == 21


async def test_what_a_broker_still_holds_is_told_when_its_time_is_up(sqlite_url: str, tmp_path: Path) -> None:
    async with make_road(sqlite_url, EMBEDDED.url(tmp_path)) as road:
        await found(road)
        async with road.session() as session, session.begin():
            await pay(road, session, "transfer", {"one": "a", "two": "a"})
        async with road.runner(groups=[]).started():
            while (await road.broker.depth(SUBSCRIPTIONS[0])).messages < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        held = await _drained(road, replace(EMBEDDED, counts=False), patience=0.0)
    assert held == dict(zip(SUBSCRIPTIONS, (2, 2, 0), strict=True))
    first, *_ = left_in_broker(replace(RESULT, left_in_broker=held))
    assert first == f"sqlite × embedded: when its time was up, {SUBSCRIPTIONS[0]} still held 2 messages"


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


def campaigned(report: Path) -> dict[str, Any]:
    for name in (*STORES, *(wire.name for wire in WIRES)):
        if name not in ("sqlite", "embedded") and not installed(name):
            missing(name, "its programs are not installed, and this test restarts it")
    path = os.pathsep.join(["src", ".", *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "proof.chaos", "--seed", "11", "--json", str(report)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-12_000:] + done.stderr[-3000:]
    print(done.stdout)
    told: dict[str, Any] = json.loads(report.read_text())
    return told
