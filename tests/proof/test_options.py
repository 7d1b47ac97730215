"""What is wrong with a command's options is told in one line, before anything runs."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from proof.chaos import __main__ as chaos
from proof.chaos.brokers import WIRES
from proof.chaos.plan import SHORT
from proof.model import __main__ as model
from proof.mutation import __main__ as mutation
from proof.mutation.report import Results
from proof.options import need_place, refuse_ignored
from proof.simulator import __main__ as simulator

ROOT = Path(__file__).parents[2]
DEFAULT = """
import sys

class OnlyThese:
    '''What `pip install -e .` brings, and nothing else.'''
    def find_spec(self, name, path=None, target=None):
        first = name.partition(".")[0]
        if first not in sys.stdlib_module_names | HERE and not first.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"No module named {first!r}", name=first)

HERE = {"postroad", "proof", "sqlalchemy", "greenlet", "aiosqlite", "msgspec", "click", "rich", "pygments",
        "markdown_it", "mdurl", "typing_extensions", *EXTRA}
sys.meta_path.insert(0, OnlyThese())
"""


def ran(folder: Path, module: str, *arguments: str, extra: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """With the default packages and `extra`."""
    (folder / "sitecustomize.py").write_text(DEFAULT.replace("*EXTRA", f"*{extra!r}"), encoding="utf-8")
    path = os.pathsep.join(map(str, (folder, ROOT / "src", ROOT)))
    variables = os.environ | {"PYTHONPATH": path, "POSTROAD_TEST_POSTGRESQL_URL": "postgresql://nobody@127.0.0.1:1/x"}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", ["proof.model", "proof.simulator", "proof.chaos", "proof.mutation"])
def test_help_needs_no_package_that_is_not_installed_by_default(tmp_path: Path, module: str) -> None:
    done = ran(tmp_path, module, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--json" in done.stdout


@pytest.mark.parametrize(
    ("command", "extra", "missing", "cure"),
    [
        ("proof.simulator --seed 7", (), "pika", "postroad[rabbitmq]"),
        ("proof.simulator --broker kafka", (), "pika, confluent_kafka", "postroad[rabbitmq,kafka]"),
        ("proof.simulator --broker kafka", ("pika",), "confluent_kafka", "postroad[kafka]"),
        ("proof.simulator --broker pubsub", ("pika",), "google.pubsub_v1", "postroad[pubsub]"),
        ("proof.simulator --store postgresql", ("pika",), "psycopg", "postroad[postgresql]"),
        ("proof.chaos --store sqlite", ("pika", "google"), "confluent_kafka", "postroad[kafka]"),
        ("proof.chaos --store mariadb", ("pika", "google", "confluent_kafka", "pymysql"), "asyncmy", "postroad[mysql]"),
        (
            "proof.mutation --quick",
            ("pytest", "pytest_asyncio", "hypothesis", "psycopg", "pymysql"),
            "coverage",
            "postroad[dev]",
        ),
    ],
)
def test_a_missing_package_is_one_line_that_names_the_command(
    tmp_path: Path, command: str, extra: tuple[str, ...], missing: str, cure: str
) -> None:
    done = ran(tmp_path, *command.split(), extra=extra)
    assert done.stderr == f"What this needs ({missing}) is not installed. Run: pip install '{cure}'\n"
    assert (done.returncode, done.stdout) == (2, "")


def test_what_needs_no_package_needs_none(tmp_path: Path) -> None:
    done = ran(tmp_path, "proof.mutation", "relay", "--table", "--json", str(tmp_path / "none.json"))
    assert "0 of" in done.stdout
    assert done.stderr == ""


def refused(capsys: pytest.CaptureFixture[str], command: Any, options: str) -> str:
    """The line that is told."""
    with pytest.raises(SystemExit) as ended:
        command(options.split())
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1].partition("error: ")[2]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--seeds 0", "argument --seeds: 0 is less than 1"),
        ("--seeds -3", "argument --seeds: -3 is less than 1"),
        ("--first -1", "argument --first: -1 is less than 0"),
        ("--jobs 0", "argument --jobs: 0 is less than 1"),
        ("--seed -7", "argument --seed: -7 is less than 0"),
        ("--seed 7 --only 0", "argument --only: 0 is less than 1"),
        ("--only 3", "--only: only for one seed. Name it with --seed."),
        ("--only", "--only: only for one seed. Name it with --seed."),
        ("--trace", "--trace: only for one seed. Name it with --seed."),
        *(
            (f"--seed 3 {many}", f"{many.split()[0]}: --seed tells one seed. Leave out one or the other.")
            for many in ("--seeds 5", "--first 0", "--jobs 2", "--json x.json", "--crash-points")
        ),
        *(
            (
                f"--crash-points {other}",
                f"{other.split()[0]}: --crash-points has one process, the embedded broker and no figures."
                " Leave out one or the other.",
            )
            for other in ("--jobs 2", "--json x.json", "--broker rabbitmq")
        ),
    ],
)
def test_the_simulator_refuses_what_makes_no_sense(capsys: pytest.CaptureFixture[str], options: str, told: str) -> None:
    assert refused(capsys, simulator._options, options) == told


def test_the_simulator_says_where_the_server_is_to_be_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POSTROAD_TEST_POSTGRESQL_URL", raising=False)
    told = refused(capsys, simulator._options, "--store postgresql")
    assert told.startswith("--store postgresql: POSTROAD_TEST_POSTGRESQL_URL names no server. Run: scripts/services")


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Of one seed."""
    command = [sys.executable, "-m", "proof.simulator", "--seed", "7", *arguments]
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    variables = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)


