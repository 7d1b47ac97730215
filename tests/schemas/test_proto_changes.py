"""`schema check` on .proto files: every forbidden change is found, and buf, an independent judge, agrees."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from postroad.codec.compat import Break, check
from postroad.codec.compat.break_ import RULES
from tests.schemas.changes import CHANGES, Change

# PACKAGE and not WIRE or WIRE_JSON: these let fields go once their numbers are reserved, and int32 become int64. Not
# FILE either: where a message is written down makes no difference to who reads it.
RULE_SET = '{"version": "v2", "breaking": {"use": ["PACKAGE"]}}'


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """All changes side by side, so that each judge needs one run."""
    old, new = tmp_path_factory.mktemp("old"), tmp_path_factory.mktemp("new")
    for change in CHANGES:
        (old / f"{change.package}.proto").write_text(change.old, encoding="utf-8")
        (new / f"{change.package}.proto").write_text(change.new, encoding="utf-8")
    return old, new


@pytest.fixture(scope="module")
def ours(folders: tuple[Path, Path]) -> dict[str, list[Break]]:
    found: dict[str, list[Break]] = {}
    for one in check(*folders):
        found.setdefault(Path(one.file).stem, []).append(one)
    return found


@pytest.fixture(scope="module")
def bufs(folders: tuple[Path, Path]) -> set[str]:
    buf = shutil.which("buf", path=str(Path(sys.executable).parent)) or shutil.which("buf")
    assert buf, "buf is in the package buf-bin, which the development tools include"
    old, new = map(str, folders)
    command = [buf, "breaking", new, "--against", old, "--config", RULE_SET, "--error-format", "json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 100, ran.stderr
    return {case(json.loads(line)) for line in ran.stdout.splitlines()}


def case(violation: dict[str, str]) -> str:
    """What is gone has no place in the new files; the text tells its package."""
    named = re.search(r'package "(case\d+)"', violation["message"])
    return named[1] if named else Path(violation["path"]).stem


@pytest.mark.spec("P8")
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_a_change_breaks_just_the_rules_it_should(change: Change, ours: dict[str, list[Break]]) -> None:
    found = ours.get(change.package, [])
    assert {one.rule for one in found} == change.rules, [one.text for one in found]
    assert all(one.message.startswith(change.package) for one in found)


@pytest.mark.spec("P8")
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_buf_is_of_the_same_opinion(change: Change, bufs: set[str]) -> None:
    assert (change.package in bufs) == change.buf_objects, change.why


def test_the_corpus_is_large_and_leaves_out_no_rule_for_protobuf() -> None:
    assert len(CHANGES) >= 40
    assert len([change for change in CHANGES if change.why]) == 4
    for_json = {"schema-removed", "field-became-optional", "object-closed"}
    assert set().union(*(change.rules for change in CHANGES)) == RULES.keys() - for_json
