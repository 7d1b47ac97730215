"""The catalog's events, as protobuf messages in their envelope."""

from datetime import UTC, datetime
from uuid import UUID

from examples.catalog.protos.video.v1 import events_pb2 as v1
from examples.catalog.protos.video.v2 import events_pb2 as v2
from postroad.events import EventType, event, event_type_of
from postroad.message import Message

TOPIC = "catalog.video.events"

created = event("video.created", topic=TOPIC, aggregate="video", key="video_id", envelope=v1.Event)
created(v1.VideoCreated)
event("video.deleted", topic=TOPIC, aggregate="video", key="video_id", envelope=v1.Event)(v1.VideoDeleted)
event("video.created", topic=TOPIC, aggregate="video", key="video_id", schema_version=2, envelope=v2.Event)(
    v2.VideoCreatedV2
)
# A file's own events, without an envelope.
event("video.updated", topic=TOPIC, aggregate="video", key="video_id")(v1.VideoUpdated)

CREATED, CREATED_V2 = event_type_of(v1.VideoCreated), event_type_of(v2.VideoCreatedV2)
UPDATED, DELETED = event_type_of(v1.VideoUpdated), event_type_of(v1.VideoDeleted)


def message(kind: EventType, payload: bytes, **changes: object) -> Message:
    values: dict[str, object] = {
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
    return Message(**values | changes)  # type: ignore[arg-type]
