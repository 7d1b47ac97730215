"""Errors as problem details (RFC 9457): one form for all of them, with a stable `type` to program against."""

from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from examples.marketplace.refusals import NotAllowed, OrderNotFound, ProductNotFound, ProductSold, Refusal, WrongStatus
from postroad.errors import BrokerUnavailable, PostroadError, StoreUnavailable

MEDIA_TYPE: Final = "application/problem+json"
_PREFIX: Final = "urn:marketplace:problem:"


class Problem(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": f"{_PREFIX}product-sold",
                "title": ProductSold.title,
                "status": 409,
                "detail": "Product 7 is sold.",
                "instance": "/orders",
            }
        }
    )
    type: str
    title: str
    status: int
    detail: str
    instance: str


_EXAMPLES: Final[dict[type[Refusal], Refusal]] = {
    ProductNotFound: ProductNotFound(7),
    OrderNotFound: OrderNotFound(900_001),
    NotAllowed: NotAllowed("Order 900001 is somebody else's."),
    ProductSold: ProductSold(7),
    WrongStatus: WrongStatus(900_001, "cancelled", "pending"),
}


def may_refuse(*kinds: type[Refusal]) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route, with an example for each refusal."""
    found: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        examples = found.setdefault(kind.status, _response(kind.title))["content"][MEDIA_TYPE]["examples"]
        examples[kind.kind] = {"summary": kind.title, "value": _body(_EXAMPLES[kind], "/orders")}
    return found


def install(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    async def refused(request: Request, refusal: Refusal) -> JSONResponse:
        return _answer(_body(refusal, request.url.path))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        faults = [f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors()]
        return _answer(_plain("invalid-request", "The request is not valid", 422, "; ".join(faults), request.url.path))

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> JSONResponse:
        return _answer(_plain("http", str(error.detail), error.status_code, str(error.detail), request.url.path))

    @app.exception_handler(BrokerUnavailable)
    @app.exception_handler(StoreUnavailable)
    async def away(request: Request, error: PostroadError) -> JSONResponse:
        told = "The broker or the database is away for the moment. Try again later."
        return _answer(_plain("unavailable", "Not available at the moment", 503, told, request.url.path))

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        # What went wrong is for the log, not for strangers.
        told = "Something failed on our side. Nothing was changed unless a later look shows it."
        return _answer(_plain("internal", "Internal error", 500, told, request.url.path))


def _body(refusal: Refusal, path: str) -> dict[str, Any]:
    return _plain(refusal.kind, refusal.title, refusal.status, str(refusal), path)


def _plain(kind: str, title: str, status: int, detail: str, path: str) -> dict[str, Any]:
    return {"type": _PREFIX + kind, "title": title, "status": status, "detail": detail, "instance": path}


def _answer(body: dict[str, Any]) -> JSONResponse:
    return JSONResponse(body, body["status"], media_type=MEDIA_TYPE)


def _response(title: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"model": Problem, "description": title, "content": {MEDIA_TYPE: {"schema": schema, "examples": {}}}}
