"""The post office that tells about itself, on any broker."""

from collections.abc import Iterator

import pytest

from tests.support.kafka import remove_topics
from tests.support.telemetry import LABELS, TOPIC


@pytest.fixture
def observed_broker_url(broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With the topics of the post office and no others."""
    monkeypatch.setattr("postroad.app.known_topics", lambda: {TOPIC, LABELS})
    yield broker_url
    if broker_url.startswith("kafka"):
        # There all tests share the topics, and a new group begins with all that earlier ones left in them.
        remove_topics(broker_url, *(f"{topic}{dead}" for topic in (TOPIC, LABELS) for dead in ("", ".dlq")))
