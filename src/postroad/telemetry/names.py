"""The one table: every metric, log field and span, with what it means. Nothing is counted, logged or traced that is not
here, and the documentation, the dashboard and the alert rules are checked against it."""

from dataclasses import dataclass
from typing import Final

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

LATENCY: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
PAUSES: Final = (1, 5, 10, 20, 30, 60, 120, 300, 600)


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    frozen: str = ""
    """What the conventions call it, in their own words; it stands before our help."""
    buckets: tuple[float, ...] = ()

    @property
    def told(self) -> str:
        return f"{self.frozen}: {self.help}" if self.frozen else self.help


_TABLE: Final = (
    # -- the outbox and its relay
    Metric("outbox_pending_count", GAUGE, "events due and not sent yet; 10,000 means that many or more", ("outbox",),
           "Outbox 待发布事件数"),
    Metric("outbox_publish_success_total", COUNTER, "events that the broker confirmed", ("topic",), "发布成功总数"),
    Metric("outbox_publish_error_total", COUNTER, "events that the broker refused or could not be given", ("topic",),
           "发布失败总数"),
    Metric("outbox_publish_latency", HISTOGRAM, "seconds from the write to the broker's confirmation", ("topic",),
           "发布延迟（秒）", LATENCY),
    Metric("outbox_max_delivery_attempts", GAUGE, "events parked after their last attempt, each with its key behind it",
           ("outbox",), "达到最大重试次数的事件"),
    Metric("outbox_publish_attempts_total", COUNTER, "attempts to send an event", ("topic",), "publish_attempts"),
    Metric("outbox_retry_interval", HISTOGRAM, "seconds until a refused event is tried again", ("topic",),
           "平均重试间隔", PAUSES),
    Metric("outbox_oldest_unsent_age", GAUGE, "seconds since the oldest unsent event was due; 0 if there is none",
           ("outbox",)),
    Metric("outbox_shards_without_owner", GAUGE, "of 256 shards, those that no relay holds", ("outbox",)),
    Metric("relay_shards_owned", GAUGE, "shards that this process holds", ("outbox",)),
    Metric("relay_breaker_open", GAUGE, "1 while the broker does not take a topic", ("topic",)),
    Metric("relay_outages_total", COUNTER, "times that the broker went away", ("outbox",)),
    Metric("relays_alive", GAUGE, "relays heard of in the last 15 seconds; not told where none has ever been needed",
           ("outbox",)),
    Metric("workers_alive", GAUGE, "workers heard of in the last 15 seconds", ("group",)),
    Metric("outbox_paused", GAUGE, "1 while a person has paused the outbox", ("outbox",)),
    Metric("oldest_snapshot_age", GAUGE, "seconds for which a transaction has kept old rows from being removed, so "
           "that looks at the outbox grow dearer; none on SQLite, or where this user may not see"),
    Metric("group_paused", GAUGE, "1 while a person has paused the group", ("group",)),
    # -- subscriptions, as the broker tells them
    Metric("subscription_num_undelivered_messages", GAUGE, "messages not settled yet; of the embedded broker, "
           "10,000 means that many or more",
           ("subscription",),
           "未投递消息数（Pub/Sub 原生）"),
    Metric("subscription_oldest_unacked_message_age", GAUGE, "seconds since the oldest of them was published",
           ("subscription",), "最老未确认消息年龄（秒）"),
    Metric("subscription_message_rate", GAUGE, "messages per second by the broker's own count: publish, deliver, ack, "
           "redeliver", ("subscription", "kind"), "消费速率"),
    Metric("dlq_message_count", GAUGE, "dead letters; of Kafka, and of Pub/Sub without its monitoring, 100 means that "
           "many or more", ("topic",), "DLQ 消息数"),
    # -- consumers
    Metric("subscription_settled_total", COUNTER, "verdicts given to deliveries: ack, nack, dead", ("group", "verdict"),
           "ack/nack 比例"),
    Metric("projection_process_success_total", COUNTER, "events handled", ("group", "event_type"), "处理成功总数"),
    Metric("projection_process_error_total", COUNTER, "attempts that failed", ("group", "event_type"), "处理失败总数"),
    Metric("projection_process_latency", HISTOGRAM, "seconds from the handler's start to its commit", ("group",),
           "处理延迟（秒）", LATENCY),
    Metric("projection_version_lag", GAUGE, "how many versions the newest event received is ahead of what its "
           "aggregate has been brought to; the most of any", ("group",),
           "版本滞后（event version - projection version）"),
    Metric("inbox_duplicates_total", COUNTER, "deliveries of events that were handled before", ("group",)),
    Metric("consume_failed_count", GAUGE, "failed events: waiting (tried again by themselves) or failed (for good)",
           ("group", "state"), "失败条数"),
    Metric("consume_max_retry_count", GAUGE, "the most attempts that any failed event has had", ("group",),
           "最大 retry_count"),
    Metric("consume_retry_limit", GAUGE, "attempts after which an event that fails is not tried again", ("group",)),
    Metric("subscriber_lane_depth", GAUGE, "deliveries that wait in this process", ("group",)),
    Metric("handler_running_seconds", GAUGE, "how long the handler runs that has run longest; 0 if none does",
           ("group",)),
    Metric("canary_age_seconds", GAUGE, "seconds since the last canary that arrived was written",
           ("topic", "group", "source")),
    # -- commands and their events
    Metric("pending_commands", GAUGE, "commands that nobody has begun"),
    Metric("processing_commands", GAUGE, "commands being run"),
    Metric("failed_commands", GAUGE, "commands that failed"),
    Metric("avg_processing_time", GAUGE, "milliseconds that recent commands took on average"),
    Metric("retry_rate", GAUGE, "the part of recent commands that failed or had to be repeated, 0 to 1"),
    Metric("commands_by_type", GAUGE, "recent commands of each type", ("command_type",)),
    Metric("events_per_hour", GAUGE, "events sent in the last hour; 10,000 means that many or more"),
    Metric("pending_outbox", GAUGE, "events due and not sent yet, of all outboxes"),
    Metric("failed_outbox", GAUGE, "events parked, of all outboxes"),
    Metric("avg_publish_delay", GAUGE, "milliseconds from write to confirmation, of this process's last five minutes"),
    Metric("events_by_type", GAUGE, "events of each type that this process has sent", ("event_type",)),
    Metric("aggregate_version_gaps", GAUGE, "holes in the numbering of aggregates' events: among the last 10,000 "
           "events, or those that the last check has found"),
    # -- what this process can reach
    Metric("postroad_database_up", GAUGE, "1 if the database answered"),
    Metric("postroad_broker_up", GAUGE, "1 if the broker answered"),
)  # fmt: skip

