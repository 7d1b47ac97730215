"""The dashboard's parts by themselves: what is hidden, how failures are told apart, how jobs end, how it is started."""

import asyncio
import json
import signal
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from postroad.dashboard.drawing import INDENT, MOST_DRAWN, tree
from postroad.dashboard.jobs import Find, Jobs
from postroad.dashboard.mask import Mask
from postroad.dashboard.view import MENU, age, ago, pretty
from postroad.dashboard.watch import Watch
from postroad.errors import OperationRefused, StoreUnavailable
from postroad.operations import Step
from postroad.operations.fingerprint import fingerprint
from tests.support.commands import Shell
from tests.support.components import ROOT
from tests.support.fair import Fair

BEGAN = datetime(2026, 11, 17, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("rule", "payload", "shown"),
    [
        ("card", {"card": 1, "a": [{"Card": [2]}]}, {"card": "***", "a": [{"Card": "***"}]}),
        ("a.b", {"a": {"b": 1, "c": 2}, "b": 3}, {"a": {"b": "***", "c": 2}, "b": 3}),
        ("a.*.b", {"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": "***"}, {"b": "***"}]}),
        ("*", {"a": 1}, {"a": "***"}),
        ("x", {"password": "p", "a": ["db://u:secret@h/d"]}, {"password": "***", "a": ["db://u:***@h/d"]}),
    ],
)  # fmt: skip
def test_a_mask_hides_what_its_rules_name(rule: str, payload: Any, shown: Any) -> None:
    assert Mask([rule])(payload) == shown


def test_every_screen_of_the_menu_has_its_picture_in_the_guide() -> None:
    guide = (ROOT / "docs/dashboard.md").read_text(encoding="utf-8")
    for path, title, _ in MENU:
        assert f"images/dashboard/{path.strip('/') or 'overview'}-" in guide, title
    for picture in (ROOT / "docs/images/dashboard").iterdir():
        assert f"images/dashboard/{picture.name}" in guide


def test_bytes_are_shown_only_where_nothing_is_masked() -> None:
    assert Mask()(b"\0a") == b"\0a"
    assert Mask(["card"])(b"card=4111") is None
    assert pretty(None) == "hidden"
    assert pretty(b"\0ab") == f"000000  {'00 61 62':<47}  ·ab"


def test_what_was_hidden_and_left_alone_is_restored() -> None:
    original = {"card": "4111", "list": [{"card": "5", "n": 1}], "url": "db://u:secret@h/d", "n": 1}
    edited = {
        "card": "***",
        "list": [{"card": "***", "n": 2}],
        "url": "db://u:***@h/d",
        "n": 2,
        "more": ["a **bold** word"],
    }
    restored = {**edited, "card": "4111", "list": [{"card": "5", "n": 2}], "url": "db://u:secret@h/d"}
    assert Mask(["card"]).restore(edited, original) == restored


@pytest.mark.parametrize("untouched", [[{"card": "5"}, {"card": "6"}], []])
def test_a_list_left_alone_or_written_whole_is_taken(untouched: list[Any]) -> None:
    mask, original = Mask(["card"]), {"list": untouched, "note": "***"}
    assert mask.restore(mask(original), original) == original
    whole = {"list": [{"card": "9"}], "note": "***"}
    assert mask.restore(whole, original) == whole


@pytest.mark.parametrize(
    ("edited", "told"),
    [
        ([{"card": "***", "n": 2}], r"payload.list had 2 entries"),  # the first was removed
        ([{"card": "***", "n": 2}, {"card": "***", "n": 1}], r"payload.list had 2 entries"),
        ([{"n": 0}, {"card": "***", "n": 1}, {"card": "***", "n": 2}], r"payload.list had 2 entries"),
        ([{"card": "***", "n": 1}, {"card": "***", "n": 2}, {"card": "9", "n": 3}], r"payload.list had 2 entries"),
        ([{"card": "***", "n": 1}, {"card": ["***"], "n": 2}], r"payload.list\[1\].card had 0 entries"),
        ([{"card": "***", "n": 1}, {"card": "7", "n": "***"}], r"payload.list\[1\].n is '\*\*\*'"),
        ({"0": {"card": "***"}}, r"payload.list.0.card is"),
    ],
)
def test_what_is_hidden_is_never_put_in_another_place(edited: Any, told: str) -> None:
    original = {"list": [{"card": "5", "n": 1}, {"card": "6", "n": 2}]}
    with pytest.raises(OperationRefused, match=told):
        Mask(["card"]).restore({"list": edited}, original)


def test_a_text_that_is_hidden_in_part_is_left_alone_or_written_whole() -> None:
    original = {"url": "db://u:secret@h/d"}
    with pytest.raises(OperationRefused, match="write it whole"):
        Mask().restore({"url": "db://u:***@h/other"}, original)
    assert Mask().restore({"url": "db://h/other"}, original) == {"url": "db://h/other"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 is gone", "order 4,711 is gone"),
        ("no event 018f0000-0000-7000-8000-000000000001", "no event 018F00000000700080000000000000ff"),
        ("late since 2026-11-17T03:00:00Z", "late since 2026-11-18 04:00:00.5+01:00"),
        ("no queue takes 'a.b'", 'no queue takes "c d"'),
        ("too\n  many 0x7f", "too many 0xFF"),
    ],
)
def test_failures_that_differ_in_particulars_are_alike(one: str, other: str) -> None:
    assert fingerprint(one) == fingerprint(other)


