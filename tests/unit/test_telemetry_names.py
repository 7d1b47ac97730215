"""The one table of names, and everything that must agree with it."""

import ast
import json
import re
from pathlib import Path

import pytest

from postroad import logs
from postroad.telemetry.alerts import RULES, rule_file
from postroad.telemetry.grafana import dashboard, queries
from postroad.telemetry.names import COUNTER, GAUGE, HISTOGRAM, LOG_FIELDS, METRICS, SPANS
from tests.support.components import ROOT

PACKAGE = ROOT / "src" / "postroad"

CONVENTIONS = {
    "outbox_pending_count": (GAUGE, "Outbox 待发布事件数"),
    "outbox_publish_success_total": (COUNTER, "发布成功总数"),
    "outbox_publish_error_total": (COUNTER, "发布失败总数"),
    "outbox_publish_latency": (HISTOGRAM, "发布延迟（秒）"),
    "outbox_max_delivery_attempts": (GAUGE, "达到最大重试次数的事件"),
    "subscription_num_undelivered_messages": (GAUGE, "未投递消息数（Pub/Sub 原生）"),
    "subscription_oldest_unacked_message_age": (GAUGE, "最老未确认消息年龄（秒）"),
    "projection_process_success_total": (COUNTER, "处理成功总数"),
    "projection_process_error_total": (COUNTER, "处理失败总数"),
    "projection_process_latency": (HISTOGRAM, "处理延迟（秒）"),
    "projection_version_lag": (GAUGE, "版本滞后（event version - projection version）"),
    "dlq_message_count": (GAUGE, "DLQ 消息数"),
}
COMMANDS = [
    "pending_commands", "processing_commands", "failed_commands", "avg_processing_time", "retry_rate",
    "commands_by_type", "events_per_hour", "pending_outbox", "failed_outbox", "avg_publish_delay", "events_by_type",
    "aggregate_version_gaps",
]  # fmt: skip


@pytest.mark.spec("P16")
def test_the_conventions_metrics_have_their_names_kinds_and_words() -> None:
    assert {name: (METRICS[name].kind, METRICS[name].frozen) for name in CONVENTIONS} == CONVENTIONS


@pytest.mark.spec("G10")
def test_the_metrics_of_commands_and_events_have_their_names() -> None:
    assert {METRICS[name].kind for name in COMMANDS} == {GAUGE}


def test_names_are_such_as_prometheus_takes() -> None:
    for metric in METRICS.values():
        assert re.fullmatch("[a-z][a-z_]*", metric.name)
        assert (metric.kind == COUNTER) == metric.name.endswith("_total")
        assert (metric.kind == HISTOGRAM) == bool(metric.buckets)
        assert list(metric.buckets) == sorted(metric.buckets)
        assert metric.help


def recorded() -> set[str]:
    """The names that some call of ours counts under, as the code spells them."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("add", "set", "observe") and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and first.value in METRICS:
                    found.add(first.value)
    return found


def test_every_metric_is_counted_somewhere() -> None:
    # The counts by status have their names put together.
    assert set(METRICS) - recorded() <= {"pending_commands", "processing_commands", "failed_commands"}


@pytest.mark.spec("P17", "R12")
def test_a_log_record_can_carry_what_the_conventions_ask_for() -> None:
    wanted = "event_id event_type aggregate_id aggregate_type version message_id trace_id ordering_key queue consumer"
    assert set(wanted.split()) <= set(LOG_FIELDS)
    assert tuple(LOG_FIELDS) == logs.FIELDS


def test_every_span_in_the_code_is_in_the_table() -> None:
    source = (PACKAGE / "telemetry" / "tracing.py").read_text(encoding="utf-8")
    assert set(re.findall(r'f"(\w+) \{', source)) == set(SPANS)


# -- the dashboard ---------------------------------------------------------------------------------------


def names_in(expression: str) -> set[str]:
    return {name for name in METRICS if re.search(rf"\b{name}(_bucket)?\b", expression)}


def test_the_dashboard_has_a_panel_for_every_metric_and_asks_for_no_other() -> None:
    panels = json.loads(dashboard())["panels"]
    shown = {name for panel in panels for target in panel["targets"] for name in names_in(target["expr"])}
    assert shown == set(METRICS)
    assert len(panels) == len(METRICS)
    for panel, metric in zip(panels, METRICS.values(), strict=True):
        assert [target["expr"] for target in panel["targets"]] == list(queries(metric).values())
        for label in ("job", *metric.labels):
            assert all(label in target["expr"] for target in panel["targets"])


def test_no_two_panels_lie_on_each_other() -> None:
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in json.loads(dashboard())["panels"]]
    assert len(set(places)) == len(places)


# -- documentation ---------------------------------------------------------------------------------------


def test_the_page_lists_every_metric_log_field_and_span() -> None:
    page = (ROOT / "docs" / "observing.md").read_text(encoding="utf-8")
    for metric in METRICS.values():
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "-"
        assert f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |" in page
    for name, meaning in LOG_FIELDS.items() | SPANS.items():
        assert f"| `{name}` | {meaning} |" in page
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == {*METRICS, *LOG_FIELDS, *SPANS}


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    folder = ROOT / "docs" / "runbook"
    assert {path.stem for path in folder.glob("*.md")} == {rule.alert for rule in RULES} | {"README"}
    listed = (folder / "README.md").read_text(encoding="utf-8")
    for rule in RULES:
        assert f"runbook: docs/runbook/{rule.alert}.md" in rule_file()
        assert f"]({rule.alert}.md)" in listed
        page = (folder / f"{rule.alert}.md").read_text(encoding="utf-8")
        assert page.startswith(f"# {rule.alert}\n")
        assert f"`{rule.expr}`" in page
        assert "**Do:**" in page


def commands_in(page: Path) -> list[str]:
    return re.findall(r"`postroad ([a-z][^`]*)`", page.read_text(encoding="utf-8"))


def test_the_runbook_names_only_commands_that_exist() -> None:
    from postroad.cli import main
    from tests.support.commands import leaves

    known = [" ".join(path) for path, _ in leaves(main)]
    for page in (ROOT / "docs" / "runbook").glob("*.md"):
        for command in commands_in(page):
            assert any(command == one or command.startswith(f"{one} ") for one in known), f"{page.name}: {command}"
