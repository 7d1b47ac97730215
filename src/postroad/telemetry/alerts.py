"""Alert rules for Prometheus: those of the conventions, word for word, and those that a service needs besides."""

import json
from dataclasses import dataclass
from typing import Final

RUNBOOK: Final = "docs/runbook"
_INTERVAL: Final = {"canary": "5s", "alive": "5s"}
"""How often a group's rules are looked at, where not every minute: what stopped in silence is told within one."""


@dataclass(frozen=True, slots=True)
class Rule:
    group: str
    alert: str
    expr: str
    lasting: str
    """How long it must hold; empty: at once."""
    severity: str
    summary: str
    description: str


def _slowest(metric: str, label: str) -> str:
    return f"histogram_quantile(0.95, sum by (le, {label}) (rate({metric}_bucket[5m])))"


def _nobody(metric: str, label: str) -> str:
    """None is alive, or nobody tells any more who did within a day: with the last process its metrics vanish, too.

    By job, because what one service tells must not stand for another.
    """
    told = f"max by (job, {label}) ({metric})"
    return f"{told} == 0 or max by (job, {label}) (last_over_time({metric}[1d])) unless {told}"


RULES: Final = (
    Rule("pubsub_outbox", "OutboxBacklogHigh", "outbox_pending_count > 1000", "5m", "warning",
         "Outbox 积压过多", "Outbox 待发布事件数超过 1000 条，持续 5 分钟"),
    Rule("pubsub_outbox", "OutboxPublishFailureRate", "rate(outbox_publish_error_total[5m]) > 0.1", "5m", "critical",
         "Outbox 发布失败率过高", "5 分钟内发布失败率超过 10%"),
    Rule("pubsub_outbox", "OutboxPublishErrors", "rate(outbox_publish_error_total[5m]) * 60 > 10", "", "warning",
         "Many events could not be sent", "More than 10 failed in a minute"),
    Rule("pubsub_outbox", "OutboxPublishSlow", f"{_slowest('outbox_publish_latency', 'topic')} > 30", "5m", "warning",
         "Events are sent late", "One in twenty takes more than 30 seconds from its write to the broker"),
    Rule("pubsub_outbox", "OutboxEventParked", "outbox_max_delivery_attempts > 0", "", "critical",
         "An event is parked", "The broker refused it to the last attempt; its aggregate waits for a person"),
    Rule("pubsub_outbox", "OutboxOldestUnsent", "outbox_oldest_unsent_age > 60", "1m", "critical",
         "An event has not been sent for a minute", "Nobody carries it, or the broker does not take it"),
    Rule("pubsub_outbox", "RelayBreakerOpen", "relay_breaker_open > 0", "1m", "critical",
         "The broker does not take a topic", "Nothing is lost and no attempt is counted; sending resumes by itself"),
    Rule("alive", "NoRelayAlive", _nobody("relays_alive", "outbox"), "15s", "critical",
         "No relay is alive", "Events are written and not sent"),
    Rule("pubsub_outbox", "ShardsWithoutOwner", "outbox_shards_without_owner > 0", "1m", "warning",
         "Shards belong to no relay", "The events of these shards are not sent"),
    Rule("pubsub_outbox", "OutboxPaused", "outbox_paused > 0", "15m", "warning",
         "An outbox is paused", "A person paused it a quarter of an hour ago; nothing in it is sent"),
    Rule("alive", "NoWorkerAlive", _nobody("workers_alive", "group"), "15s", "critical",
         "No worker of a group is alive", "Its messages are sent and not handled"),
    Rule("pubsub_consumer", "GroupPaused", "group_paused > 0", "15m", "warning",
         "A consumer group is paused", "A person paused it a quarter of an hour ago; its messages wait"),
    Rule("pubsub_consumer", "SubscriptionBacklogHigh", "subscription_num_undelivered_messages > 1000", "5m", "warning",
         "Subscription 积压过多", "未投递消息数超过 1000 条，持续 5 分钟"),
    Rule("pubsub_consumer", "DLQMessagesDetected", "dlq_message_count > 10", "1m", "critical",
         "检测到 DLQ 消息", "DLQ 中有超过 10 条消息，需要人工介入"),
    Rule("pubsub_consumer", "SubscriptionOldestUnacked", "subscription_oldest_unacked_message_age > 300", "", "warning",
         "A message has waited for five minutes", "The group's workers are too few, too slow or stuck"),
    Rule("pubsub_consumer", "ProjectionErrors", "rate(projection_process_error_total[5m]) * 60 > 10", "", "warning",
         "Handlers fail often", "More than 10 attempts failed in a minute"),
    Rule("pubsub_consumer", "ProjectionSlow", f"{_slowest('projection_process_latency', 'group')} > 60", "5m",
         "warning", "Handlers are slow", "One in twenty takes more than 60 seconds"),
    Rule("pubsub_consumer", "ProjectionVersionLag", "projection_version_lag > 10", "1m", "warning",
         "A projection is behind", "More than 10 versions of one aggregate wait to be handled"),
    Rule("pubsub_consumer", "HandlerStuck", "handler_running_seconds > 300", "", "warning",
         "A handler has run for five minutes", "It keeps a place that others wait for"),
    Rule("canary", "CanaryStale", "canary_age_seconds > 30", "", "critical",
         "A canary has not come for half a minute", "Somewhere between outbox and group, something stopped in silence"),
    Rule("rabbitmq", "QueueBacklog", "subscription_num_undelivered_messages > 1000", "", "warning",
         "队列积压 > 1000", "A queue holds more than 1000 messages"),
    Rule("rabbitmq", "DeadLettersPresent", "dlq_message_count > 0", "", "warning",
         "DLQ > 0", "A handler gave up on an event"),
    Rule("consume_template", "ConsumeExceededMaxRetry", 'consume_failed_count{state="failed"} > 0', "", "critical",
         "exceeded maxRetry", "An event has failed for good and waits for a person"),
    Rule("consume_template", "ConsumeRetriesHigh",
         "consume_max_retry_count > 0 and consume_max_retry_count >= consume_retry_limit - 1", "", "warning",
         "retry_count 接近阈值", "An event has one attempt left, or none"),
    Rule("commands", "high_pending_commands", "pending_commands > 100", "", "warning",
         "待处理命令数量过多", "More than 100 commands wait to be begun"),
    Rule("commands", "command_processing_timeout", "avg_processing_time > 30000", "", "critical",
         "命令处理时间过长", "Commands take more than 30 seconds on average"),
    Rule("commands", "high_failure_rate", "retry_rate > 0.1", "", "warning",
         "命令失败率过高", "More than one command in ten fails or has to be repeated"),
    Rule("commands", "outbox_publish_delay", "avg_publish_delay > 5000", "", "warning",
         "事件发布延迟过高", "Events wait more than 5 seconds on average before they are sent"),
    Rule("commands", "version_gap_detected", "aggregate_version_gaps > 0", "", "critical",
         "检测到聚合版本号间隙", "An aggregate's history has a hole"),
    Rule("process", "DatabaseUnreachable", "postroad_database_up == 0", "1m", "critical",
         "A process cannot reach its database", "It waits, and goes on when the database is back"),
    Rule("process", "BrokerUnreachable", "postroad_broker_up == 0", "1m", "critical",
         "A process cannot reach the broker", "It waits, and goes on when the broker is back"),
)  # fmt: skip


def rule_file() -> str:
    """For Prometheus' `rule_files`. Texts are quoted as in JSON, which is YAML too."""
    lines = ["groups:"]
    for group in dict.fromkeys(rule.group for rule in RULES):
        lines += [f"  - name: {group}", f"    interval: {_INTERVAL.get(group, '1m')}", "    rules:"]
        for rule in RULES:
            if rule.group == group:
                lines += _lines(rule)
    return "\n".join(lines) + "\n"


def _lines(rule: Rule) -> list[str]:
    return [
        f"      - alert: {rule.alert}",
        f"        expr: {_text(rule.expr)}",
        *([f"        for: {rule.lasting}"] if rule.lasting else []),
        "        labels:",
        f"          severity: {rule.severity}",
        "        annotations:",
        f"          summary: {_text(rule.summary)}",
        f"          description: {_text(rule.description)}",
        f"          runbook: {RUNBOOK}/{rule.alert}.md",
    ]


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