def test_failures_of_different_causes_are_not_alike() -> None:
    assert fingerprint("connection refused") != fingerprint("connection reset")
    assert fingerprint("") == ""


def found(subjects: Sequence[int]) -> Find:
    async def find() -> Sequence[int]:
        return subjects

    return find


async def finished(jobs: Jobs) -> None:
    await asyncio.gather(*jobs._tasks)


async def test_a_job_passes_over_what_has_moved_and_does_the_rest() -> None:
    jobs, done = Jobs(), []

    async def act(piece: Sequence[int]) -> None:
        if 7 in piece:
            raise OperationRefused("moved")
        done.extend(piece)

    job = jobs.start("Counting", "ada", found(range(250)), act)
    await finished(jobs)
    assert (job.state, job.done, job.passed_over) == ("finished", 249, 1)
    assert sorted(done) == [number for number in range(250) if number != 7]


async def test_a_job_that_meets_an_outage_says_so_and_stops() -> None:
    jobs = Jobs()

    async def act(piece: Sequence[int]) -> None:
        if 100 in piece:
            raise StoreUnavailable("The database is out. Is it running?")

    job = jobs.start("Counting", "ada", found(range(250)), act)
    await finished(jobs)
    assert (job.state, job.done, job.trouble) == ("stopped", 100, "The database is out. Is it running?")


async def test_a_job_that_meets_a_fault_fails_and_does_not_run_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    jobs = Jobs()

    async def act(piece: Sequence[int]) -> None:
        if 100 in piece:
            raise KeyError("cell\nof password=hush")

    job = jobs.start("Counting", "ada", found(range(250)), act)
    await finished(jobs)
    assert (job.state, job.done, job.trouble) == ("failed", 100, "KeyError: 'cell\\nof password=***'")
    (record,) = caplog.records
    assert record.getMessage() == "Counting, begun by ada, failed after 100"
    assert record.exc_info


async def test_a_dashboard_that_ends_stops_its_jobs() -> None:
    jobs = Jobs()

    async def act(piece: Sequence[int]) -> None:
        await asyncio.Event().wait()

    job = jobs.start("Waiting", "ada", found([1]), act)
    await asyncio.sleep(0)
    await jobs.aclose()
    assert (job.state, job.done) == ("stopped", 0)
    with pytest.raises(OperationRefused, match="no job"):
        jobs.find("other")


async def test_samples_end_when_nobody_looks_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fair = Fair(tmp_path)
    fair.loop.close()
    await fair.road.migrate()
    monkeypatch.setattr("postroad.dashboard.watch._UNWATCHED", -1.0)
    watch = Watch(fair.road, 0.01)
    await watch.status()
    assert watch._task is not None
    await watch._task  # ends by itself
    await watch.status(fresh=True)
    assert len(watch.samples) == 2
    await watch.aclose()
    await fair.road.aclose()


def happened(id: str, cause: str, second: int) -> Step:
    return Step("event", id, "t", "k", 1, BEGAN + timedelta(seconds=second), "SENT", "c", cause)


def test_a_ring_of_causes_is_told_once_and_ends() -> None:
    drawn = tree([happened("a", "b", 0), happened("b", "a", 1), happened("c", "c", 2)])
    assert sorted(twig.step.id for twig in drawn.twigs) == ["a", "b", "c"]


def test_effects_stand_right_behind_their_cause_and_a_long_chain_is_drawn_in_part() -> None:
    drawn = tree([happened("a", "", 0), happened("b", "", 1), happened("c", "a", 2), happened("d", "c", 4)])
    assert [(twig.step.id, twig.x, twig.after) for twig in drawn.twigs] == [
        ("a", 0, 0.0), ("c", INDENT, 2.0), ("d", 2 * INDENT, 4.0), ("b", 0, 1.0),
    ]  # fmt: skip
    assert len(tree([happened(str(n), str(n - 1), n) for n in range(5_000)]).twigs) == MOST_DRAWN
    assert tree([]).twigs == []


def test_times_are_told_as_a_person_would() -> None:
    assert [age(s) for s in (None, 0, 0.2, 5, 90, 7200, 172_800)] == ["–", "0 s", "< 1 s", "5 s", "2 min", "2 h", "2 d"]
    assert ago(BEGAN, BEGAN + timedelta(minutes=5)) == "5 min ago"
    assert ago(BEGAN + timedelta(hours=2), BEGAN) == "in 2 h"


# -- the command -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--host 0.0.0.0", "would let everybody in"),
        ("--host 192.168.0.7 --token short", "shorter than 16 characters"),
    ],
)
def test_it_does_not_listen_elsewhere_without_a_token(options: str, told: str, tmp_path: Path) -> None:
    assert told in Shell(tmp_path)(f"dashboard shop:road {options}", expect=1)


def test_without_tables_it_says_what_to_do(tmp_path: Path) -> None:
    assert "postroad db migrate shop:road" in Shell(tmp_path)("dashboard shop:road --port 0", expect=1)


def test_the_command_serves_until_it_is_stopped(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell("db migrate shop:road")
    with shell.running("dashboard shop:road --port 0 --json") as dashboard:
        url = json.loads(dashboard.until("started"))["url"]
        with urllib.request.urlopen(f"{url}api/status", timeout=10) as answer:
            assert json.load(answer)["workers"] == []
        dashboard.signal(signal.SIGTERM)
        assert dashboard.ended() == 0
