"""How much waits in the cloud, by what Cloud Monitoring answers; a server of ours answers in its words."""

import json
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from postroad.brokers import connect_broker
from postroad.brokers.base import Depth, depth_as_told
from postroad.brokers.pubsub.broker import PubSubBroker
from postroad.brokers.pubsub.monitoring import Monitoring
from postroad.clock import SystemClock

NOW = datetime(2026, 11, 18, 3, tzinfo=UTC)
SUBSCRIPTION = "shop.order.events.receipts"


class Cloud:
    def __init__(self) -> None:
        self.values: dict[str, list[int]] = {}
        """By metric, the newest first."""
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.status = 200
        cloud = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = parse_qs(parts.query)
                cloud.asked.append((parts.path, query))
                points = [v for metric, v in cloud.values.items() if f"/{metric}" in query["filter"][0]]
                series = [
                    {
                        "resource": {"labels": {"project_id": "my-project", "subscription_id": SUBSCRIPTION}},
                        "points": [{"value": {"int64Value": str(v)}} for v in one],
                    }
                    for one in points
                ]
                body = json.dumps({"timeSeries": series} if series else {}).encode()
                self.send_response(cloud.status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    cloud = Cloud()
    thread = threading.Thread(target=cloud.server.serve_forever)
    thread.start()
    yield cloud
    cloud.server.shutdown()
    thread.join()
    cloud.server.server_close()


@pytest.fixture
def monitoring(cloud: Cloud) -> Iterator[Monitoring]:
    with requests.Session() as session:
        yield Monitoring("my-project", session=session, server=cloud.url)


def test_the_newest_sample_counts(cloud: Cloud, monitoring: Monitoring) -> None:
    cloud.values = {"num_undelivered_messages": [1200, 7], "oldest_unacked_message_age": [90, 30]}
    assert monitoring.depth(SUBSCRIPTION, NOW) == Depth(1200, 0, NOW - timedelta(seconds=90))
    for path, query in cloud.asked:
        assert path == "/v3/projects/my-project/timeSeries"
        assert query["interval.endTime"] == ["2026-11-18T03:00:00Z"]
        assert query["interval.startTime"] == ["2026-11-18T02:50:00Z"]


def test_what_has_just_come_has_an_age_of_nothing_and_what_is_empty_has_none(
    cloud: Cloud, monitoring: Monitoring
) -> None:
    cloud.values = {"num_undelivered_messages": [3], "oldest_unacked_message_age": [0]}
    assert monitoring.depth(SUBSCRIPTION, NOW) == Depth(3, 0, NOW)
    cloud.values = {"num_undelivered_messages": [0], "oldest_unacked_message_age": [0]}
    assert monitoring.depth(SUBSCRIPTION, NOW + timedelta(hours=1)) == Depth(0, 0, None)


def test_it_is_not_asked_at_every_scrape_nor_for_each_subscription(cloud: Cloud, monitoring: Monitoring) -> None:
    cloud.values = {"num_undelivered_messages": [3]}
    for seconds in (0, 5, 29):
        assert monitoring.depth(SUBSCRIPTION, NOW + timedelta(seconds=seconds)) == Depth(3, 0, None)
        assert monitoring.depth("another", NOW + timedelta(seconds=seconds)) is None
    assert len(cloud.asked) == 2
    monitoring.depth(SUBSCRIPTION, NOW + timedelta(seconds=30))
    assert len(cloud.asked) == 4


def test_who_knows_nothing_or_does_not_answer_tells_no_number(
    cloud: Cloud, monitoring: Monitoring, caplog: pytest.LogCaptureFixture
) -> None:
    assert monitoring.depth(SUBSCRIPTION, NOW) is None
    assert caplog.records == []
    cloud.status = 403
    with caplog.at_level(logging.WARNING, "postroad"):
        assert monitoring.depth(SUBSCRIPTION, NOW + timedelta(minutes=1)) is None
    assert "Cloud Monitoring does not tell how much waits: 403" in caplog.text


async def test_only_who_is_told_to_asks_it(cloud: Cloud, monitoring: Monitoring) -> None:
    cloud.values = {"num_undelivered_messages": [3]}
    for option, expected in (("?monitoring=yes", Depth(3, 0, None)), ("?monitoring=no", None), ("", None)):
        broker = connect_broker(f"pubsub://my-project{option}", clock=SystemClock())
        assert isinstance(broker, PubSubBroker)
        broker._monitoring = monitoring
        assert await depth_as_told(broker, SUBSCRIPTION) == expected
        await broker.aclose()
    assert len(cloud.asked) == 2
