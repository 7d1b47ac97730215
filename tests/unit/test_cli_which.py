"""The application is named in one way, whatever the command."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from postroad.cli import main
from tests.support.commands import leaves

NOBODY = {"POSTROAD_APP": None, "DATABASE_URL": None, "BROKER_URL": None}


# But for the one that compares files, whoever's they are.
OF_NO_APPLICATION = {("schema", "check"), ("alerts", "export"), ("alerts", "grafana"), ("healthcheck",)}
ALL = [(path, command) for path, command in leaves(main) if path not in OF_NO_APPLICATION]


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_every_command_takes_the_option_and_those_without_arguments_the_word(
    path: tuple[str, ...], command: click.Command
) -> None:
    option = next((one for one in command.params if "--app" in one.opts), None)
    assert option is not None
    assert option.envvar == "POSTROAD_APP"
    arguments = [one.name for one in command.params if isinstance(one, click.Argument)]
    assert arguments == ["app_argument"] or "app_argument" not in arguments
    assert arguments


def test_two_different_ones_are_a_mistake_but_what_is_typed_beats_the_environment() -> None:
    for command in (["status"], ["dev"], ["outbox", "list"]):
        done = CliRunner().invoke(main, [*command, "a:road", "--app", "b:road"], env=NOBODY)
        assert (done.exit_code, "a:road and --app b:road are two applications" in done.output) == (2, True)
        done = CliRunner().invoke(main, [*command, "typed:road"], env={**NOBODY, "POSTROAD_APP": "other:road"})
        assert "There is no module 'typed'" in done.output


@pytest.mark.parametrize("command", ["dev", "run", "relay", "worker"])
def test_without_any_it_says_how(command: str) -> None:
    done = CliRunner().invoke(main, [command], env=NOBODY, prog_name="postroad")
    assert done.exit_code == 2
    told = "Name it with --app shop:road, or set POSTROAD_APP; or write: postroad"
    assert f"{told} {command} shop:road" in " ".join(done.output.split())


def test_publish_finds_it_in_each_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    event = ["kite.flown", "{}"]
    for words, app in (
        (["publish", "kite:road", *event], None),
        (["publish", *event, "--app", "kite:road"], None),
        (["publish", *event], "kite:road"),
        (["publish", "kite:road", *event], "other:road"),
    ):
        done = CliRunner().invoke(main, words, env={**NOBODY, "POSTROAD_APP": app})
        assert "There is no module 'kite'" in done.output
    assert CliRunner().invoke(main, ["publish", *event], env=NOBODY).exit_code == 2
