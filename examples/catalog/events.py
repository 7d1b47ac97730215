"""What the write side tells the world, as protobuf in its envelope."""

from datetime import datetime
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from examples.catalog.protos.video.v1.events_pb2 import Event, VideoCreated, VideoDeleted, VideoUpdated
from postroad import event

__all__ = ["READER", "TOPIC", "VideoCreated", "VideoDeleted", "VideoUpdated", "declare", "timestamp"]

TOPIC: Final = "catalog.video.events"
READER: Final = "catalog-reader"


def declare() -> None:
    here: dict[str, Any] = {"topic": TOPIC, "aggregate": "video", "key": "video_id", "envelope": Event}
    event("video.created", **here)(VideoCreated)
    event("video.updated", **here)(VideoUpdated)
    event("video.deleted", **here)(VideoDeleted)


def timestamp(moment: datetime) -> Timestamp:
    made = Timestamp()
    made.FromDatetime(moment)
    return made


declare()