METRICS: Final = {metric.name: metric for metric in _TABLE}

LOG_FIELDS: Final = {
    "event_id": "the event's id, the same in every delivery",
    "event_type": "such as order.placed",
    "aggregate_id": "whose event it is",
    "aggregate_type": "such as order",
    "version": "its place in the aggregate's history",
    "message_id": "the broker's name for the message; the event's id where it has none of its own",
    "trace_id": "the trace in which the event was written",
    "span_id": "the span that wrote it",
    "correlation_id": "what it belongs to",
    "ordering_key": "what it stays in order with",
    "topic": "where it was published",
    "group": "the consumer group",
    "subscription": "the group's place in the topic",
    "queue": "the queue, where the broker has one of another name",
    "consumer": "the consumer group, as queues call it",
    "attempt": "which attempt it was",
    "outcome": "in one word what the text says",
    "tenant_id": "the tenant",
}
"""What a log record may carry through `extra`; nothing else of it is written."""

SPANS: Final = {
    "write": "an event is put into the outbox; child of the caller's span",
    "publish": "the relay gives it to the broker; child of its write span",
    "receive": "deliveries arrive; linked to the write span of each",
    "handle": "a handler runs; child of the write span, or linked to all of them for a batch",
}
"""Each is followed by the event type, or by the subscription: `write order.placed`."""
