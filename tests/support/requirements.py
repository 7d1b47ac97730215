"""Records which requirements (docs/requirements.md) each passed test proves, and on which components.

A test names them with `@pytest.mark.spec("P10", "F7")`. The record, build/requirements.json, is what
`make requirements` reads. A run of some tests replaces the entries of those tests only.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.components import ROOT, used_by

RECORD = ROOT / "build" / "requirements.json"
TABLE = ROOT / "docs" / "requirements.md"


def known_ids(table: Path = TABLE) -> list[str]:
    return re.findall(r"^\| ([A-Z]\d+) \|", table.read_text(encoding="utf-8"), re.MULTILINE)


def ids_of(item: pytest.Item) -> list[str]:
    return sorted({str(one) for mark in item.iter_markers("spec") for one in mark.args})


class Labels:
    """Runs where the tests run, which may be another process: their reports carry what the session wants to know."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        known = set(known_ids())
        wrong = [f"{item.nodeid}: {one}" for item in items for one in ids_of(item) if one not in known]
        if wrong:
            raise pytest.UsageError(
                "spec marks name requirements that docs/requirements.md does not list: " + "; ".join(wrong)
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        item.user_properties += [("spec", one) for one in ids_of(item)]
        item.user_properties += [("component", one) for one in used_by(item)]


class Recorder:
    def __init__(self) -> None:
        self.ran: dict[str, dict[str, Any] | None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        proof = {
            kind: [str(value) for name, value in report.user_properties if name == label]
            for kind, label in (("spec", "spec"), ("components", "component"))
        }
        if proof["spec"] and report.when == "call" and report.passed and not hasattr(report, "wasxfail"):
            self.ran[report.nodeid] = proof
        elif proof["spec"] and not report.passed:
            self.ran[report.nodeid] = None

    def pytest_sessionfinish(self) -> None:
        if not self.ran:
            return
        record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
        record |= self.ran
        kept = {test: proof for test, proof in sorted(record.items()) if proof and _exists(test)}
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def _exists(nodeid: str) -> bool:
    return (ROOT / nodeid.partition("::")[0]).exists()
