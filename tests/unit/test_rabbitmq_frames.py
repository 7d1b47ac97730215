"""What goes out is, byte for byte, what pika would have written."""

import pika
import pytest
from pika import frame

from postroad.brokers.rabbitmq import frames

BODY_MAX = 1_000


def by_pika(channel: int, publish: object, properties: object, body: bytes) -> bytes:
    parts = [body[start : start + BODY_MAX] for start in range(0, len(body), BODY_MAX)]
    whole = [
        frame.Method(channel, publish),
        frame.Header(channel, len(body), properties),
        *(frame.Body(channel, part) for part in parts),
    ]
    return b"".join(one.marshal() for one in whole)


@pytest.mark.parametrize("size", [0, 1, BODY_MAX, BODY_MAX + 1, 3 * BODY_MAX])
@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"headers": {"event_id": "1", "städte": "Zürich – 東京", "leer": ""}, "delivery_mode": 2},
        {"content_type": "application/json", "message_id": "m-1", "timestamp": 1_700_000_000, "delivery_mode": 2},
        {"content_type": "text/ü", "headers": {"a": "b" * 70_000}, "message_id": "x" * 255, "timestamp": 0},
    ],
    ids=["none", "headers", "plain", "all"],
)
@pytest.mark.parametrize("mandatory", [True, False])
def test_a_message_is_framed_as_pika_frames_it(size: int, properties: dict[str, object], mandatory: bool) -> None:
    publish = pika.spec.Basic.Publish(exchange="shop.events", routing_key="größe.order", mandatory=mandatory)
    given = pika.BasicProperties(**properties)  # type: ignore[arg-type]
    body = bytes(range(256)) * 12
    ours = frames.message(7, publish, given, body[:size], BODY_MAX)
    assert ours == by_pika(7, publish, given, body[:size])
