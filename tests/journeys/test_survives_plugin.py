"""The fixture as a user meets it: their own pytest run, their own folder."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from postroad.testing import plugin

ROOT = Path(__file__).parents[2]
FRAGILE = ROOT / "examples" / "fragile"
GUIDE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python file=(\S+)\n(.*?)```", GUIDE, re.DOTALL)
STORY = GUIDE.split("```text\n")[1].split("```")[0].strip()


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Where Postroad is installed, pytest finds the plugin by itself.
    installed = entry_points(group="pytest11", name="postroad")
    by_name = [] if installed else ["-p", "postroad.testing.plugin"]
    clean = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "BROKER_URL")}
    paths = os.pathsep.join([str(ROOT / "src"), *filter(None, [clean.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider",
         "-o", "asyncio_default_fixture_loop_scope=function", *by_name, *arguments],
        cwd=folder, env=clean | {"PYTHONPATH": paths},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def test_the_fragile_example_fails_with_the_story_in_the_guide() -> None:
    ran = run_pytest(FRAGILE, "-q", "test_payments.py::test_fragile_payments_survive")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert STORY in ran.stdout
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


def test_what_passed_says_in_the_end_how_much_was_tried() -> None:
    ran = run_pytest(FRAGILE, "-q", "test_payments.py", "--postroad-fault=duplicate")
    assert "survives: 6 faults tried in 2 tests." in ran.stdout
    assert "survives:" not in run_pytest(FRAGILE, "-q", "test_payments.py", "-k", "nothing").stdout


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_it_works_in_plain_and_in_async_tests(tmp_path: Path, mode: str) -> None:
    (tmp_path / "test_both.py").write_text(
        f"""
import sys
sys.path.insert(0, {str(FRAGILE)!r})
import pytest
from payments import repaired
from test_payments import build_with, charges, create_tables, place_three_orders

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


# -- what was used wrongly -----------------------------------------------------------------------------

WRONG = f"""
import sys
sys.path.insert(0, {str(FRAGILE)!r})
from payments import OrderPlaced, repaired
from test_payments import build_with, charges, create_tables, place_three_orders

async def divide(road):
    1 / 0

def test_scenario(survives):
    survives(build_with(repaired), divide, setup=create_tables, outcome=charges)

async def add_without_transaction(road):
    async with road.session() as session:
        road.add(session, OrderPlaced("o-1", 100))

def test_scenario_that_calls_ours(survives):
    survives(build_with(repaired), add_without_transaction, setup=create_tables, outcome=charges)

def test_setup(survives):
    survives(build_with(repaired), place_three_orders, setup=divide, outcome=charges)

def test_outcome(survives):
    survives(build_with(repaired), place_three_orders, outcom=charges)

def test_patience(survives):
    survives(build_with(repaired), place_three_orders, outcome=charges, patience=1)

def test_workers(survives):
    survives(build_with(repaired), place_three_orders, outcome=charges, workers="2")
"""


def test_what_fails_in_the_users_code_is_shown_there_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "test_wrong.py").write_text(WRONG, encoding="utf-8")
    ran = run_pytest(tmp_path, "-q", "test_wrong.py", "-k", "scenario or setup")
    assert len(re.findall(r"^E +ZeroDivisionError: division by zero$", ran.stdout, re.MULTILINE)) == 2
    assert "NoTransaction: No transaction is open" in ran.stdout
    assert_only_theirs(ran.stdout)


def assert_only_theirs(told: str) -> None:
    files = set(re.findall(r"^(\S+\.py):\d+: ", told, re.MULTILINE))
    assert files == {"test_wrong.py"}
    assert "During handling of the above exception" not in told
    assert "no running event loop" not in told


def test_wrong_arguments_are_told_where_they_are_given(tmp_path: Path) -> None:
    (tmp_path / "test_wrong.py").write_text(WRONG, encoding="utf-8")
    ran = run_pytest(tmp_path, "-q", "test_wrong.py", "-k", "outcome or patience or workers")
    assert "TypeError: survives() has no argument 'outcom'. Did you mean 'outcome'?" in ran.stdout
    assert "TypeError: survives() has no argument 'patience'. It takes: build, scenario, outcome," in ran.stdout
    assert "ConfigurationError: workers is '2'. Give 2 to try also two workers at once, or leave it out." in ran.stdout
    assert_only_theirs(ran.stdout)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (
            "commit-befor:6",
            "There is no fault 'commit-befor'. Did you mean 'commit-before:6'? There are: commit",
        ),
        ("lightning", "There is no fault 'lightning'. There are: commit-before, commit-after,"),
        ("duplicate:first", "'first' is no number. Faults of a kind are counted from 1: duplicate:1."),
        ("duplicate:0", "'0' is no number. Faults of a kind are counted from 1: duplicate:1."),
    ],
)
def test_a_fault_that_cannot_be_is_refused_before_any_test(tmp_path: Path, fault: str, told: str) -> None:
    ran = run_pytest(tmp_path, f"--postroad-fault={fault}")
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: --postroad-fault={fault}: {told}" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_who_stops_in_a_debugger_takes_all_the_time_there_is() -> None:
    config: Any = SimpleNamespace(stash=pytest.Stash())
    assert not plugin.is_debugged(config)
    plugin.pytest_enter_pdb(config)
    assert plugin.is_debugged(config)


# -- the guide -----------------------------------------------------------------------------------------


def test_the_guide_shows_the_example_that_runs() -> None:
    shown = [(name, code) for name, code in BLOCKS if (FRAGILE / name).exists()]
    assert len(shown) == 3
    for name, code in shown:
        assert code in (FRAGILE / name).read_text(encoding="utf-8")


def test_the_guides_payments_run_as_pasted(tmp_path: Path) -> None:
    (service, tests, repair) = [code for name, code in BLOCKS if name in ("payments.py", "test_payments.py")]
    (tmp_path / "payments.py").write_text(service, encoding="utf-8")
    (tmp_path / "test_payments.py").write_text(tests, encoding="utf-8")
    ran = run_pytest(tmp_path, "-q", "test_payments.py")
    assert STORY in ran.stdout
    assert "Traceback" not in ran.stdout
    before, after = service.split("    @road.on(")[0], service[service.index("    return road") :]
    (tmp_path / "payments.py").write_text(f"{before}{repair}\n{after}", encoding="utf-8")
    ran = run_pytest(tmp_path, "-q", "test_payments.py")
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(("name", "passed"), [("test_snippets.py", "3 passed"), ("test_contracts.py", "passed")])
def test_the_guides_snippets_run(tmp_path: Path, name: str, passed: str) -> None:
    code = "\n".join(code for file, code in BLOCKS if file == name)
    (tmp_path / name).write_text(code, encoding="utf-8")
    ran = run_pytest(tmp_path, "-q", "-o", "asyncio_mode=auto", name)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert passed in ran.stdout
