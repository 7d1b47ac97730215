"""What `survives` is given, looked at before anything runs."""

from collections.abc import Callable
from typing import Any, Final

from postroad.app import Postroad
from postroad.errors import ConfigurationError

_WANTED: Final = {
    "build": "a function that takes a database URL and returns your Postroad, or the Postroad itself",
    "scenario": "what your service does: async def scenario(road)",
    "outcome": (
        "a function that returns what is to be seen in the end, to compare it with a run without faults: "
        "outcome=lambda: gateway.charges, or outcome=lambda road: rows(road, 'SELECT …') with rows from "
        "postroad.testing"
    ),
    "setup": "what comes before the scenario: async def setup(road)",
}


def check_functions(**given: Callable[..., Any] | Postroad) -> None:
    for name, function in given.items():
        if not callable(function) and not (name == "build" and isinstance(function, Postroad)):
            raise ConfigurationError(f"survives needs `{name}`, and was given {function!r}. It is {_WANTED[name]}.")


def check_workers(workers: object) -> None:
    if type(workers) is not int or workers not in (1, 2):
        raise ConfigurationError(f"workers is {workers!r}. Give 2 to try also two workers at once, or leave it out.")


def check_dead_letters(names: object) -> None:
    if not isinstance(names, list | tuple | set | frozenset) or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(
            f"dead_letters is {names!r}. Give a list of those that are to become one, each by its type and its "
            "aggregate's id: ['order.placed o-1']."
        )
