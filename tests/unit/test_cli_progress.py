"""The bar of long work: how many are done, how fast, how long still."""

import re
from collections.abc import Callable
from functools import partial
from io import StringIO

import pytest
from rich.console import Console

from postroad.cli import progress
from postroad.cli.output import Output
from postroad.cli.progress import watching

Watch = Callable[..., str]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """What a terminal shows last of some seconds, in each of which a thousand are done."""

    def watch(total: int, *, seconds: int = 4, as_json: bool = False, terminal: bool = True) -> str:
        screen, now = StringIO(), 0.0
        monkeypatch.setattr(
            progress, "Console", partial(Console, file=screen, force_terminal=terminal, width=100, get_time=lambda: now)
        )
        with watching(Output(as_json), "rebuild") as tell:
            for second in range(seconds + 1):
                now = float(second)
                tell(second * 1_000, total)
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
        return shown.strip().rpartition("\r")[2].rpartition("rebuild")[2]

    return watch


def test_it_tells_how_many_of_how_many_how_fast_and_how_long_still(watch: Watch) -> None:
    assert watch(10_000).split()[-3:] == ["4000/10000", "1,000/s", "0:00:06"]


def test_where_nobody_knows_how_many_there_are_it_tells_how_fast(watch: Watch) -> None:
    assert watch(0).split()[-2:] == ["4000/?", "1,000/s"]


def test_what_is_read_by_a_program_has_no_bar(watch: Watch) -> None:
    assert watch(10_000, as_json=True) == watch(10_000, terminal=False) == ""


def test_before_anything_is_done_there_is_no_rate(watch: Watch) -> None:
    assert watch(10_000, seconds=0).split()[-1] == "0/10000"
