import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf import wrappers_pb2 as _wrappers_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EventType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVENT_TYPE_UNSPECIFIED: _ClassVar[EventType]
    EVENT_TYPE_VIDEO_CREATED: _ClassVar[EventType]
    EVENT_TYPE_VIDEO_UPDATED: _ClassVar[EventType]
    EVENT_TYPE_VIDEO_DELETED: _ClassVar[EventType]
EVENT_TYPE_UNSPECIFIED: EventType
EVENT_TYPE_VIDEO_CREATED: EventType
EVENT_TYPE_VIDEO_UPDATED: EventType
EVENT_TYPE_VIDEO_DELETED: EventType

class Event(_message.Message):
    __slots__ = ("event_id", "event_type", "aggregate_id", "aggregate_type", "version", "occurred_at", "created", "updated", "deleted")
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    AGGREGATE_ID_FIELD_NUMBER: _ClassVar[int]
    AGGREGATE_TYPE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OCCURRED_AT_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    event_id: str
    event_type: EventType
    aggregate_id: str
    aggregate_type: str
    version: int
    occurred_at: _timestamp_pb2.Timestamp
    created: VideoCreated
    updated: VideoUpdated
    deleted: VideoDeleted
    def __init__(self, event_id: _Optional[str] = ..., event_type: _Optional[_Union[EventType, str]] = ..., aggregate_id: _Optional[str] = ..., aggregate_type: _Optional[str] = ..., version: _Optional[int] = ..., occurred_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., created: _Optional[_Union[VideoCreated, _Mapping]] = ..., updated: _Optional[_Union[VideoUpdated, _Mapping]] = ..., deleted: _Optional[_Union[VideoDeleted, _Mapping]] = ...) -> None: ...

class VideoCreated(_message.Message):
    __slots__ = ("video_id", "uploader_id", "title", "description", "duration_micros", "published_at", "version", "occurred_at", "status", "media_status", "analysis_status")
    VIDEO_ID_FIELD_NUMBER: _ClassVar[int]
    UPLOADER_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DURATION_MICROS_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OCCURRED_AT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MEDIA_STATUS_FIELD_NUMBER: _ClassVar[int]
    ANALYSIS_STATUS_FIELD_NUMBER: _ClassVar[int]
    video_id: str
    uploader_id: str
    title: str
    description: _wrappers_pb2.StringValue
    duration_micros: _wrappers_pb2.Int64Value
    published_at: _timestamp_pb2.Timestamp
    version: int
    occurred_at: _timestamp_pb2.Timestamp
    status: str
    media_status: str
    analysis_status: str
    def __init__(self, video_id: _Optional[str] = ..., uploader_id: _Optional[str] = ..., title: _Optional[str] = ..., description: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ..., duration_micros: _Optional[_Union[_wrappers_pb2.Int64Value, _Mapping]] = ..., published_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., version: _Optional[int] = ..., occurred_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., status: _Optional[str] = ..., media_status: _Optional[str] = ..., analysis_status: _Optional[str] = ...) -> None: ...

class VideoUpdated(_message.Message):
    __slots__ = ("video_id", "title", "description", "duration_micros", "status", "media_status", "analysis_status")
    VIDEO_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DURATION_MICROS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MEDIA_STATUS_FIELD_NUMBER: _ClassVar[int]
    ANALYSIS_STATUS_FIELD_NUMBER: _ClassVar[int]
    video_id: str
    title: _wrappers_pb2.StringValue
    description: _wrappers_pb2.StringValue
    duration_micros: _wrappers_pb2.Int64Value
    status: _wrappers_pb2.StringValue
    media_status: _wrappers_pb2.StringValue
    analysis_status: _wrappers_pb2.StringValue
    def __init__(self, video_id: _Optional[str] = ..., title: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ..., description: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ..., duration_micros: _Optional[_Union[_wrappers_pb2.Int64Value, _Mapping]] = ..., status: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ..., media_status: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ..., analysis_status: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ...) -> None: ...

class VideoDeleted(_message.Message):
    __slots__ = ("video_id", "reason")
    VIDEO_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    video_id: str
    reason: _wrappers_pb2.StringValue
    def __init__(self, video_id: _Optional[str] = ..., reason: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ...) -> None: ...
