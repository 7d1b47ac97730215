"""Runs the figures, shows the table, and leaves build/bench.json behind."""

import asyncio
import importlib
import json
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
import psycopg
from rich.console import Console
from rich.table import Table

from bench.common import ROOT, Figure, Scale, service

NAMES = (
    "write",
    "commands",
    "relay",
    "latency",
    "parked",
    "consume",
    "rebuild",
    "check",
    "dashboard",
    "rabbitmq",
    "kafka",
    "pubsub",
)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@click.option("--quick", is_flag=True, help="As small as possible: only to see that every figure runs.")
@click.option("--full", is_flag=True, help="The sizes of the promises: ten million rows, many minutes.")
def main(names: tuple[str, ...], quick: bool, full: bool) -> None:
    """Measure some figures, or all."""
    scale = Scale.QUICK if quick else Scale.FULL if full else Scale.NORMAL
    console = Console(width=max(Console().width, 110))
    server = service("postgresql")
    machine = _machine(server)
    figures: list[Figure] = []
    for name in names or NAMES:
        with console.status(f"measuring: {name}"):
            figures += asyncio.run(importlib.import_module(f"bench.{name}").measure(scale, server))
    console.print(_table(figures))
    console.print(machine if scale is not Scale.QUICK else f"{machine}; too little was measured to judge by")
    _record(ROOT / "build" / "bench.json", scale, machine, figures)
    if scale is not Scale.QUICK and any(figure.met is False for figure in figures):
        sys.exit(1)


def _table(figures: Sequence[Figure]) -> Table:
    table = Table(title="Postroad beside the bare minimum", caption_justify="left")
    for heading in ("figure", "ours", "bare", "ratio", "best", "target", "met"):
        # Where there is little room, names take a second line: a figure that is cut off is none.
        name = heading == "figure"
        table.add_column(heading, justify="left" if name else "right", no_wrap=not name, overflow="fold")
    for figure in figures:
        table.add_row(
            figure.name,
            _amount(figure.ours, figure.unit),
            _amount(figure.bare, figure.unit),
            "" if figure.ratio is None else f"{figure.ratio:.2f}",
            "" if figure.best is None else f"{figure.best:.2f}",
            str(figure.target or ""),
            {True: "[green]yes[/green]", False: "[red]no[/red]", None: "[dim]-[/dim]"}[figure.met],
        )
    table.caption = "\n".join(f"{figure.name}: {figure.note}" for figure in figures if figure.note)
    return table


def _amount(values: Sequence[float], unit: str) -> str:
    if not values:
        return ""
    value = statistics.median(values)
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.2f} {unit}"


def _machine(server: str) -> str:
    with psycopg.connect(server) as connection:
        version = connection.info.parameter_status("server_version")
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, PostgreSQL {version}"


def _record(path: Path, scale: Scale, machine: str, figures: Sequence[Figure]) -> None:
    told = [
        {
            **asdict(figure),
            "target": str(figure.target or ""),
            "ratio": figure.ratio,
            "best": figure.best,
            "met": figure.met,
        }
        for figure in figures
    ]
    path.parent.mkdir(exist_ok=True)
    record = {"scale": scale.name.lower(), "machine": machine, "figures": told}
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
