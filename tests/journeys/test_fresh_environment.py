"""One `pip install postroad` and nothing else: the package needs what it says, and all of it is in the wheel."""

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from shutil import which

import pytest
from packaging.requirements import Requirement

from tests.journeys.test_docs import POSTROAD, blocks, run

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

BLOCKING = """
import sys

class Absent:
    names = frozenset({names})

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def distribution(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def installed_with(requirements: list[str]) -> set[str]:
    """The distributions that pip brings along."""
    found: set[str] = set()
    waiting = [Requirement(one) for one in requirements]
    while waiting:
        wanted = waiting.pop()
        extras = wanted.extras or {""}
        if wanted.marker and not any(wanted.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        name = distribution(wanted.name)
        if name in found and not wanted.extras:
            continue
        found.add(name)
        for one in metadata.requires(wanted.name) or ():
            needed = Requirement(one)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                needed.marker = None
                waiting.append(needed)
    return found


@pytest.fixture
def alone(tmp_path: Path) -> str:
    """For PYTHONPATH: Python as it is after `pip install postroad`, whatever else is installed here."""
    there = installed_with(PROJECT["project"]["dependencies"]) | {"postroad"}
    absent = sorted(
        module
        for module, owners in metadata.packages_distributions().items()
        if not there & {distribution(owner) for owner in owners}
    )
    assert {"psycopg", "pydantic", "starlette", "pytest"} <= set(absent)
    assert not {"sqlalchemy", "aiosqlite", "msgspec", "click", "rich"} & set(absent)
    (tmp_path / "sitecustomize.py").write_text(BLOCKING.format(names=absent), encoding="utf-8")
    return f"{tmp_path}:{ROOT / 'src'}"


def test_1_the_readme_block_runs_with_the_core_alone(tmp_path: Path, alone: str) -> None:
    _, code = blocks("README.md")[0]
    (tmp_path / "block.py").write_text(code, encoding="utf-8")
    ran = run(tmp_path, sys.executable, "block.py", PYTHONPATH=alone)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("receipt for o-1: 42.00\n", "", 0)
    told = run(tmp_path, *POSTROAD, "status", "--json", "--app", "block:road", PYTHONPATH=alone)
    assert (told.stderr, told.returncode) == ("", 0)
    assert json.loads(told.stdout)


def test_what_is_not_installed_is_named_with_its_pip_command(tmp_path: Path, alone: str) -> None:
    code = "from postroad import Postroad; Postroad('shop', 'postgresql://db/shop')"
    ran = run(tmp_path, sys.executable, "-c", code, PYTHONPATH=alone)
    assert ran.returncode == 1
    assert "pip install 'postroad[postgresql]'" in ran.stderr


@pytest.mark.skipif(which("git") is None or not (ROOT / ".git").exists(), reason="not a working copy")
def test_the_wheel_has_every_file_of_the_package() -> None:
    """The build takes all of the folder but what git is told to ignore, tracked or not."""
    assert PROJECT["build-system"]["build-backend"] == "hatchling.build"
    assert PROJECT["tool"]["hatch"] == {"build": {"targets": {"wheel": {"packages": ["src/postroad"]}}}}

    def listed(*how: str) -> set[str]:
        command = ["git", "ls-files", *how, "--", "src/postroad"]
        return set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines())

    tracked = listed()
    assert {"src/postroad/py.typed", "src/postroad/stores/sqlite/inbox.sql"} <= tracked
    ignored = listed("--cached", "--others", "--ignored", "--exclude-standard")
    assert not {file for file in ignored if not file.endswith(".pyc")}, "used here, but left out of the wheel"
