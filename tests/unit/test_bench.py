"""The benchmarks run: the smallest sizes, whatever the figures turn out to be."""

import importlib
from pathlib import Path

import pytest

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
