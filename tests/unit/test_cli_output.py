"""How values are told: whole, on one line, without secrets."""

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest

from postroad.cli.output import Output, age, as_json, counted, tell, times


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(None, "-"), (0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h"), (172_800, "2 days")],
)
def test_ages(seconds: float | None, told: str) -> None:
    assert age(seconds) == told


@pytest.mark.parametrize(
    ("number", "told"), [(None, "-"), (0, "0"), (9_999, "9,999"), (10_000, "10,000+"), (10_001, "10,001+")]
)
def test_counts_say_where_counting_stopped(number: int | None, told: str) -> None:
    assert counted(number, 10_000) == told


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "-"),
        (datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC), "2025-01-02 03:04:05Z"),
        (b"abc", "3 bytes"),
        ({"url": "amqp://u:s3cret@mq/"}, '{"url":"amqp://u:***@mq/"}'),
        ("two\nlines", "two\\nlines"),
    ],
)
def test_values_are_told_on_one_line(value: object, told: str) -> None:
    assert tell(value) == told


def test_json_has_ids_times_and_no_secrets() -> None:
    value = {
        "id": UUID(int=7),
        "at": datetime(2025, 1, 2, tzinfo=UTC),
        "error": "password=s3cret",
        "bytes": b"\xff",
    }
    assert json.loads(as_json(value)) == {
        "id": "00000000-0000-0000-0000-000000000007",
        "at": "2025-01-02T00:00:00Z",
        "error": "password=***",
        "bytes": "/w==",
    }


def test_a_piped_table_is_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(("id", "error"), [("x" * 300, "[red]not markup[/red]")])
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["id", "error"]
    assert row == f"{'x' * 300}  [red]not markup[/red]"


def test_plurals() -> None:
    assert (times(1, "attempt"), times(2, "attempt")) == ("1 attempt", "2 attempts")
