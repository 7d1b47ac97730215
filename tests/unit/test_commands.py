"""What is said when a command or its handler is declared wrongly; names that belong together."""

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from postroad import Postroad
from postroad.cli import main
from postroad.errors import ConfigurationError, InvalidName
from postroad.naming import eventless
from tests.support.genesis import Session, StartSession, genesis


@pytest.fixture
def road(tmp_path: Path) -> Postroad:
    return genesis(f"sqlite:///{tmp_path / 'a.db'}", f"embedded:{tmp_path / 'b.db'}")


class Plain:
    pass


class Other(msgspec.Struct, frozen=True):
    session_id: str


@pytest.mark.spec("G1")
@pytest.mark.parametrize("name", ["StartGenesisSession", "Genesis.Session.Start", "Command.Genesis.Session.Started"])
def test_a_command_is_called_as_an_order(road: Postroad, name: str) -> None:
    with pytest.raises(InvalidName):
        road.command(name, aggregate="session")


def test_a_declaration_that_cannot_work_says_why(road: Postroad) -> None:
    declare = road.command("Command.Genesis.Session.Start", aggregate="session", key="session_id")
    with pytest.raises(ConfigurationError, match="is declared twice: by StartSession and Other"):
        declare(Other)
    with pytest.raises(ConfigurationError, match="it has no declared fields"):
        declare(Plain)
    with pytest.raises(ConfigurationError, match="has no field 'sesion_id' to be the key"):
        road.command("Command.Genesis.Session.Stop", aggregate="session", key="sesion_id")(Other)
    with pytest.raises(ConfigurationError, match=r"Other is not declared as a command\. Put @road\.command"):
        road.handles(Other)
    with pytest.raises(ConfigurationError, match="has two handlers"):
        road.handles(StartSession)(lambda command: None)


def test_a_handler_that_cannot_work_says_why(road: Postroad) -> None:
    road.command("Command.Genesis.Session.Stop", aggregate="session", key="session_id")(Other)
    with pytest.raises(ConfigurationError, match=r"asks for `state`, but of which class\? Write @road\.handles"):
        road.handles(Other)(lambda command, state: None)
    with pytest.raises(ConfigurationError, match="it has no method evolve"):
        road.handles(Other, state=Plain)(lambda command, state: None)
    with pytest.raises(ConfigurationError, match=r"asks for 'sate'.* Did you mean 'state'.* After the command"):
        road.handles(Other, state=Session)(lambda command, sate: None)
    with pytest.raises(ConfigurationError, match="takes no command"):
        road.handles(Other)(lambda: None)


async def test_a_command_without_a_handler_is_told(road: Postroad) -> None:
    road.command("Command.Genesis.Session.Stop", aggregate="session", key="session_id")(Other)
    await road.migrate()
    with pytest.raises(ConfigurationError, match=r"Command\.Genesis\.Session\.Stop has no handler here"):
        await road.execute(Other("s-1"))
    await road.aclose()


@pytest.mark.spec("G1")
def test_each_command_has_its_event(road: Postroad) -> None:
    names = road.commands.events
    assert names["Command.Genesis.Session.Start"] == "Genesis.Session.Started"
    assert eventless(names, names.values()) == []
    (fault,) = eventless(["Command.Genesis.Story.Write"], ["Genesis.Story.Wrote", "Genesis.Session.Started"])
    assert "Declare 'Genesis.Story.Written' with @event" in str(fault)
    assert eventless(["Command.Shop.Order.Cancel"], ["Shop.Order.Canceled"]) == []


@pytest.mark.spec("G1")
def test_names_are_checked_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "novel.py").write_text(
        "import msgspec\n"
        "from postroad import Postroad, event\n"
        "road = Postroad('novel', 'sqlite:///novel.db')\n"
        "@event('Novel.Chapter.Written', topic='novel.chapter.events', aggregate='chapter', key='id')\n"
        "class Written(msgspec.Struct): id: str\n"
        "@road.command('Command.Novel.Chapter.Write', aggregate='chapter', key='id')\n"
        "class Write(msgspec.Struct): id: str\n"
        "@road.command('Command.Novel.Chapter.Burn', aggregate='chapter', key='id')\n"
        "class Burn(msgspec.Struct): id: str\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    done = CliRunner().invoke(main, ["names", "check", "novel:road"])
    assert done.exit_code == 1
    assert "Declare 'Novel.Chapter.Burned' with @event" in done.output
    assert "'Novel.Chapter.Written'" not in done.output
    told = CliRunner().invoke(main, ["names", "check", "novel:road", "--json"])
    assert '"Command.Novel.Chapter.Write":"Novel.Chapter.Written"' in told.output
