"""Both services over HTTP, together or apart. The page is the read side's, and wants the other at the same address."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Final

from fastapi import FastAPI, Query, Response
from fastapi.responses import FileResponse

from examples.catalog import models, problems, rpc
from examples.catalog.events import KINDS
from examples.catalog.models import Video
from examples.catalog.reader import Reader
from examples.catalog.refusals import VersionConflict, VideoNotFound
from examples.catalog.writer import Writer
from postroad.operations import outbox_page
from postroad.telemetry.telemetry import Telemetry

_PAGE: Final = Path(__file__).with_name("page.html")
_LISTED: Final = 20
_MISSING: Final = problems.may_refuse(VideoNotFound)
_CHANGING: Final = problems.may_refuse(VideoNotFound, VersionConflict)


def create_app(
    writer: Writer | None = None, reader: Reader | None = None, *, run: bool = True, grpc_address: str | None = None
) -> FastAPI:
    """`run`: relay and consumer in this process too. `grpc_address`: host and port for gRPC, if it is wanted."""
    # The reader first: a topic without a subscription keeps nothing for it.
    services = [service for service in (reader, writer) if service is not None]

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as open:
            for service in services:
                open.push_async_callback(service.road.aclose)
                await service.prepare()
                if run:
                    await open.enter_async_context(service.road.running())
            if grpc_address is not None:
                await open.enter_async_context(rpc.serving(writer, reader, grpc_address))
            yield

    app = FastAPI(
        title="Catalog", version="1.0", summary="Videos: those who own them, those who look.", lifespan=lifespan
    )
    problems.install(app)
    if writer is not None:
        _write(app, writer)
    if reader is not None:
        _read(app, reader)
    _health(app, [Telemetry(service.road) for service in services], run)
    return app


def _write(app: FastAPI, writer: Writer) -> None:
    @app.post("/videos", status_code=201, tags=["write side"])
    async def create(video: models.NewVideo) -> Video:
        facts = video.model_dump() | {"uploader_id": str(video.uploader_id)}
        return Video.model_validate(dict(await writer.create(facts)))

    @app.get("/videos", tags=["write side"])
    async def latest() -> list[Video]:
        """The fifty that were changed last."""
        return [Video.model_validate(dict(row)) for row in await writer.latest()]

    @app.get("/videos/{video_id}", responses=_MISSING, tags=["write side"])
    async def video(video_id: str) -> Video:
        return Video.model_validate(dict(await writer.find(video_id)))

    @app.patch("/videos/{video_id}", responses=_CHANGING, tags=["write side"])
    async def update(video_id: str, changes: models.Changes) -> Video:
        """Of two who saw the same version, one changes it, and the other is told."""
        given = changes.model_dump(exclude_unset=True, exclude={"version"})
        return Video.model_validate(dict(await writer.update(video_id, changes.version, given)))

    @app.delete("/videos/{video_id}", status_code=204, responses=_CHANGING, tags=["write side"])
    async def delete(
        video_id: str,
        version: Annotated[models.Version, Query()],
        reason: Annotated[models.Description | None, Query(examples=["withdrawn by its uploader"])] = None,
    ) -> Response:
        await writer.delete(video_id, version, reason)
        return Response(status_code=204)

    @app.get("/events", tags=["write side"])
    async def events() -> list[models.Sent]:
        """The outbox; what moved last comes first."""
        # Kind by kind, because canaries are not for people.
        store, outboxes = writer.road.store, writer.road.outboxes
        found = [one for kind in KINDS for one in await outbox_page(store, outboxes, type=kind, limit=_LISTED)]
        found.sort(key=lambda one: one.published_at or one.occurred_at, reverse=True)
        return [
            models.Sent(
                event_id=str(one.id),
                type=one.type,
                video_id=one.key.partition("/")[2],
                version=one.version or 0,
                state=one.state,
                occurred_at=one.occurred_at,
            )
            for one in found[:_LISTED]
        ]


def _read(app: FastAPI, reader: Reader) -> None:
    @app.get("/search", tags=["read side"])
    async def search(
        q: Annotated[str, Query(max_length=200, description="Words of the title or the description.")] = "",
    ) -> list[Video]:
        return [Video.model_validate(dict(row)) for row in await reader.search(q.replace("\0", " "))]

    @app.get("/search/{video_id}", responses=_MISSING, tags=["read side"])
    async def found(video_id: str) -> Video:
        return Video.model_validate(dict(await reader.find(video_id)))

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(_PAGE)


def _health(app: FastAPI, services: list[Telemetry], run: bool) -> None:
    def answer(troubles: list[str]) -> Response:
        return Response("\n".join(troubles or ["ok"]) + "\n", 503 if troubles else 200, media_type="text/plain")

    @app.get("/livez", tags=["health"])
    async def livez() -> Response:
        """503: start this process anew."""
        return answer([fault for one in services for fault in one.faults()])

    @app.get("/readyz", tags=["health"])
    async def readyz() -> Response:
        """503: give this process no work at the moment."""
        found = [obstacle for one in services for obstacle in await one.obstacles()]
        # Without a relay or consumer of its own, nothing ever starts here, and nothing is missing.
        return answer([one for one in found if run or one != "starting"])
