"""The fixture as a user meets it: their own pytest run, their own folder."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAGILE = ROOT / "examples" / "fragile"
GUIDE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python file=(\S+)\n(.*?)```", GUIDE, re.DOTALL)


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Where Postroad is installed, pytest finds the plugin by itself.
    installed = entry_points(group="pytest11", name="postroad")
    plugin = [] if installed else ["-p", "postroad.testing.plugin"]
    clean = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "BROKER_URL")}
    paths = os.pathsep.join([str(ROOT / "src"), *filter(None, [clean.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider",
         "-o", "asyncio_default_fixture_loop_scope=function", *plugin, *arguments],
        cwd=folder, env=clean | {"PYTHONPATH": paths},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def test_the_fragile_example_fails_with_the_story_in_the_guide() -> None:
    ran = run_pytest(FRAGILE, "-q", "test_payments.py::test_fragile_payments_survive")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    story = GUIDE.split("```text\n")[1].split("```")[0].strip()
    assert story in ran.stdout
    assert "Traceback" not in ran.stdout


def test_the_printed_command_repeats_one_fault_alone() -> None:
    which = "test_payments.py::test_fragile_payments_survive"
    ran = run_pytest(FRAGILE, "-q", which, "--postroad-fault=worker-stalls:2")
    assert "1 fault tried: 1 stalled worker; 1 broke something." in ran.stdout
    assert f"pytest '{which}' --postroad-fault=worker-stalls:2" in ran.stdout


def test_the_repaired_example_passes_and_says_what_was_tried() -> None:
    ran = run_pytest(FRAGILE, "-q", "-rP", "test_payments.py::test_repaired_payments_survive")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "44 faults tried: 8 before a commit, 8 after a commit, 3 before a publish" in ran.stdout


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_it_works_in_plain_and_in_async_tests(tmp_path: Path, mode: str) -> None:
    (tmp_path / "test_both.py").write_text(
        f"""
import sys
sys.path.insert(0, {str(FRAGILE)!r})
import pytest
from test_payments import build_with, charges, create_tables, place_three_orders, repaired

def test_plain(survives):
    survives(build_with(repaired), place_three_orders, setup=create_tables, outcome=charges)

@pytest.mark.asyncio
async def test_async(survives):
    survived = survives(build_with(repaired), place_three_orders, setup=create_tables, outcome=charges)
    assert len(survived.tried) == 3
""",
        encoding="utf-8",
    )
    ran = run_pytest(
        tmp_path, "-q", "-W", "error", "-o", f"asyncio_mode={mode}", "--postroad-fault=duplicate", "test_both.py"
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout


def test_without_use_nothing_of_postroad_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        """
import sys

def test_other():
    loaded = {name for name in sys.modules if name.split(".")[0] in ("postroad", "sqlalchemy", "msgspec")}
    assert loaded <= {"postroad", "postroad.testing", "postroad.testing.plugin"}
""",
        encoding="utf-8",
    )
    ran = run_pytest(tmp_path, "-q", "-W", "error", "test_other.py")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_option_is_explained(tmp_path: Path) -> None:
    told = " ".join(run_pytest(tmp_path, "--help").stdout.split())
    assert "--postroad-fault=FAULT try only this fault in tests that use `survives`" in told


# -- the guide -----------------------------------------------------------------------------------------


def test_the_guide_shows_the_example_that_runs() -> None:
    shown = [(name, code) for name, code in BLOCKS if (FRAGILE / name).exists()]
    assert len(shown) == 3
    for name, code in shown:
        assert code in (FRAGILE / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "passed"), [("test_snippets.py", "3 passed"), ("test_contracts.py", "passed")])
def test_the_guides_snippets_run(tmp_path: Path, name: str, passed: str) -> None:
    code = "\n".join(code for file, code in BLOCKS if file == name)
    (tmp_path / name).write_text(code, encoding="utf-8")
    ran = run_pytest(tmp_path, "-q", "-o", "asyncio_mode=auto", name)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert passed in ran.stdout
