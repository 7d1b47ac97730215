"""Errors as problem details (RFC 9457): one form for all of them, with a stable `type` to program against."""

from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from examples.catalog.refusals import Refusal, VersionConflict, VideoNotFound
from postroad.errors import StoreUnavailable

MEDIA_TYPE: Final = "application/problem+json"
_PREFIX: Final = "urn:catalog:problem:"
_EXAMPLE: Final = "a3d5e6f7-1234-4678-9abc-def012345678"
_EXAMPLES: Final[dict[type[Refusal], Refusal]] = {
    VideoNotFound: VideoNotFound(_EXAMPLE),
    VersionConflict: VersionConflict(_EXAMPLE, 2, 3),
}


class Problem(BaseModel):
    type: str
    title: str
    status: int
    detail: str
    instance: str


def may_refuse(*kinds: type[Refusal]) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route, with an example for each refusal."""
    return {
        kind.status: {
            "model": Problem,
            "description": kind.title,
            "content": {MEDIA_TYPE: {"example": _refused(_EXAMPLES[kind], f"/videos/{_EXAMPLE}")}},
        }
        for kind in kinds
    }


def install(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> JSONResponse:
        return _answer(_refused(error, request.url.path))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        faults = [f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors()]
        return _answer(_body("invalid-request", "The request is not valid", 422, "; ".join(faults), request.url.path))

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> JSONResponse:
        return _answer(_body("http", str(error.detail), error.status_code, str(error.detail), request.url.path))

    @app.exception_handler(StoreUnavailable)
    async def away(request: Request, error: StoreUnavailable) -> JSONResponse:
        told = "The database is away for the moment. Try again later."
        return _answer(_body("unavailable", "Not available at the moment", 503, told, request.url.path))

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        # What went wrong is for the log, not for strangers.
        told = "Something failed on our side. Nothing was changed unless a later look shows it."
        return _answer(_body("internal", "Internal error", 500, told, request.url.path))


def _refused(refusal: Refusal, path: str) -> dict[str, Any]:
    return _body(refusal.kind, refusal.title, refusal.status, str(refusal), path)


def _body(kind: str, title: str, status: int, detail: str, path: str) -> dict[str, Any]:
    return {"type": _PREFIX + kind, "title": title, "status": status, "detail": detail, "instance": path}


def _answer(body: dict[str, Any]) -> JSONResponse:
    return JSONResponse(body, body["status"], media_type=MEDIA_TYPE)
