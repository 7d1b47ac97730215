"""Which application a command is about. The same for all commands: --app, or POSTROAD_APP.

A command that takes no other argument also takes the application right behind it.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

F = TypeVar("F", bound=Callable[..., Any])

HOW = "Name it with --app shop:road, or set POSTROAD_APP"

app_option = click.option("--app", envvar="POSTROAD_APP", metavar="APP", help="The application, such as shop:road.")
app_argument = click.argument("app_argument", metavar="[APP]", required=False)


def chosen(argument: str | None, app: str | None) -> str | None:
    """What was typed counts for more than the environment; two different ones are a mistake."""
    if argument and app and argument != app and typed("app"):
        raise click.UsageError(f"{argument} and --app {app} are two applications. Name one.")
    return argument or app


def typed(parameter: str) -> bool:
    source = click.get_current_context().get_parameter_source(parameter)
    return source is ParameterSource.COMMANDLINE


def needs_app(function: F) -> F:
    """Calls the command with `app`, or says how to name one."""

    @functools.wraps(function)
    def call(app: str | None, app_argument: str | None, **values: Any) -> Any:
        name = chosen(app_argument, app)
        if not name:
            command = click.get_current_context().command_path
            raise click.UsageError(f"Which application? {HOW}; or write: {command} shop:road")
        return function(app=name, **values)

    return app_option(app_argument(call))  # type: ignore[return-value]
