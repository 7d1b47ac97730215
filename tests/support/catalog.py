"""The catalog's events, as protobuf messages in their envelope."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from examples.catalog.protos.video.v1 import events_pb2 as v1
from examples.catalog.protos.video.v2 import events_pb2 as v2
from postroad.events import EventType, event, event_type_of
from postroad.message import Message

TOPIC = "catalog.video.events"


def declare() -> None:
    """Anew for each test that needs it: others of this process may read these events as classes of their own."""
    here: dict[str, Any] = {"topic": TOPIC, "aggregate": "video", "key": "video_id"}
    event("video.created", **here, envelope=v1.Event)(v1.VideoCreated)
    event("video.created", **here, envelope=v2.Event, schema_version=2)(v2.VideoCreatedV2)
    event("video.deleted", **here, envelope=v1.Event)(v1.VideoDeleted)
    event("video.updated", **here)(v1.VideoUpdated)  # without an envelope


declare()
CREATED, CREATED_V2 = event_type_of(v1.VideoCreated), event_type_of(v2.VideoCreatedV2)
UPDATED, DELETED = event_type_of(v1.VideoUpdated), event_type_of(v1.VideoDeleted)


def message(kind: EventType, payload: bytes, **changes: Any) -> Message:
    values: dict[str, Any] = {
        "id": UUID(int=7),
        "type": kind.name,
        "topic": kind.topic,
        "aggregate_type": kind.aggregate,
        "aggregate_id": "v-1",
        "version": 3,
        "occurred_at": datetime(2025, 10, 24, 10, 30, 0, 123456, tzinfo=UTC),
        "payload": payload,
        "schema_version": kind.schema_version,
        "content_type": "application/x-protobuf",
    }
    return Message(**values | changes)
