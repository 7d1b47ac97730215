import datetime

from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf import wrappers_pb2 as _wrappers_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Video(_message.Message):
    __slots__ = ("video_id", "uploader_id", "title", "description", "duration_micros", "published_at", "status", "media_status", "analysis_status", "updated_at", "version")
    VIDEO_ID_FIELD_NUMBER: _ClassVar[int]
    UPLOADER_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DURATION_MICROS_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MEDIA_STATUS_FIELD_NUMBER: _ClassVar[int]
    ANALYSIS_STATUS_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    video_id: str
    uploader_id: str
    title: str
    description: _wrappers_pb2.StringValue
    duration_micros: _wrappers_pb2.Int64Value
    published_at: _timestamp_pb2.Timestamp
    status: str
    media_status: str
    analysis_status: str
    updated_at: _timestamp_pb2.Timestamp
    version: int
    def __init__(self, video_id: _Optional[str] = ..., uploader_id: _Optional[str] = ..., title: _Optional[str] = ..., description: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ..., duration_micros: _Optional[_Union[_wrappers_pb2.Int64Value, _Mapping]] = ..., published_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., status: _Optional[str] = ..., media_status: _Optional[str] = ..., analysis_status: _Optional[str] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...

class CreateVideo(_message.Message):
    __slots__ = ("uploader_id", "title", "description", "duration_micros", "published_at", "status", "media_status", "analysis_status")
    UPLOADER_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DURATION_MICROS_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MEDIA_STATUS_FIELD_NUMBER: _ClassVar[int]
    ANALYSIS_STATUS_FIELD_NUMBER: _ClassVar[int]
    uploader_id: str
    title: str
    description: _wrappers_pb2.StringValue
    duration_micros: _wrappers_pb2.Int64Value
    published_at: _timestamp_pb2.Timestamp
    status: _wrappers_pb2.StringValue
    media_status: _wrappers_pb2.StringValue
    analysis_status: _wrappers_pb2.StringValue
    def __init__(self, uploader_id: _Optional[str] = ..., title: _Optional[str] = ..., description: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ..., duration_micros: _Optional[_Union[_wrappers_pb2.Int64Value, _Mapping]] = ..., published_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., status: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ..., media_status: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ..., analysis_status: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ...) -> None: ...

class UpdateVideo(_message.Message):
    __slots__ = ("video_id", "version", "title", "description", "duration_micros", "status", "media_status", "analysis_status")
    VIDEO_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DURATION_MICROS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MEDIA_STATUS_FIELD_NUMBER: _ClassVar[int]
    ANALYSIS_STATUS_FIELD_NUMBER: _ClassVar[int]
    video_id: str
    version: int
    title: _wrappers_pb2.StringValue
    description: _wrappers_pb2.StringValue
    duration_micros: _wrappers_pb2.Int64Value
    status: _wrappers_pb2.StringValue
    media_status: _wrappers_pb2.StringValue
    analysis_status: _wrappers_pb2.StringValue
    def __init__(self, video_id: _Optional[str] = ..., version: _Optional[int] = ..., title: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ..., description: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ..., duration_micros: _Optional[_Union[_wrappers_pb2.Int64Value, _Mapping]] = ..., status: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ..., media_status: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ..., analysis_status: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ...) -> None: ...

class DeleteVideo(_message.Message):
    __slots__ = ("video_id", "version", "reason")
    VIDEO_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    video_id: str
    version: int
    reason: _wrappers_pb2.StringValue
    def __init__(self, video_id: _Optional[str] = ..., version: _Optional[int] = ..., reason: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ...) -> None: ...

class GetVideo(_message.Message):
    __slots__ = ("video_id",)
    VIDEO_ID_FIELD_NUMBER: _ClassVar[int]
    video_id: str
    def __init__(self, video_id: _Optional[str] = ...) -> None: ...

class FindVideos(_message.Message):
    __slots__ = ("words",)
    WORDS_FIELD_NUMBER: _ClassVar[int]
    words: str
    def __init__(self, words: _Optional[str] = ...) -> None: ...

class FoundVideos(_message.Message):
    __slots__ = ("videos",)
    VIDEOS_FIELD_NUMBER: _ClassVar[int]
    videos: _containers.RepeatedCompositeFieldContainer[Video]
    def __init__(self, videos: _Optional[_Iterable[_Union[Video, _Mapping]]] = ...) -> None: ...
