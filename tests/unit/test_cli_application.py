"""From `shop:road` to the Postroad, and what is said when it is not there."""

import sys
from pathlib import Path

import pytest

from postroad.app import Postroad
from postroad.cli.application import UserCodeFailed, load
from postroad.errors import ConfigurationError

MODULE = """
from postroad import Postroad

road = Postroad(source="corner")
number = 7


class nested:
    road = road
"""


WRITES = """
import msgspec
from sqlalchemy import NullPool, create_engine
from sqlalchemy.orm import Session

from postroad import Postroad, event

road = Postroad("corner", "sqlite:///corner.db", "embedded:")


@event("apple.sold", topic="corner.apple.events", aggregate="apple", key="id")
class AppleSold(msgspec.Struct):
    id: str


with Session(create_engine("sqlite:///corner.db", poolclass=NullPool)) as session, session.begin():
    road.add(session, AppleSold(id="a"))
"""
GUARD = 'under `if __name__ == "__main__":`'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    (tmp_path / "cornershop.py").write_text(MODULE, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("reference", ["cornershop:road", "cornershop:nested.road"])
def test_the_application_is_found_in_the_working_directory(reference: str) -> None:
    assert isinstance(load(reference), Postroad)


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("cornershop", "Write module:attribute, such as shop:road"),
        (":road", "Write module:attribute"),
        ("cornershp:road", "no module 'cornershp' .* Did you mean 'cornershop'"),
        ("elsewhere.shop:road", "no module 'elsewhere.shop'"),
        ("cornershop:raod", "no attribute 'raod'. Did you mean cornershop:road"),
        ("cornershop:number", "is a int, not a Postroad. Did you mean cornershop:road"),
        ("json:road", "There is none in the module"),
    ],
)
def test_what_is_wrong_is_told_with_the_nearest_right(reference: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        load(reference)


def test_a_module_that_theirs_imports_is_missing(here: Path) -> None:
    (here / "needy.py").write_text("import no_such_library\n", encoding="utf-8")
    with pytest.raises(UserCodeFailed, match="no_such_library") as caught:
        load("needy:road")
    assert 'needy.py", line 1' in caught.value.trace
    assert "importlib" not in caught.value.trace


def test_a_syntax_error_shows_its_place(here: Path) -> None:
    (here / "garbled.py").write_text("x = 1\ny = = 2\n", encoding="utf-8")
    with pytest.raises(UserCodeFailed, match="SyntaxError") as caught:
        load("garbled:road")
    assert 'garbled.py", line 2' in caught.value.trace


@pytest.mark.parametrize(
    "call",
    ["asyncio.run(None)", "asyncio.get_event_loop().run_until_complete(None)", "anyio.run(print)"],
)
async def test_a_script_that_runs_its_loop_when_imported(here: Path, call: str) -> None:
    (here / "busy.py").write_text(f"import anyio, asyncio\n{call}\n", encoding="utf-8")
    with pytest.raises(UserCodeFailed, match=GUARD):
        load("busy:road")


def test_a_script_that_fails_in_its_loop_when_imported(here: Path) -> None:
    script = "import asyncio\nasync def main():\n    raise ValueError('theirs')\nasyncio.run(main())\n"
    (here / "failing.py").write_text(script, encoding="utf-8")
    with pytest.raises(UserCodeFailed, match=f"ValueError: theirs. .*{GUARD}") as caught:
        load("failing:road")
    assert 'failing.py", line 3' in caught.value.trace


def test_a_mistake_in_a_folder_called_asyncio_is_none_of_a_loop(here: Path) -> None:
    (here / "asyncio").mkdir()
    (here / "asyncio" / "slip.py").write_text("1 / 0\n", encoding="utf-8")
    sys.path.insert(0, str(here / "asyncio"))
    with pytest.raises(UserCodeFailed, match="ZeroDivisionError") as caught:
        load("slip:road")
    assert "__main__" not in str(caught.value)


def test_a_mistake_with_an_asynchronous_library_is_none_of_a_loop(here: Path) -> None:
    wrong = "from sqlalchemy.ext.asyncio import create_async_engine\ncreate_async_engine('sqlite:///x.db')\n"
    (here / "engine.py").write_text(wrong, encoding="utf-8")
    with pytest.raises(UserCodeFailed, match="requires an async driver") as caught:
        load("engine:road")
    assert "__main__" not in str(caught.value)


def test_a_script_that_writes_when_imported(here: Path) -> None:
    (here / "writing.py").write_text(WRITES, encoding="utf-8")
    with pytest.raises(UserCodeFailed, match=rf"tables are missing .*writing\.py, line \d+\)\. .*{GUARD}") as caught:
        load("writing:road")
    assert caught.value.trace == ""


def test_our_own_errors_come_without_a_traceback_but_with_their_place(here: Path) -> None:
    (here / "misnamed.py").write_text(
        'from postroad import Postroad\nroad = Postroad(source="My Shop")\n', encoding="utf-8"
    )
    with pytest.raises(UserCodeFailed, match=r"source name 'My Shop'.*misnamed.py, line 2") as caught:
        load("misnamed:road")
    assert caught.value.trace == ""


def test_a_script_that_ends_the_program(here: Path) -> None:
    (here / "script.py").write_text("raise SystemExit(0)\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="__main__"):
        load("script:road")
