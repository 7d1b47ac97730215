"""What each setting does: the arguments that a Postroad is made with."""

import re
from difflib import get_close_matches
from typing import Any, Final
from urllib.parse import quote

from postroad.brokers.base import Flow
from postroad.errors import InvalidName, InvalidSetting
from postroad.naming import check_subscription, check_topic
from postroad.redact import one_line, remember
from postroad.relay import RelayOptions
from postroad.retry import EXPONENTIAL, Backoff
from postroad.settings.model import Publisher, PubSub, RabbitMQ, Settings, Subscription
from postroad.subscriber import SubscriberOptions
from postroad.telemetry.canary import Canary

_PROJECT: Final = re.compile(r"[a-z0-9][a-z0-9.:-]{3,62}")
_HOST: Final = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")


def arguments(settings: Settings) -> dict[str, Any]:
    """Only what is set: for the rest, Postroad's defaults hold."""
    pubsub, rabbitmq = settings.pubsub, settings.rabbitmq
    publisher = (pubsub or rabbitmq or PubSub()).publisher
    path = "pubsub.publisher" if pubsub else "rabbitmq.publisher"
    found = {
        "source": settings.source,
        "database_url": settings.database_url,
        "broker_url": _broker_url(settings),
        "outbox_retention": settings.outbox_retention,
        "inbox_retention": settings.inbox_retention,
        "canary": Canary(every=settings.canary) if settings.canary else None,
        "relay": _relay(publisher, path),
        "group_options": _groups(pubsub) if pubsub else None,
    }
    return {name: value for name, value in found.items() if value}


# -- where ----------------------------------------------------------------------------------------------------


def _broker_url(settings: Settings) -> str | None:
    if settings.broker_url:
        return settings.broker_url
    if settings.rabbitmq:
        return _rabbitmq_url(settings.rabbitmq)
    return _pubsub_url(settings.pubsub) if settings.pubsub else None


def _pubsub_url(pubsub: PubSub) -> str:
    if not pubsub.project_id:
        raise InvalidSetting("pubsub.project_id", "is missing. Give it, or set GCP_PROJECT_ID, or BROKER_URL.")
    if not _PROJECT.fullmatch(pubsub.project_id):
        raise InvalidSetting("pubsub.project_id", "is no project's id, such as smiling-landing-472320.")
    if not pubsub.emulator_host:
        return f"pubsub://{pubsub.project_id}"
    if not _HOST.fullmatch(pubsub.emulator_host):
        raise InvalidSetting("pubsub.emulator_host", 'must be host:port, such as "localhost:8085", or empty for none.')
    return f"pubsub://{pubsub.project_id}?emulator={pubsub.emulator_host}"


def _rabbitmq_url(rabbitmq: RabbitMQ) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]+|[0-9A-Fa-f:]+", rabbitmq.host):
        raise InvalidSetting("rabbitmq.host", "is no host's name or address.")
    for name in ("port", "prefetch"):
        if getattr(rabbitmq, name) > 65_535:
            raise InvalidSetting(f"rabbitmq.{name}", "is out of range. Give at most 65535.")
    host = f"[{rabbitmq.host}]" if ":" in rabbitmq.host else rabbitmq.host
    user, password, vhost = (quote(text, safe="") for text in (rabbitmq.username, rabbitmq.password, rabbitmq.vhost))
    url = f"amqp://{user}:{password}@{host}:{rabbitmq.port}/{vhost}?prefetch={rabbitmq.prefetch}"
    remember(url)
    return url


# -- the relay ------------------------------------------------------------------------------------------------


def _relay(publisher: Publisher, path: str) -> RelayOptions | None:
    given = {
        "poll": publisher.scan_interval,
        "batch": publisher.batch_size,
        "publish_timeout": publisher.publish_timeout,
        "relays": publisher.num_goroutines,
        "backoff": _backoff(publisher, path),
    }
    found: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return RelayOptions(**found) if found else None


def _backoff(publisher: Publisher, path: str) -> Backoff | None:
    attempts, base, most = publisher.max_retry_attempts, publisher.base_backoff, publisher.max_backoff
    if publisher.backoff:
        if base or most:
            raise InvalidSetting(f"{path}.backoff", "already says every wait. Remove base_backoff and max_backoff.")
        return Backoff(attempts=attempts or len(publisher.backoff) + 1, table=publisher.backoff)
    if not (attempts or base or most):
        return None
    # The convention counts from the first failure on: base × 2^1, base × 2^2 …
    first, ceiling = 2 * base if base else EXPONENTIAL.base, most or EXPONENTIAL.ceiling
    if base and base > ceiling:
        raise InvalidSetting(
            f"{path}.max_backoff", "is shorter than base_backoff. Make it longer, or the other shorter."
        )
    return Backoff(attempts=attempts or EXPONENTIAL.attempts, base=first, ceiling=ceiling)


# -- the consumers --------------------------------------------------------------------------------------------


def _groups(pubsub: PubSub) -> dict[str, SubscriberOptions]:
    """One consumer group's options each. A group may read several topics, but it works in one way."""
    for name, topic in pubsub.topics.items():
        _named(check_topic, topic, f"pubsub.topics.{name}")
    found: dict[str, SubscriberOptions] = {}
    for name, subscription in pubsub.subscriptions.items():
        path = f"pubsub.subscriptions.{name}"
        group, options = _group(subscription, pubsub, f"{path}.subscription_id"), _subscriber(subscription)
        if found.setdefault(group, options) != options:
            raise InvalidSetting(path, f"has other values than another subscription of group {group!r}. Give the same.")
    return found


def _group(subscription: Subscription, pubsub: PubSub, path: str) -> str:
    _named(check_subscription, subscription.subscription_id, path)
    topic, _, group = subscription.subscription_id.rpartition(".")
    topics = list(pubsub.topics.values())
    if topics and topic not in topics:
        near = get_close_matches(topic, topics, n=1)
        cure = f"Did you mean {near[0]!r}?" if near else "Add it there."
        raise InvalidSetting(path, f"is of topic {one_line(topic)!r}, which is not in pubsub.topics. {cure}")
    return group


def _subscriber(subscription: Subscription) -> SubscriberOptions:
    usual = Flow()
    flow = Flow(
        messages=subscription.max_outstanding_messages or usual.messages,
        bytes=subscription.max_outstanding_bytes or usual.bytes,
    )
    given = {"concurrency": subscription.num_goroutines, "ack_deadline": subscription.ack_deadline}
    found: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return SubscriberOptions(flow=flow, **found)


def _named(check: Any, name: str, path: str) -> None:
    try:
        check(name)
    except InvalidName as error:
        raise InvalidSetting(path, one_line(error.rule)) from None
