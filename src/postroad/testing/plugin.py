"""The pytest plugin: the `survives` fixture. Without it, a test run stays as it is."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

# Everything of Postroad is imported when the fixture is used: whoever has it installed and does not test with it
# must not wait for it.
if TYPE_CHECKING:
    from postroad.testing.survival import Survived

_OPTION = "--postroad-fault"


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
    ) -> "Survived": ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("postroad").addoption(
        _OPTION,
        default="",
        metavar="FAULT",
        help="try only this fault in tests that use `survives`: commit-before:3, or all of a kind: commit-before",
    )


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
    """

    def survive(build: Any = None, scenario: Any = None, *, outcome: Any = None, **options: Any) -> "Survived":
        from postroad.testing.survival import DidNotSurvive, Survival

        folder: Path = tmp_path_factory.mktemp("survives")
        survival = Survival(
            build,
            scenario,
            outcome=outcome,  # None, like any other thing that is no function, is refused there by name
            folder=folder,
            only=request.config.getoption(_OPTION),
            rerun=f"pytest '{request.node.nodeid}' {_OPTION}=",
            **options,
        )
        try:
            survived = _beside_the_loop(survival.run)
        except DidNotSurvive as told:
            story = str(told)
        else:
            print(survived)
            return survived
        # Outside the except clause, so that pytest shows the story once and no chain of exceptions.
        pytest.fail(story, pytrace=False)

    return survive


def _beside_the_loop(run: "Callable[[], Survived]") -> "Survived":
    """An async test has an event loop running in this thread, and there can be only one: then in another."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run()
    with ThreadPoolExecutor(1, "survives") as thread:
        return thread.submit(run).result()
