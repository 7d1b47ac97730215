"""The alert rules, run by Prometheus' own tool: each is provoked, and each is silent just below its threshold."""

import json
import subprocess
from pathlib import Path

import pytest

from postroad.telemetry.alerts import RULES, Rule, rule_file
from tests.support.components import ROOT, missing

STEADY, GROWING = "{0}x30", "0+{0}x30"
SLOW = "_bucket"

# For each alert: the series, the value that is still quiet, and the first that is not.
PROVOKED = {
    "OutboxBacklogHigh": ('outbox_pending_count{outbox="o"}', 1000, 1001),
    "OutboxPublishFailureRate": ('outbox_publish_error_total{topic="t"}', "0+6x30", "0+7x30"),
    "OutboxPublishErrors": ('outbox_publish_error_total{topic="t"}', "0+9.9x30", "0+10.1x30"),
    "OutboxPublishSlow": ('outbox_publish_latency_bucket{topic="t",le="%s"}', "30", "60"),
    "OutboxEventParked": ('outbox_max_delivery_attempts{outbox="o"}', 0, 1),
    "OutboxOldestUnsent": ('outbox_oldest_unsent_age{outbox="o"}', 60, 61),
    "RelayBreakerOpen": ('relay_breaker_open{topic="t"}', 0, 1),
    "NoRelayAlive": ('relays_alive{job="j",outbox="o"}', 1, 0),
    "ShardsWithoutOwner": ('outbox_shards_without_owner{outbox="o"}', 0, 1),
    "OutboxPaused": ('outbox_paused{outbox="o"}', 0, 1),
    "NoWorkerAlive": ('workers_alive{job="j",group="g"}', 1, 0),
    "GroupPaused": ('group_paused{group="g"}', 0, 1),
    "SubscriptionBacklogHigh": ('subscription_num_undelivered_messages{subscription="s"}', 1000, 1001),
    "DLQMessagesDetected": ('dlq_message_count{topic="t"}', 10, 11),
    "SubscriptionOldestUnacked": ('subscription_oldest_unacked_message_age{subscription="s"}', 300, 301),
    "ProjectionErrors": ('projection_process_error_total{group="g",event_type="e"}', "0+9.9x30", "0+10.1x30"),
    "ProjectionSlow": ('projection_process_latency_bucket{group="g",le="%s"}', "60", "300"),
    "ProjectionVersionLag": ('projection_version_lag{group="g"}', 10, 11),
    "HandlerStuck": ('handler_running_seconds{group="g"}', 300, 301),
    "CanaryStale": ('canary_age_seconds{topic="t",group="g",source="s"}', 30, 31),
    "QueueBacklog": ('subscription_num_undelivered_messages{subscription="s"}', 1000, 1001),
    "DeadLettersPresent": ('dlq_message_count{topic="t"}', 0, 1),
    "ConsumeExceededMaxRetry": ('consume_failed_count{group="g",state="failed"}', 0, 1),
    "ConsumeRetriesHigh": ('consume_max_retry_count{group="g"}', 3, 4),
    "high_pending_commands": ("pending_commands", 100, 101),
    "command_processing_timeout": ("avg_processing_time", 30000, 30001),
    "high_failure_rate": ("retry_rate", 0.1, 0.11),
    "outbox_publish_delay": ("avg_publish_delay", 5000, 5001),
    "version_gap_detected": ("aggregate_version_gaps", 0, 1),
    "DatabaseUnreachable": ("postroad_database_up", 1, 0),
    "BrokerUnreachable": ("postroad_broker_up", 1, 0),
}

EARLY = {"15s": "0m", "1m": "0m", "5m": "4m", "15m": "14m"}
"""When an alert that must last so long cannot fire yet."""

# As the conventions write them down: expression, how long, severity, summary.
FROZEN = {
    "OutboxBacklogHigh": ("outbox_pending_count > 1000", "5m", "warning", "Outbox 积压过多"),
    "OutboxPublishFailureRate": (
        "rate(outbox_publish_error_total[5m]) > 0.1",
        "5m",
        "critical",
        "Outbox 发布失败率过高",
    ),
    "SubscriptionBacklogHigh": (
        "subscription_num_undelivered_messages > 1000",
        "5m",
        "warning",
        "Subscription 积压过多",
    ),
    "DLQMessagesDetected": ("dlq_message_count > 10", "1m", "critical", "检测到 DLQ 消息"),
    "QueueBacklog": ("subscription_num_undelivered_messages > 1000", "", "warning", "队列积压 > 1000"),
    "DeadLettersPresent": ("dlq_message_count > 0", "", "warning", "DLQ > 0"),
    "high_pending_commands": ("pending_commands > 100", "", "warning", "待处理命令数量过多"),
    "command_processing_timeout": ("avg_processing_time > 30000", "", "critical", "命令处理时间过长"),
    "high_failure_rate": ("retry_rate > 0.1", "", "warning", "命令失败率过高"),
    "outbox_publish_delay": ("avg_publish_delay > 5000", "", "warning", "事件发布延迟过高"),
    "version_gap_detected": ("aggregate_version_gaps > 0", "", "critical", "检测到聚合版本号间隙"),
}


