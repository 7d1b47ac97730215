"""What the commands print: tables with colour on a terminal, plain columns in a pipe, JSON when asked for."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from postroad.redact import one_line, redact_values

STYLES: Final = {
    "NEW": "cyan", "RETRY": "yellow", "FAILED": "bold red", "SENT": "green", "SKIPPED": "magenta",
    "processing": "cyan", "waiting": "yellow", "failed": "bold red", "refused": "magenta",
    "succeeded": "green", "PENDING": "cyan", "PROCESSING": "cyan", "COMPLETED": "green",
    "ok": "green", "hint": "cyan", "not made": "magenta", "warning": "yellow", "fault": "bold red",
}  # fmt: skip
_GAP: Final = "  "


class Output:
    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.console = Console(highlight=False, soft_wrap=True)

    @property
    def on_terminal(self) -> bool:
        return self.console.is_terminal

    def data(self, value: Any) -> None:
        """One JSON document."""
        click.echo(as_json(value, indent=2 if self.on_terminal else 0))

    def line(self, value: Any) -> None:
        """One JSON document on one line, at once: somebody may be waiting for it."""
        click.echo(as_json(value))
        sys.stdout.flush()

    def say(self, text: str = "", style: str = "") -> None:
        if not self.as_json:
            self.console.print(Text(one_line(text), style=style))

    def heading(self, text: str) -> None:
        self.say()
        self.say(text, "bold")

    def facts(self, facts: dict[str, object]) -> None:
        """Names and values under each other; what is not known is left out."""
        known = {name: tell(value) for name, value in facts.items() if value not in (None, "", (), [], {})}
        width = max(map(len, known), default=0)
        for name, value in known.items():
            label = Text(f"{name:<{width}}{_GAP}", style="dim")
            self.console.print(label.append(Text(value, style=STYLES.get(value, "not dim"))))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        texts = [[tell(value) for value in row] for row in rows]
        if self.on_terminal:
            self._rich_table(columns, texts)
        else:
            self._plain_table(columns, texts)

    def _rich_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
        for column in columns:
            # An id must stay whole, to be copied into the next command; other texts may fold.
            table.add_column(column, overflow="fold", no_wrap=column in ("id", "event"))
        for row in rows:
            table.add_row(*(Text(value, style=STYLES.get(value, "")) for value in row))
        self.console.print(table, soft_wrap=False)

    def _plain_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        lines = [columns, *rows]
        widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
        for line in lines:
            padded = (f"{value:<{width}}" for value, width in zip(line, widths, strict=True))
            click.echo(_GAP.join(padded).rstrip())


def as_json(value: Any, indent: int = 0) -> str:
    plain = redact_values(msgspec.to_builtins(value, str_keys=True))
    encoded = msgspec.json.encode(plain)
    return (msgspec.json.format(encoded, indent=indent) if indent else encoded).decode()


def tell(value: object) -> str:
    """A value as a person reads it, on one line."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, dict | list):
        return one_line(as_json(value))
    return one_line(str(value))


def age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for limit, unit, size in ((120, "s", 1), (7_200, "min", 60), (172_800, "h", 3_600)):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def counted(number: int | None, most: int) -> str:
    """`10,000+` where counting stopped."""
    if number is None:
        return "-"
    return f"{number:,}+" if number >= most else f"{number:,}"


def times(number: int, what: str) -> str:
    return f"{number:,} {what}" + "s" * (number != 1)
