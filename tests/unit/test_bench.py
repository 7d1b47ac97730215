"""The benchmarks run: the smallest sizes, whatever the figures turn out to be."""

import importlib
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from bench.__main__ import NAMES, _record, _table
from bench.common import Figure, Scale, Target


@pytest.mark.parametrize("name", NAMES)
async def test_the_figure_can_be_measured(name: str, postgresql_url: str, tmp_path: Path) -> None:
    figures = await importlib.import_module(f"bench.{name}").measure(Scale.QUICK, postgresql_url)
    assert figures
    assert all(figure.ours and (figure.target or figure.bare) for figure in figures)
    assert _table(figures).row_count == len(figures)
    _record(tmp_path / "bench.json", Scale.QUICK, "", figures)
    assert figures[0].name in (tmp_path / "bench.json").read_text(encoding="utf-8")


def test_the_table_shows_every_figure_however_little_room_there_is() -> None:
    rates = [12_345_678.0], [23_456_789.0]
    figure = Figure("RabbitMQ, quorum, relay / pika, 1,000 in flight", *rates, "commands/s", Target(0.8))
    console = Console(width=110, file=StringIO())
    console.print(_table([figure]))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for text in ("12,345,678 commands/s", "23,456,789 commands/s", "0.53", "≥ 0.8", "no", "in flight"):
        assert f" {text} " in shown


def test_a_figure_is_judged_by_its_median_ratio() -> None:
    rates = [50.0, 90.0, 100.0], [100.0, 100.0, 100.0]
    assert Figure("rate", *rates, "1/s", Target(0.8)).met is True
    assert Figure("rate", *rates, "1/s", Target(0.95)).met is False
    assert Figure("delay", *rates, "ms", Target(0.8, at_most=True)).met is False
    assert Figure("delay", *rates, "ms", Target(0.8, at_most=True)).best == 0.5
    assert Figure("rate", *rates, "1/s").met is None


def test_a_target_with_a_unit_judges_our_own_value() -> None:
    assert Figure("read", [9.0], [1.0], "ms", Target(10, at_most=True, unit="ms")).met is True
    assert Figure("read", [11.0], [20.0], "ms", Target(10, at_most=True, unit="ms")).met is False
