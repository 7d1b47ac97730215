"""Errors as problem details (RFC 9457): one form for all of them, with a stable `type` to program against."""

from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from examples.genesis.refusals import AlreadyStarted, DraftReplaced, OutOfOrder, SessionFinished, SessionNotFound
from postroad.errors import CommandConflict, CommandStillProcessing, StoreError, ValidationFailed

MEDIA_TYPE: Final = "application/problem+json"
_PREFIX: Final = "urn:genesis:problem:"
KINDS: Final[dict[type[Exception], tuple[int, str, str]]] = {
    SessionNotFound: (404, "session-not-found", "There is no such session"),
    AlreadyStarted: (409, "already-started", "The session is there already"),
    OutOfOrder: (409, "out-of-order", "Not now"),
    DraftReplaced: (409, "draft-replaced", "There is a newer draft"),
    SessionFinished: (409, "session-finished", "The story is finished"),
    CommandConflict: (409, "key-used", "This idempotency key belongs to another request"),
    CommandStillProcessing: (409, "still-processing", "The same request is being carried out right now"),
    ValidationFailed: (422, "invalid-request", "The request is not valid"),
}


class Problem(BaseModel):
    type: str
    title: str
    status: int
    detail: str
    instance: str


def may_refuse(*kinds: type[Exception]) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route, with an example for each refusal."""
    found: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        status, name, title = KINDS[kind]
        example = {
            "summary": title,
            "value": _problem(status, name, title, "One sentence of cause, one of cure.", "/…"),
        }
        found.setdefault(status, _response(title))["content"][MEDIA_TYPE]["examples"][name] = example
    return found


def install(app: FastAPI) -> None:
    for kind, (status, name, title) in KINDS.items():
        app.add_exception_handler(kind, _told(status, name, title))
    app.add_exception_handler(
        StoreError, _silent(503, "unavailable", "Not available at the moment", "The database is away. Try again later.")
    )
    # What went wrong is for the log, not for strangers.
    told = "Something failed on our side. Nothing was changed unless a later look shows it."
    app.add_exception_handler(Exception, _silent(500, "internal", "Internal error", told))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        faults = [f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors()]
        return _answer(422, "invalid-request", "The request is not valid", "; ".join(faults), request)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> JSONResponse:
        return _answer(error.status_code, "http", str(error.detail), str(error.detail), request)


def _told(status: int, name: str, title: str) -> Any:
    async def tell(request: Request, error: Exception) -> JSONResponse:
        return _answer(status, name, title, str(error), request)

    return tell


def _silent(status: int, name: str, title: str, detail: str) -> Any:
    async def tell(request: Request, error: Exception) -> JSONResponse:
        return _answer(status, name, title, detail, request)

    return tell


def _answer(status: int, name: str, title: str, detail: str, request: Request) -> JSONResponse:
    return JSONResponse(_problem(status, name, title, detail, request.url.path), status, media_type=MEDIA_TYPE)


def _problem(status: int, name: str, title: str, detail: str, path: str) -> dict[str, Any]:
    return {"type": _PREFIX + name, "title": title, "status": status, "detail": detail, "instance": path}


def _response(title: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"model": Problem, "description": title, "content": {MEDIA_TYPE: {"schema": schema, "examples": {}}}}
