"""Every command with every option it has, given nonsense: a clear refusal and a documented exit code, always.

The commands are found by walking the command itself, so that a new one is tried without being named here.
"""

import asyncio
import logging
import re
import string
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from postroad import Postroad
from postroad.cli import main
from postroad.testing.office import Posted
from tests.fuzz.conftest import bounded
from tests.support.commands import leaves

RUNS_ON = {"dev", "run", "relay", "worker", "tail", "dashboard"}
"""Those that go on until they are stopped: tried only where they cannot begin."""
EXAMPLES = 25


COMMANDS = dict(leaves(main))


# No surrogates and no NUL where a shell could not pass them either; bytes that are no UTF-8 arrive as surrogates.
anything = st.text(max_size=30) | st.text(st.characters(exclude_characters="\0", codec=None), max_size=30)
words = st.sampled_from(
    ["", "-", "--", "--help", "@", "@nowhere", "0", "-1", "1", "50", "9" * 25, "9" * 5_000, "nan", "inf", "1e400",
     "NEW", "new", "null", "{}", "[]", '{"parcel": "a"}', '{"parcel": 1}', "shop:road", ":", "a:b", ".:x",
     "..a:b", "os:path", "a..b:c",
     "parcel/a", "a/b/c", "/", "group/", "office.parcel.events", "office.parcel.events.dlq", "parcel.posted",
     "receipts", "00000000-0000-0000-0000-000000000007", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
     "{00000000-0000-0000-0000-000000000007}", "postroad_outbox", "no_table", "a.b.c", "a-b", "x" * 70, "x" * 5_000,
     "\udcff", "é", "\x1b[2J", "a\nb", "%s", "[red]", "postgresql://", "postgresql://u:p@127.0.0.1:1/x",
     "postgresql://u:p@127.0.0.1:x/y", "mysql://127.0.0.1:1/x", "sqlite:///nowhere/x.db", "sqlite://u:p@h/x", "oracle://x",
     "embedded:", "embedded:nowhere/x.db", "embedded://host/x", "amqp://u:p@127.0.0.1:1/",
     "kafka:", "kafka://u:p@127.0.0.1:x/", "kafka:x", "pubsub:", "pubsub://u:p@h",
     "pubsub://my-project?emulator=x", "x:", "://"]
)  # fmt: skip
dangerous = st.sampled_from(
    ["", "\udcff", "9" * 25, "9" * 5_000, "x" * 5_000, "a\nb\x1b[2J", "..a:b", "postgresql://u:p@h:x/y"]
)
values = dangerous | words | anything


SITE = {"app", "app_argument", "database_url", "broker_url"}


def chosen(parameter: click.Parameter, known: Sequence[str]) -> st.SearchStrategy[str]:
    """Often what the parameter takes, or else every call would already end at the first one."""
    match parameter.type:
        case click.Choice() as choice:
            return st.sampled_from(list(choice.choices)) | values
        case click.IntRange() | click.types.FloatParamType():
            return st.sampled_from(["1", "7", "50", "10000"]) | values
    return values | st.sampled_from(list(known)) if known else values


@st.composite
def arguments(draw: st.DrawFn, command: click.Command, known: Sequence[str]) -> list[str]:
    """A command's own parameters, some of them, in any order, with values that need not make sense."""
    given: list[list[str]] = []
    for parameter in command.params:
        # Seldom another site: it would be refused before anything else is looked at.
        if draw(st.integers(0, 15 if parameter.name in SITE and known else 2)) and not parameter.required:
            continue
        value = chosen(parameter, known)
        if isinstance(parameter, click.Argument):
            many = draw(st.integers(1, 3)) if parameter.nargs == -1 else parameter.nargs
            given.append(draw(st.lists(value, min_size=many, max_size=many)))
        else:
            option = draw(st.sampled_from(parameter.opts))
            given.append([option] if getattr(parameter, "is_flag", False) else [option, draw(value)])
    if draw(st.integers(0, 19)) == 0:
        given.append([draw(values)])
    return [word for part in draw(st.permutations(given)) for word in part]


