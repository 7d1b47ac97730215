"""What the write side tells the world, as protobuf in its envelope."""

from datetime import datetime
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from examples.catalog.protos.video.v1.events_pb2 import Event, VideoCreated, VideoDeleted, VideoUpdated
from postroad import Canary, event

__all__ = ["CANARY", "KINDS", "READER", "TOPIC", "VideoCreated", "VideoDeleted", "VideoUpdated", "declare", "timestamp"]

TOPIC: Final = "catalog.video.events"
READER: Final = "catalog-reader"
KINDS: Final = {"video.created": VideoCreated, "video.updated": VideoUpdated, "video.deleted": VideoDeleted}
CANARY: Final = Canary((TOPIC,))
"""Of a write side that runs by itself: the reader, elsewhere, tells whether it still comes. The topic is named, because
in the cloud this service may not look who subscribes."""


def declare() -> None:
    here: dict[str, Any] = {"topic": TOPIC, "aggregate": "video", "key": "video_id", "envelope": Event}
    for name, kind in KINDS.items():
        event(name, **here)(kind)


def timestamp(moment: datetime) -> Timestamp:
    made = Timestamp()
    made.FromDatetime(moment)
    return made


declare()
