"""The studio over HTTP. Each POST is one command; asked again with the same Idempotency-Key, it is done once.

There is no login: this is an example.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, Literal
from uuid import UUID

import msgspec
from fastapi import FastAPI, Header
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import BaseModel, Field

from examples.genesis import picture, problems, shelf
from examples.genesis.refusals import DraftReplaced, OutOfOrder, SessionFinished, SessionNotFound
from examples.genesis.session import Session
from examples.genesis.story import CONFIRM, LONGEST, REJECT, Stage
from examples.genesis.studio import STUDIO, Studio
from postroad.errors import CommandConflict, CommandStillProcessing, ValidationFailed

_PAGE: Final = Path(__file__).with_name("page.html")

StageName = Literal["theme", "world", "character", "plot"]
Key = Annotated[
    UUID | None, Header(alias="Idempotency-Key", description="The command's id: the same id, the same answer.")
]


class NewSession(BaseModel):
    title: Annotated[str, Field(min_length=1, max_length=LONGEST, examples=["Dawn"])]
    idea: Annotated[str, Field(max_length=LONGEST, examples=["a lighthouse that answers"])] = ""


class Confirmation(BaseModel):
    round: Annotated[int, Field(ge=1, description="Which draft it is about.", examples=[1])]


class Rejection(Confirmation):
    wish: Annotated[str, Field(max_length=LONGEST, examples=["more sea"])] = ""


class DraftView(BaseModel):
    title: Annotated[str, Field(examples=["The price of remembering"])]
    text: str


class SessionView(BaseModel):
    id: str
    title: str
    idea: str
    step: Annotated[str, Field(examples=["proposed"])]
    stage: Annotated[str | None, Field(examples=["Theme"])]
    round: int
    draft: DraftView | None
    chosen: dict[str, DraftView]

    @classmethod
    def of(cls, id: str, session: Session) -> "SessionView":
        return cls.model_validate({"id": id, **msgspec.to_builtins(session)})


class Shelved(BaseModel):
    session_id: str
    title: str
    stage: str
    step: str


class StepView(BaseModel):
    id: str
    kind: str
    type: Annotated[str, Field(examples=["Genesis.Session.Theme.Proposed"])]
    state: str
    at: datetime
    causation_id: str | None


class TraceView(BaseModel):
    correlation_id: str
    steps: list[StepView]
    broken: list[str]


def create_app(studio: Studio, *, run: bool = True) -> FastAPI:
    """`run`: relay, guide and shelf in this process too. The capabilities have their own."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            await studio.prepare()
            async with studio.road.running(relay=run, groups=STUDIO if run else []):
                yield
        finally:
            await studio.aclose()

    app = FastAPI(
        title="Genesis",
        version="1.0",
        summary="Stories, written together: capabilities propose, an author chooses.",
        lifespan=lifespan,
    )
    problems.install(app)
    _sessions(app, studio)
    _answers(app, studio)
    _watching(app, studio)
    return app


def _sessions(app: FastAPI, studio: Studio) -> None:
    may_refuse = problems.may_refuse

    @app.post(
        "/sessions",
        status_code=201,
        responses=may_refuse(CommandConflict, CommandStillProcessing, ValidationFailed),
        tags=["sessions"],
    )
    async def start(new: NewSession, key: Key = None) -> SessionView:
        """Start a story. It is called by the id of its command."""
        id = await studio.start(new.title, new.idea, key)
        return SessionView.of(id, await studio.session(id))

    @app.get("/sessions", tags=["sessions"])
    async def sessions() -> list[Shelved]:
        """The latest thirty, from the read model: it may be a moment behind."""
        return [Shelved.model_validate(dict(row)) for row in await shelf.latest(studio.road)]

    @app.get("/sessions/{session_id}", responses=may_refuse(SessionNotFound), tags=["sessions"])
    async def session(session_id: str) -> SessionView:
        return SessionView.of(session_id, await studio.session(session_id))

    @app.get("/sessions/{session_id}/trace", responses=may_refuse(SessionNotFound), tags=["sessions"])
    async def trace(session_id: str) -> TraceView:
        """What came of what, from the first command on."""
        found = await studio.trace(session_id)
        steps = [StepView.model_validate(step, from_attributes=True) for step in found]
        return TraceView(correlation_id=found.correlation_id, steps=steps, broken=[one.reason for one in found.broken])


def _answers(app: FastAPI, studio: Studio) -> None:
    refusals = problems.may_refuse(
        SessionNotFound, OutOfOrder, DraftReplaced, SessionFinished, CommandConflict, CommandStillProcessing
    )

    @app.post("/sessions/{session_id}/{stage}/confirm", responses=refusals, tags=["answers"])
    async def confirm(session_id: str, stage: StageName, answer: Confirmation, key: Key = None) -> SessionView:
        """Take the draft; the next stage follows by itself, and after the last one the end."""
        await studio.answer(CONFIRM[Stage(stage.title())](session_id, answer.round), key)
        return SessionView.of(session_id, await studio.session(session_id))

    @app.post("/sessions/{session_id}/{stage}/reject", responses=refusals, tags=["answers"])
    async def reject(session_id: str, stage: StageName, answer: Rejection, key: Key = None) -> SessionView:
        """Ask for another draft, perhaps with a wish."""
        await studio.answer(REJECT[Stage(stage.title())](session_id, answer.round, answer.wish), key)
        return SessionView.of(session_id, await studio.session(session_id))


def _watching(app: FastAPI, studio: Studio) -> None:
    @app.get("/live", tags=["page"], response_class=StreamingResponse)
    async def live(session: str | None = None) -> StreamingResponse:
        """Server-sent events: the sessions, and one of them with its tree, whenever something has changed."""
        return StreamingResponse(picture.changes(studio, session), media_type="text/event-stream")

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(_PAGE)
