"""What can be set. A key stands here with its type; what it does stands in options.py."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NewType

from postroad.errors import InvalidSetting

Duration = NewType("Duration", float)
"""Seconds, written as in "1h30m"."""
Secret = NewType("Secret", str)
"""Text that is never shown."""


def unknown(path: str, name: object, known: Iterable[str]) -> InvalidSetting:
    near = get_close_matches(str(name), list(known), n=1)
    cure = f"Did you mean {near[0]!r}?" if near else f"Known here: {', '.join(known) or 'none'}."
    return InvalidSetting(path, f"is unknown. {cure}")


def only(value: Any, why: str) -> Any:
    """A key for which Postroad has just one value; others are refused, with the reason."""
    return field(default=value, metadata={"only": value, "why": why})


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    scan_interval: Duration | None = None
    batch_size: int | None = None
    max_retry_attempts: int | None = None
    base_backoff: Duration | None = None
    max_backoff: Duration | None = None
    backoff: tuple[Duration, ...] | None = None
    num_goroutines: int | None = None
    publish_timeout: Duration | None = None
    enable_ordering: bool = only(True, "the events of an aggregate are always kept in order")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    subscription_id: str
    max_outstanding_messages: int | None = None
    max_outstanding_bytes: int | None = None
    num_goroutines: int | None = None
    ack_deadline: Duration | None = None
    enable_exactly_once: bool = only(True, "subscriptions are always created with exactly-once delivery")
    sync_mode: bool = only(False, "messages are always streamed, never pulled one by one")


@dataclass(frozen=True, slots=True, kw_only=True)
class PubSub:
    project_id: str | None = None
    emulator_host: str = ""
    topics: dict[str, str] = field(default_factory=dict)
    publisher: Publisher = field(default_factory=Publisher)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitMQ:
    host: str = "localhost"
    port: int = 5672
    vhost: str = "/"
    username: str = "guest"
    password: Secret = field(default=Secret("guest"), repr=False)
    prefetch: int = 20
    publisher_confirm_type: str = only("correlated", "an event is sent when the broker has confirmed it, not before")
    publisher_returns: bool = only(True, "an event that no queue takes is a failure, and must be told")
    acknowledge_mode: str = only("manual", "a message is acknowledged after its effect is committed, not before")
    default_requeue_rejected: bool = only(False, "what failed comes again after a pause, not at once and for ever")
    publisher: Publisher = field(default_factory=Publisher)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    source: str | None = None
    database_url: Secret | None = field(default=None, repr=False)
    broker_url: Secret | None = field(default=None, repr=False)
    outbox_retention: Duration | None = None
    inbox_retention: Duration | None = None
    canary: Duration | None = None
    pubsub: PubSub | None = None
    rabbitmq: RabbitMQ | None = None

    def topic(self, name: str) -> str:
        """What `pubsub.topics` calls by this name, for `@event(…, topic=settings.topic("video_events"))`."""
        topics = self.pubsub.topics if self.pubsub else {}
        if name not in topics:
            raise unknown(f"pubsub.topics.{name}", name, topics)
        return topics[name]
