"""The command itself: its groups, and what it says when something goes wrong."""

import re
import traceback
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, NoReturn

import click
from sqlalchemy.exc import DBAPIError

from postroad.cli.application import UserCodeFailed
from postroad.errors import PostroadError
from postroad.redact import one_line, redact

_INTERRUPTED = 130
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")


_HOMES: Final = {
    "dev": "running",
    "status": "status",
    "doctor": "doctor",
    "tail": "tail",
    "trace": "trace",
    "check": "check",
    "repair": "check",
    "verify": "verify",
    "publish": "publish",
    "outbox": "outbox",
    "inbox": "inbox",
    "dlq": "dlq",
    "failures": "failures",
    "command": "command",
    "projection": "projection",
    "pause": "pausing",
    "resume": "pausing",
    "drain": "pausing",
    "release": "pausing",
    "audit": "audit",
    "dashboard": "dashboard",
    "run": "running",
    "relay": "running",
    "worker": "running",
    "db": "db",
    "topology": "topology",
    "names": "names",
    "schema": "schema",
    "alerts": "observing",
    "healthcheck": "observing",
}
"""The module of each command, in the order in which a newcomer needs them."""


class Commands(click.Group):
    """A command's module is imported when it is called for: nobody shall wait for all the others."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_HOMES)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _HOMES:
            return None
        found: click.Command = getattr(import_module(f"postroad.cli.{_HOMES[name]}"), name)
        return found

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if (
            args[0] not in _HOMES
            and not context.resilient_parsing
            and (near := get_close_matches(args[0], _HOMES, n=1))
        ):
            raise click.UsageError(f"There is no command {args[0]!r}. Did you mean {near[0]!r}?", context)
        return super().resolve_command(context, args)

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        for word in args:
            if _NOT_TEXT.search(word):
                # Bytes that are no UTF-8 arrive as halves of surrogate pairs; nothing could store or print them.
                raise click.UsageError(f"{word!a} is not UTF-8 text.", context)
        return super().parse_args(context, args)

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort) as told:
            if isinstance(told, UserCodeFailed):
                if told.trace:
                    _tell(told.trace)
                _tell_error(told.message)
                raise click.exceptions.Exit(1) from None
            raise
        except KeyboardInterrupt:
            raise click.exceptions.Exit(_INTERRUPTED) from None
        except BrokenPipeError:
            raise  # click leaves quietly when nobody reads any more
        except BaseExceptionGroup as group:
            _fail(_first(group), debug=context.params["debug"])
        except Exception as error:
            _fail(error, debug=context.params["debug"])


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What went wrong first, out of things that ran together; an error of ours before any other."""
    ours, _ = group.split(PostroadError)
    found: BaseException = ours or group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def _fail(error: BaseException, *, debug: bool) -> NoReturn:
    if debug:
        _tell("".join(traceback.format_exception(error)))
    if isinstance(error, PostroadError):
        _tell_error(str(error))
    elif isinstance(error, DBAPIError):
        _tell_error(f"The database refused: {str(error.orig).strip().partition(chr(10))[0]}")
    else:
        _tell_error(f"unexpected {type(error).__name__}: {error}")
        if not debug:
            _tell("This should not happen. `postroad --debug …` shows the traceback; please report it.")
    raise click.exceptions.Exit(1)


def _tell_error(text: str) -> None:
    click.echo(f"error: {one_line(text.strip())}", err=True)


def _tell(text: str) -> None:
    click.echo(redact(text.rstrip()), err=True)


def _version() -> str:
    try:
        return version("postroad")
    except PackageNotFoundError:
        return "(not installed)"


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(_version(), "--version", "-V", prog_name="postroad")
@click.option("--debug", is_flag=True, envvar="POSTROAD_DEBUG", help="Show tracebacks of unexpected errors.")
def main(debug: bool) -> None:
    """Reliable events between services: written in your transaction, handled once in effect.

    APP is where your Postroad is, as module:attribute, such as shop:road for `road = Postroad(…)` in shop.py.
    Every command takes --app APP. Set POSTROAD_APP and you need not repeat it. Commands that take no other
    argument also take it right behind, as below; publish takes it before the event's type.

    \b
    First steps:
      postroad dev shop:road           everything in one process, tables included
      postroad status shop:road        what waits, what runs, what has failed
      postroad outbox list shop:road   the events, newest first

    Exit codes: 0 it worked, 1 it failed, 2 the command was not understood.
    """