def test_a_fault_that_a_seed_does_not_have_is_told_with_how_many_it_has() -> None:
    done = started("--only", "3", "9999")
    assert done.stderr == ("--only 9999: there is no such fault. With those chosen, seed 7 has 50, numbered from 1.\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert started("--only", "3", "50").returncode == 0


def test_without_trace_a_seed_tells_its_faults_alone() -> None:
    steps, faults = (started(*options).stdout.splitlines() for options in (["--trace"], []))
    assert len(faults) < len(steps) / 5
    assert [step for step in steps if "✗" in step or "was killed" in step] == faults[:-1]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--sample 0", "argument --sample: 0 is less than 1"),
        ("--sample -3", "argument --sample: -3 is less than 1"),
        ("--budget 0", "argument --budget: 0 is not more than 0"),
        ("--budget nan", "argument --budget: nan is not more than 0"),
        ("--again --hung", "argument --hung: not allowed with argument --again"),
        ("--survivors --again", "argument --again: not allowed with argument --survivors"),
        ("--show 1f --table", "argument --table: not allowed with argument --show"),
        ("--show 1f --only guard", "--only: --show takes one mistake by its id, and no results. "),
        ("--show 1f relay", "relay: --show takes one mistake by its id, and no results. "),
        ("--table --quick", "--quick: with --survivors, --table and --show nothing is tried. "),
        ("--show zzz", "--show zzz: no mistake's id begins so. "),
        ("--show=", "--show : no mistake's id begins so. "),
        ("nowhere --table", "nowhere: there is nothing of that name in relay, inbox, "),
        ("relay --only lock --table", "--only lock: no such kind of mistake there. There are and/or, "),
    ],
)
def test_mutation_refuses_what_makes_no_sense(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: str, told: str
) -> None:
    # What is not refused takes hours.
    monkeypatch.setattr(mutation, "_try", pytest.fail)
    monkeypatch.setattr(mutation, "difference", str)
    assert refused(capsys, mutation.main, options).startswith(told)


@pytest.mark.parametrize("text", ["no JSON", '{"results": []}', '{"mutants": []}', "[]"])
def test_mutation_does_not_write_over_a_file_that_is_not_its_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    file = tmp_path / "other.json"
    file.write_text(text, encoding="utf-8")
    told = refused(capsys, mutation.main, f"--table --json {file}")
    assert told == f"--json {file}: there are no results of mutation in it. Name another file."
    file.write_text(json.dumps({"mutants": {}}), encoding="utf-8")
    assert Results(file, []).verdicts == {}


def clicked(command: ModuleType, *options: str) -> Result:
    return CliRunner().invoke(command.main, options)


@pytest.mark.parametrize("ignored", [["--more", "1"], ["--json", "x.json"]])
def test_the_model_refuses_what_a_story_would_ignore(ignored: list[str]) -> None:
    done = clicked(model, "--story", "unfenced mark", *ignored)
    assert done.exit_code == 2
    assert "--story tells a mutant, and explores nothing. Leave out --more and --json." in done.output


def test_the_model_has_no_mutant_without_a_name() -> None:
    done = clicked(model, "--story", "")
    assert done.exit_code == 2
    assert "there is no mutant ''" in done.output


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What chaos would run."""
    from proof.chaos import pairs

    asked: list[Any] = []
    monkeypatch.setattr(pairs, "run", lambda *asked_for: not asked.append(asked_for))
    monkeypatch.setattr(chaos, "installed", lambda name: name != "kafka")
    return asked


def test_chaos_names_the_servers_that_are_not_installed(asked_for: list[Any]) -> None:
    done = clicked(chaos, "--store", "sqlite")
    assert done.exit_code == 2
    assert done.output.startswith("There are no programs of kafka here. Install them (scripts/services up tries to), ")
    assert asked_for == []


def test_chaos_takes_a_pair_once_however_often_it_is_named(asked_for: list[Any]) -> None:
    assert clicked(chaos, *("--store", "mariadb", "--broker", "pubsub") * 2, "--seed", "7").exit_code == 0
    ((_, stores, brokers, seed, _),) = asked_for
    assert (stores, brokers, seed) == (["mariadb"], ["pubsub"], 7)


def test_chaos_can_be_asked_for_every_broker_there_is() -> None:
    assert list(SHORT) == [wire.name for wire in WIRES]


@pytest.mark.parametrize("module", ["model", "simulator", "chaos", "mutation"])
def test_figures_that_could_not_be_written_are_told_before_anything_runs(tmp_path: Path, module: str) -> None:
    file = tmp_path / "nowhere" / "x.json"
    done = ran(tmp_path, f"proof.{module}", "--json", str(file))
    assert done.stderr == f"--json {file}: there is no folder {file.parent}. Make it first, or name another.\n"
    assert (done.returncode, done.stdout) == (2, "")


def test_figures_need_a_file_that_may_be_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_place(None)
    need_place(tmp_path / "new.json")
    with pytest.raises(SystemExit, match="2"):
        need_place(tmp_path)
    assert capsys.readouterr().err == f"--json {tmp_path}: is a folder. Name a file.\n"
    # Whoever is root may write everywhere.
    monkeypatch.setattr(os, "access", lambda place, mode: place != tmp_path)
    with pytest.raises(SystemExit, match="2"):
        need_place(tmp_path / "new.json")
    assert capsys.readouterr().err == f"--json {tmp_path / 'new.json'}: may not be written. Name another file.\n"


def test_nothing_and_zero_are_answers_too(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    refuse_ignored(parser, argparse.Namespace(one=None, other=False), ["one", "other"], "why")
    for value in (0, []):
        with pytest.raises(SystemExit, match="2"):
            refuse_ignored(parser, argparse.Namespace(one_more=value), ["one_more"], "why")
        assert capsys.readouterr().err.endswith("error: --one-more: why\n")
