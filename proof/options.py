"""What the commands have in common: what is wrong with their options is told in one line, before anything runs."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from postroad.errors import MissingExtra

_MODULES: Final[dict[str, tuple[str, ...]]] = {
    "embedded": (),
    "sqlite": (),
    "rabbitmq": ("pika",),
    "kafka": ("confluent_kafka",),
    "pubsub": ("google.pubsub_v1",),
    "postgresql": ("psycopg",),
    "mysql": ("asyncmy", "pymysql"),
    "dev": ("pytest", "pytest_asyncio", "coverage", "hypothesis", "psycopg", "pymysql"),
}
"""By the extra with which they are installed."""


def need_packages(extras: Iterable[str]) -> None:
    """Ends the process if one is missing; all that are missing are told at once, for they are installed at once."""
    missing = {extra: gone for extra in extras if (gone := [name for name in _MODULES[extra] if not _is_there(name)])}
    if missing:
        modules = dict.fromkeys(name for gone in missing.values() for name in gone)
        print(MissingExtra(f"What this needs ({', '.join(modules)})", ",".join(missing)), file=sys.stderr)
        sys.exit(2)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of what it is a part
        return False


def need_place(file: Path | None) -> None:
    """Ends the process if the figures could not be written there: after the whole run it would be too late."""
    if file is None:
        return
    if file.is_dir():
        why = "is a folder. Name a file."
    elif not file.parent.is_dir():
        why = f"there is no folder {file.parent}. Make it first, or name another."
    elif not os.access(file if file.exists() else file.parent, os.W_OK):
        why = "may not be written. Name another file."
    else:
        return
    print(f"--json {file}: {why}", file=sys.stderr)
    sys.exit(2)


def at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if (value := int(text)) < least:
            raise argparse.ArgumentTypeError(f"{value} is less than {least}")
        return value

    return number


def refuse_ignored(
    parser: argparse.ArgumentParser, options: argparse.Namespace, names: Iterable[str], why: str
) -> None:
    """Those that nobody would look at: a run without them is not the one that was asked for."""
    for name in names:
        value = getattr(options, name)
        # Not a comparison: 0 is an answer, and so is an empty list.
        if value is not None and value is not False:
            parser.error(f"--{name.replace('_', '-')}: {why}")
