"""Both services over gRPC, on a real server and a real channel."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from fastapi import FastAPI
from google.protobuf.wrappers_pb2 import StringValue

from examples.catalog import rpc
from examples.catalog.__main__ import UPLOADER
from examples.catalog.protos.video.v1 import service_pb2 as pb
from examples.catalog.protos.video.v1 import service_pb2_grpc as generated
from examples.catalog.reader import Reader
from examples.catalog.writer import Writer
from tests.support.marketplace import eventually

pytestmark = pytest.mark.parametrize("store_kind", ["sqlite"])


@pytest.fixture
async def channel(app: FastAPI, writer: Writer, reader: Reader) -> AsyncIterator[Any]:
    async with (
        rpc.serving(writer, reader, "127.0.0.1:0") as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as made,
    ):
        yield made


@pytest.mark.spec("P7")
async def test_what_is_written_by_grpc_is_found_by_grpc(channel: Any) -> None:
    videos, search = generated.VideosStub(channel), generated.SearchStub(channel)
    made = await videos.Create(
        pb.CreateVideo(uploader_id=UPLOADER, title="Rain", description=StringValue(value="Roof"))
    )
    assert (made.version, made.status, made.HasField("published_at")) == (1, "draft", False)
    changed = await videos.Update(pb.UpdateVideo(video_id=made.video_id, version=1, title=StringValue(value="Louder")))
    assert (changed.version, changed.title, changed.description.value) == (2, "Louder", "Roof")
    assert await videos.Get(pb.GetVideo(video_id=made.video_id)) == changed

    async def followed() -> Any:
        return (await search.Find(pb.FindVideos(words="louder"))).videos

    assert [one.version for one in await eventually(followed)] == [2]
    await videos.Delete(pb.DeleteVideo(video_id=made.video_id, version=2))

    async def gone() -> bool:
        return not (await search.Find(pb.FindVideos())).videos

    await eventually(gone)


async def test_a_refusal_is_a_status_that_says_why(channel: Any) -> None:
    videos = generated.VideosStub(channel)
    made = await videos.Create(pb.CreateVideo(uploader_id=UPLOADER, title="Rain"))
    title = StringValue(value="x")
    for call, request, code, told in (
        (videos.Get, pb.GetVideo(video_id="nobody"), "NOT_FOUND", "There is no video nobody."),
        (
            videos.Update,
            pb.UpdateVideo(video_id=made.video_id, version=7, title=title),
            "ABORTED",
            "is at version 1, not 7",
        ),
        (
            videos.Update,
            pb.UpdateVideo(video_id=made.video_id, title=title),
            "INVALID_ARGUMENT",
            "version: Field required",
        ),
        (videos.Delete, pb.DeleteVideo(video_id=made.video_id), "ABORTED", "is at version 1, not 0"),
        (videos.Create, pb.CreateVideo(title="Rain"), "INVALID_ARGUMENT", "uploader_id: Field required"),
        (videos.Create, pb.CreateVideo(uploader_id=UPLOADER, title="a\0"), "INVALID_ARGUMENT", "title: "),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(request)
        assert refused.value.code() == grpc.StatusCode[code]
        assert told in refused.value.details()
