"""Both services over gRPC: the same acts as over HTTP, the same rules, a status for each refusal."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.wrappers_pb2 import Int64Value, StringValue
from pydantic import ValidationError
from sqlalchemy import RowMapping

from examples.catalog import models
from examples.catalog.events import timestamp
from examples.catalog.protos.video.v1 import service_pb2 as pb
from examples.catalog.protos.video.v1 import service_pb2_grpc as generated
from examples.catalog.reader import Reader
from examples.catalog.refusals import Refusal
from examples.catalog.writer import Writer
from postroad.errors import StoreUnavailable

_GRACE: Final = 2.0
"""Seconds that calls have to finish, as requests over HTTP have."""
Method = Callable[[Any, Any, Any], Awaitable[Any]]


@asynccontextmanager
async def serving(writer: Writer | None, reader: Reader | None, address: str) -> AsyncIterator[int]:
    """The port, which was free if 0 was asked for."""
    server = grpc.aio.server()
    if writer is not None:
        generated.add_VideosServicer_to_server(Videos(writer), server)  # type: ignore[no-untyped-call]
    if reader is not None:
        generated.add_SearchServicer_to_server(Search(reader), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port(address)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(_GRACE)


def _refusing(method: Method) -> Method:
    async def answer(self: Any, request: Any, context: Any) -> Any:
        try:
            return await method(self, request, context)
        except Refusal as refusal:
            await context.abort(grpc.StatusCode[refusal.code], str(refusal))
        except ValidationError as error:
            faults = [f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors()]
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "; ".join(faults))
        except StoreUnavailable:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "The database is away for the moment. Try again later.")

    return answer


class Videos:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    @_refusing
    async def Create(self, request: pb.CreateVideo, context: Any) -> pb.Video:  # noqa: N802
        new = models.NewVideo.model_validate(_given(request))
        return _video(await self._writer.create(new.model_dump() | {"uploader_id": str(new.uploader_id)}))

    @_refusing
    async def Update(self, request: pb.UpdateVideo, context: Any) -> pb.Video:  # noqa: N802
        given = _given(request)
        video_id = given.pop("video_id", "")
        changes = models.Changes.model_validate(given)
        changed = changes.model_dump(exclude_unset=True, exclude={"version"})
        return _video(await self._writer.update(video_id, changes.version, changed))

    @_refusing
    async def Delete(self, request: pb.DeleteVideo, context: Any) -> Empty:  # noqa: N802
        reason = request.reason.value if request.HasField("reason") else None
        await self._writer.delete(request.video_id, request.version, reason)
        return Empty()

    @_refusing
    async def Get(self, request: pb.GetVideo, context: Any) -> pb.Video:  # noqa: N802
        return _video(await self._writer.find(request.video_id))


class Search:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    @_refusing
    async def Find(self, request: pb.FindVideos, context: Any) -> pb.FoundVideos:  # noqa: N802
        found = await self._reader.search(request.words.replace("\0", " "))
        return pb.FoundVideos(videos=[_video(row) for row in found])


def _given(request: Any) -> dict[str, Any]:
    """The fields that are set, as the models take them."""
    values = {field.name: value for field, value in request.ListFields()}
    if "published_at" in values:
        values["published_at"] = values["published_at"].ToJsonString()
    return {
        name: value.value if isinstance(value, StringValue | Int64Value) else value for name, value in values.items()
    }


def _video(row: RowMapping) -> pb.Video:
    text, length, published = row["description"], row["duration_micros"], row["published_at"]
    return pb.Video(
        video_id=row["video_id"],
        uploader_id=row["uploader_id"],
        title=row["title"],
        description=None if text is None else StringValue(value=text),
        duration_micros=None if length is None else Int64Value(value=length),
        published_at=None if published is None else timestamp(published),
        status=row["status"],
        media_status=row["media_status"],
        analysis_status=row["analysis_status"],
        updated_at=timestamp(row["updated_at"]),
        version=row["version"],
    )