@pytest.fixture(scope="session")
def promtool() -> str:
    found = subprocess.run([ROOT / "scripts" / "promtool"], capture_output=True, text=True, timeout=300, check=False)
    if found.returncode != 0:
        missing("promtool", (found.stderr.strip().splitlines() or ["no reason was given"])[-1])
    return found.stdout.strip()


@pytest.mark.spec("P18", "R12", "G10")
def test_the_conventions_rules_stand_word_for_word() -> None:
    rules = {rule.alert: (rule.expr, rule.lasting, rule.severity, rule.summary) for rule in RULES}
    assert {alert: rules[alert] for alert in FROZEN} == FROZEN


def test_every_rule_has_a_name_of_its_own_and_is_provoked_here() -> None:
    assert [rule.alert for rule in RULES] == sorted({rule.alert for rule in RULES}, key=[*PROVOKED].index)


def series(alert: str, loud: bool) -> list[dict[str, str]]:
    limit = {"series": 'consume_retry_limit{group="g"}', "values": "5x30"}
    others = [limit] if alert == "ConsumeRetriesHigh" else []
    name, quiet_value, loud_value = PROVOKED[alert]
    value = loud_value if loud else quiet_value
    if SLOW in name:
        # All that is measured lies between the bound before this one and this one.
        bounds = ["30", "60", "300", "+Inf"]
        reached = bounds.index(str(value))
        return [
            {"series": name % bound, "values": "0+60x30" if place >= reached else "0x30"}
            for place, bound in enumerate(bounds)
        ]
    return [{"series": name, "values": value if isinstance(value, str) else f"{value}x30"}, *others]


def case(rule: Rule, loud: bool) -> dict[str, object]:
    return {
        "name": f"{rule.alert} {'loud' if loud else 'quiet'}",
        "interval": "1m",
        "input_series": series(rule.alert, loud),
        "promql_expr_test": [
            {
                # Prometheus keeps the alerts that fire as a series: how many there are is all that is asked.
                "expr": f'count(ALERTS{{alertname="{rule.alert}", alertstate="firing", severity="{rule.severity}"}})',
                "eval_time": "20m",
                "exp_samples": [{"labels": "{}", "value": 1}] if loud else [],
            }
        ],
    }


