"""What Cloud Monitoring counts of a subscription, since Pub/Sub itself counts nothing: minutes late."""

import logging
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import google.auth
import msgspec
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import AuthorizedSession
from requests import RequestException

from postroad.brokers.base import Depth
from postroad.message import rfc3339
from postroad.redact import one_line

log = logging.getLogger("postroad.brokers.pubsub")

SERVER: Final = "https://monitoring.googleapis.com"
_SCOPE: Final = "https://www.googleapis.com/auth/monitoring.read"
_PATIENCE: Final = 1.5
"""Seconds for each of two questions: who asks, for a page or a scrape, waits for the broker no longer than five."""
_FRESH: Final = timedelta(seconds=30)
"""It takes a sample every minute, and every question is counted."""
_WINDOW: Final = timedelta(minutes=10)
"""A sample is seen a few minutes after it was taken."""


class _Point(msgspec.Struct):
    value: Mapping[str, Any]


class _Resource(msgspec.Struct):
    labels: Mapping[str, str] = {}


class _Series(msgspec.Struct):
    resource: _Resource
    points: list[_Point] = []


class _Answer(msgspec.Struct):
    series: list[_Series] = msgspec.field(default_factory=list, name="timeSeries")


class Monitoring:
    """Asked for all subscriptions of the project at once: one by one, many of them would take too long."""

    def __init__(self, project: str, *, session: Any = None, server: str = SERVER) -> None:
        self._url, self._session = f"{server}/v3/projects/{project}/timeSeries", session
        self._asking = threading.Lock()
        self._asked_at: datetime | None = None
        self._known: Mapping[str, Depth] = {}

    def depth(self, subscription: str, now: datetime) -> Depth | None:
        """None if it knows nothing, or cannot be asked: that is no outage of Pub/Sub."""
        with self._asking:
            if self._asked_at is None or now - self._asked_at >= _FRESH:
                self._asked_at, self._known = now, self._ask(now)
        return self._known.get(subscription)

    def _ask(self, now: datetime) -> Mapping[str, Depth]:
        try:
            messages = self._newest("num_undelivered_messages", now)
            ages = self._newest("oldest_unacked_message_age", now)
        except (RequestException, GoogleAuthError, msgspec.MsgspecError, ValueError) as error:
            log.warning("Cloud Monitoring does not tell how much waits: %s", one_line(str(error))[:300])
            return {}
        return {
            name: Depth(count, 0, now - timedelta(seconds=ages[name]) if count and name in ages else None)
            for name, count in messages.items()
        }

    def _newest(self, metric: str, now: datetime) -> Mapping[str, int]:
        """By subscription."""
        wanted = {
            "filter": f'metric.type = "pubsub.googleapis.com/subscription/{metric}"',
            "interval.startTime": rfc3339(now - _WINDOW),
            "interval.endTime": rfc3339(now),
        }
        answer = self._connected().get(self._url, params=wanted, timeout=_PATIENCE)
        answer.raise_for_status()
        # Of each series, the newest comes first.
        return {
            one.resource.labels.get("subscription_id", ""): int(one.points[0].value["int64Value"])
            for one in msgspec.json.decode(answer.content, type=_Answer).series
            if one.points and "int64Value" in one.points[0].value
        }

    def _connected(self) -> Any:
        if self._session is None:
            credentials, _ = google.auth.default(scopes=[_SCOPE])
            self._session = AuthorizedSession(credentials)  # type: ignore[no-untyped-call]
        return self._session