class Site:
    """A database with a few events and a broker with none."""

    def __init__(self, folder: Path) -> None:
        self.places = {
            "DATABASE_URL": f"sqlite:///{folder / 'site.db'}",
            "BROKER_URL": f"embedded:{folder / 'broker.db'}",
        }
        self.ids = asyncio.run(self._fill())

    async def _fill(self) -> list[str]:
        async with Postroad("office", self.places["DATABASE_URL"], self.places["BROKER_URL"]) as road:
            await road.migrate()
            async with road.session() as session, session.begin():
                added = [road.add(session, Posted(parcel)) for parcel in "abc"]
                await session.flush()
                await session.execute(text("UPDATE postroad_outbox SET state = 'FAILED', last_error = 'no'"))
            return [str(one.id) for one in added]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site"))


@pytest.fixture(autouse=True)
def somewhere_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nonsense makes a command create, or import, it creates or finds here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])


def invoke(args: Sequence[str], environment: dict[str, str | None]) -> Result:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        done = CliRunner().invoke(main, args, env={"POSTROAD_APP": None, **environment}, prog_name="postroad")
    finally:
        # A command may set up the process's log, which is meant to last as long as the process.
        root.handlers[:] = handlers
        root.setLevel(level)
    told = f"{args}\n{done.output}"
    assert done.exception is None or isinstance(done.exception, SystemExit), f"{done.exception!r}: {told}"
    assert done.exit_code in (0, 1, 2), told
    assert "Traceback" not in done.output, told
    assert "error: unexpected" not in done.stderr, told
    if done.exit_code == 1 and " does not answer: " in done.stdout:
        return done  # what a health check is for is no error
    if done.exit_code == 1:
        last = done.stderr.removesuffix("\n").rpartition("\n")[2]
        assert last.startswith("error: "), told
        assert not re.search("[\x00-\x1f\x7f-\x9f]", last), told
    if done.exit_code == 2:
        assert "Usage: postroad" in done.stderr, told
        assert "Error: " in done.stderr, told
    if done.exit_code:
        assert len(done.stderr.rstrip().rpartition("rror: ")[2]) > 8, told
    return done


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
@given(data=st.data())
@bounded(EXAMPLES)
def test_nonsense_is_refused_clearly(path: tuple[str, ...], data: st.DataObject, site: Site) -> None:
    command = COMMANDS[path]
    places: dict[str, str | None] = {"DATABASE_URL": None, "BROKER_URL": None}
    if path[-1] not in RUNS_ON:
        places = dict(data.draw(st.sampled_from([site.places, site.places, places])))
    args = data.draw(arguments(command, site.ids if places["DATABASE_URL"] else ()))
    invoke([*path, *args], places)


addresses = st.sampled_from(["", "postgresql:", "mysql:", "sqlite:", "embedded:", "kafka:", "pubsub:", "x:"]).flatmap(
    lambda scheme: st.text(st.sampled_from(string.printable[:95] + "é\udcff"), max_size=25).map(
        lambda rest: scheme + rest
    )
)


@given(app=values, database=addresses | values, broker=addresses | values, path=st.sampled_from([*COMMANDS]))
@bounded(4 * EXAMPLES)
def test_nonsense_in_the_environment_is_refused_clearly(
    app: str, database: str, broker: str, path: tuple[str, ...], site: Site
) -> None:
    """An environment cannot hold a NUL, so that is left out."""
    places: dict[str, Any] = {"DATABASE_URL": database, "BROKER_URL": broker}
    if path[-1] in RUNS_ON:
        places["POSTROAD_APP"] = app
    required = [word for p in COMMANDS[path].params if isinstance(p, click.Argument) and p.required for word in "x"]
    invoke([*path, *required], {name: value.replace("\0", "") for name, value in places.items()})


@pytest.mark.parametrize("http", ["9" * 5_000, "a\nb\x1b[2J:1", f"{'x' * 5_000}:1", "[:1", "é..:1"])
def test_a_health_check_of_nowhere_is_answered(http: str) -> None:
    done = invoke(["healthcheck", "--http", http], {})
    assert done.exit_code == 1
    assert not re.search("[\x00-\x1f\x7f-\x9f]", done.output.removesuffix("\n"))


def test_the_commands_that_go_on_exist() -> None:
    assert {path[-1] for path in COMMANDS} >= RUNS_ON