@pytest.mark.spec("P18", "R12", "T10", "G10")
def test_each_alert_fires_at_its_threshold_and_not_below(promtool: str, tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(rule_file(), encoding="utf-8")
    cases = [case(rule, loud) for rule in RULES for loud in (False, True)]
    tests = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "tests.yml").write_text(json.dumps(tests), encoding="utf-8")
    ran = subprocess.run(
        [promtool, "test", "rules", "tests.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_an_alert_waits_as_long_as_it_says(promtool: str, tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(rule_file(), encoding="utf-8")
    cases = []
    for rule in RULES:
        if rule.lasting and SLOW not in rule.expr and "rate(" not in rule.expr:
            early = case(rule, loud=True)
            early["promql_expr_test"][0] |= {  # type: ignore[index]
                "eval_time": EARLY[rule.lasting], "exp_samples": [],
            }  # fmt: skip
            cases.append(early)
    assert cases
    tests = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "tests.yml").write_text(json.dumps(tests), encoding="utf-8")
    ran = subprocess.run(
        [promtool, "test", "rules", "tests.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def firing(promtool: str, folder: Path, alert: str, told: dict[str, str], times: int = 1) -> None:
    """Passes if these series, each with what it tells from minute to minute, make the alert fire so often."""
    (folder / "rules.yml").write_text(rule_file(), encoding="utf-8")
    rule = next(rule for rule in RULES if rule.alert == alert)
    given = [{"series": series, "values": values} for series, values in told.items()]
    tests = {"rule_files": ["rules.yml"], "tests": [case(rule, loud=times > 0) | {"input_series": given}]}
    (folder / "tests.yml").write_text(json.dumps(tests), encoding="utf-8")
    ran = subprocess.run(
        [promtool, "test", "rules", "tests.yml"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_group_without_a_worker_is_noticed_although_another_jobs_has_one(promtool: str, tmp_path: Path) -> None:
    told = {'workers_alive{job="shop",group="mail"}': "0x30", 'workers_alive{job="office",group="mail"}': "2x30"}
    firing(promtool, tmp_path, "NoWorkerAlive", told)


def test_a_worker_that_took_its_metrics_with_it_is_noticed(promtool: str, tmp_path: Path) -> None:
    told = {'workers_alive{job="shop",group="mail"}': "1x5 stale", 'workers_alive{job="office",group="mail"}': "2x30"}
    firing(promtool, tmp_path, "NoWorkerAlive", told)


def test_what_stopped_in_silence_is_noticed_within_a_minute(promtool: str, tmp_path: Path) -> None:
    """At worst it stopped just after a canary had come, and is scraped every 15 seconds, 5 seconds late."""
    assert "  - name: canary\n    interval: 5s\n" in rule_file()
    (tmp_path / "rules.yml").write_text(rule_file(), encoding="utf-8")
    rule = next(rule for rule in RULES if rule.alert == "CanaryStale")
    told = {"series": 'canary_age_seconds{topic="t",group="g",source="s"}', "values": "0 10 25 40 55 70"}
    stopped = case(rule, loud=True) | {"interval": "15s", "input_series": [told]}
    stopped["promql_expr_test"][0] |= {"eval_time": "55s"}  # type: ignore[index]
    tests = {"rule_files": ["rules.yml"], "evaluation_interval": "5s", "tests": [stopped]}
    (tmp_path / "tests.yml").write_text(json.dumps(tests), encoding="utf-8")
    ran = subprocess.run(
        [promtool, "test", "rules", "tests.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(("alert", "metric"), [("NoRelayAlive", "relays_alive"), ("NoWorkerAlive", "workers_alive")])
def test_a_process_that_died_is_noticed_within_a_minute(promtool: str, tmp_path: Path, alert: str, metric: str) -> None:
    """Scraped every 15 seconds; it was heard of last just before a scrape, and for 15 seconds counts as alive."""
    (tmp_path / "rules.yml").write_text(rule_file(), encoding="utf-8")
    label = "outbox" if metric == "relays_alive" else "group"
    rule = next(rule for rule in RULES if rule.alert == alert)
    for values in ("1 1 0 0 0", "1 1 stale"):
        told = {"series": f'{metric}{{job="j",{label}="x"}}', "values": values}
        died = case(rule, loud=True) | {"interval": "15s", "input_series": [told]}
        died["promql_expr_test"][0] |= {"eval_time": "50s"}  # type: ignore[index]
        tests = {"rule_files": ["rules.yml"], "evaluation_interval": "5s", "tests": [died]}
        (tmp_path / "tests.yml").write_text(json.dumps(tests), encoding="utf-8")
        ran = subprocess.run(
            [promtool, "test", "rules", "tests.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_burst_of_failures_between_two_scrapes_is_seen(promtool: str, tmp_path: Path) -> None:
    """As the counter stands at 0 before."""
    errors = {'projection_process_error_total{group="g",event_type="e"}': "0x16 60x14"}
    firing(promtool, tmp_path, "ProjectionErrors", errors)


def test_retries_are_high_by_the_groups_own_limit(promtool: str, tmp_path: Path) -> None:
    def told(most: int, limit: int) -> dict[str, str]:
        return {
            'consume_max_retry_count{group="g"}': f"{most}x30",
            'consume_retry_limit{group="g"}': f"{limit}x30",
        }

    firing(promtool, tmp_path, "ConsumeRetriesHigh", told(2, 3))
    firing(promtool, tmp_path, "ConsumeRetriesHigh", told(4, 20), times=0)
    firing(promtool, tmp_path, "ConsumeRetriesHigh", told(0, 1), times=0)


def test_a_service_without_a_relay_is_noticed_although_another_has_one(promtool: str, tmp_path: Path) -> None:
    told = {'relays_alive{job="shop",outbox="o"}': "0x30", 'relays_alive{job="office",outbox="o"}': "1x30"}
    firing(promtool, tmp_path, "NoRelayAlive", told)


def test_no_relay_at_all_is_noticed_too(promtool: str, tmp_path: Path) -> None:
    """With every process gone there is nobody left to say that there is none."""
    told = {'relays_alive{job="shop",outbox="o"}': "1x5 stale", 'relays_alive{job="office",outbox="o"}': "1x30"}
    firing(promtool, tmp_path, "NoRelayAlive", told)


def test_where_no_relay_belongs_none_is_missed(promtool: str, tmp_path: Path) -> None:
    """A service that only reads tells of workers."""
    firing(promtool, tmp_path, "NoRelayAlive", {'workers_alive{job="reader",group="mail"}': "1x30"}, times=0)
