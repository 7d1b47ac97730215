"""The pytest plugin: the `survives` fixture. Without it, a test run stays as it is."""

import sys
import time
from collections.abc import Callable, Collection
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import pytest

# Everything of Postroad is imported when the fixture is used: whoever has it installed and does not test with it
# must not wait for it.
if TYPE_CHECKING:
    from postroad.testing.survival import Survived

_OPTION: Final = "--postroad-fault"
_ARGUMENTS: Final = ("build", "scenario", "outcome", "setup", "database_url", "workers", "dead_letters")
_TRIED: Final = "postroad_faults_tried"
"""The property of a test's report under which it says how many there were."""
_UNTRIED: Final = "postroad_untried"
_debugged = pytest.StashKey[bool]()


class Survives(Protocol):
    def __call__(
        self,
        build: Any,
        scenario: Callable[..., Any],
        *,
        outcome: Callable[..., Any],
        setup: Callable[..., Any] | None = None,
        database_url: str | None = None,
        workers: int = 1,
        dead_letters: Collection[str] = (),
    ) -> "Survived": ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("postroad").addoption(
        _OPTION,
        default="",
        metavar="FAULT",
        help="try only this fault in tests that use `survives`: commit-before:3, or all of a kind: commit-before",
    )


def pytest_configure(config: pytest.Config) -> None:
    if wanted := config.getoption(_OPTION):
        from postroad.testing.survival.faults import mistake_in

        if mistake := mistake_in(wanted):
            raise pytest.UsageError(f"{_OPTION}={wanted}: {mistake}")


def pytest_enter_pdb(config: pytest.Config) -> None:
    config.stash[_debugged] = True


@pytest.fixture
def survives(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Survives:
    """Runs a scenario undisturbed, then with each fault that can happen to it, and compares the outcomes.

    `survives(build, scenario, outcome=…)`, in a plain or an async test:

    build         a function that takes a database URL and returns your Postroad with its handlers; or the
                  Postroad itself, which then gets a database of its own for each run
    scenario      what your service does: `async def scenario(road)`, writing events in transactions
    outcome       a function that returns what is to be seen afterwards, in tables or at a fake's; may ask for `road`
    setup         what is done before the scenario, undisturbed: `async def setup(road)`, such as creating tables
    database_url  an empty database instead of a SQLite file; it is emptied before each run
    workers       2: try also two workers at once, for which SQLite's one writer is not enough
    dead_letters  the events that are meant to become one: ["order.placed o-1"]; any other is a failure
    """

    def survive(build: Any = None, scenario: Any = None, *, outcome: Any = None, **options: Any) -> "Survived":
        __tracebackhide__ = True
        from postroad.testing.survival import DidNotSurvive, Survival
        from postroad.testing.survival.whose import shown_from_theirs_on

        for name in options.keys() - set(_ARGUMENTS):
            raise TypeError(_unknown(name))
        folder: Path = tmp_path_factory.mktemp("survives")
        failure: Exception
        try:
            survived = Survival(
                build,
                scenario,
                outcome=outcome,  # None, like any other thing that is no function, is refused there by name
                folder=folder,
                only=request.config.getoption(_OPTION),
                rerun=f"pytest '{request.node.nodeid}' {_OPTION}=",
                now=lambda: 0.0 if is_debugged(request.config) else time.monotonic(),
                **options,
            ).run()
        except Exception as error:
            failure = error
        else:
            print(survived)
            request.node.user_properties.append((_TRIED, len(survived.tried)))
            if survived.untried:
                request.node.user_properties.append((_UNTRIED, survived.untried))
            return survived
        # Outside the except clause, so that pytest shows it once and no chain of exceptions.
        if isinstance(failure, DidNotSurvive):
            pytest.fail(str(failure), pytrace=False)
        raise shown_from_theirs_on(failure)

    return survive


def is_debugged(config: pytest.Config) -> bool:
    """Whoever looks at a handler line by line takes his time."""
    return config.stash.get(_debugged, False) or "pydevd" in sys.modules


def _unknown(name: str) -> str:
    near = get_close_matches(name, _ARGUMENTS, n=1)
    cure = f"Did you mean {near[0]!r}?" if near else f"It takes: {', '.join(_ARGUMENTS)}."
    return f"survives() has no argument {name!r}. {cure}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What passed says too what it tried: a test that tries next to nothing looks like any other."""
    told = [dict(report.user_properties) for report in terminalreporter.stats.get("passed", ())]
    tried = [properties[_TRIED] for properties in told if _TRIED in properties]
    if tried:
        untried = dict.fromkeys(properties[_UNTRIED] for properties in told if _UNTRIED in properties)
        tests = f"{len(tried)} test{'' if len(tried) == 1 else 's'}"
        terminalreporter.write_line(" ".join([f"survives: {sum(tried)} faults tried in {tests}.", *untried]))
