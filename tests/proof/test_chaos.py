"""The short campaign, on every store at once; the ledger must balance and enough must have been done to it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proof.chaos.brokers import WIRES
from proof.chaos.campaign import STORES
from proof.chaos.servers import installed
from tests.support.components import MISSING, ROOT


@pytest.mark.timeout(420)
@pytest.mark.spec("F4", "F5", "P6", "T6")
def test_nothing_is_lost_invented_doubled_or_reordered(
    tmp_path: Path, sqlite_url: str, postgresql_url: str, mariadb_url: str
) -> None:
    """Servers of its own, which it may restart; the fixtures only name the components."""
    if missing := [name for name in STORES if name != "sqlite" and not installed(name)]:
        pytest.skip(f"{missing[0]} {MISSING} its programs are not installed here")
    report = tmp_path / "chaos.json"
    path = os.pathsep.join(["src", ".", *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "proof.chaos", "--seed", "11", "--json", str(report)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    results = json.loads(report.read_text())["results"]
    assert [(one["store"], one["broker"]) for one in results] == [(s, wire.name) for s in STORES for wire in WIRES]
    for result in results:
        assert set(result["books"].values()) == {0}
        assert result["shortfalls"] == result["crashes"] == []
