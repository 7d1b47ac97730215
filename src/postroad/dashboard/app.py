"""The ASGI application: the guard before everything, the routes behind it."""

import asyncio
import functools
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from postroad.app import Postroad
from postroad.dashboard import api, pages
from postroad.dashboard.access import CSRF, SESSION, Authorize, Door, allowed_hosts, may_act, tls_hosts
from postroad.dashboard.acts import Forbidden, do
from postroad.dashboard.desk import TRACE_ID, Desk
from postroad.dashboard.mask import Mask
from postroad.dashboard.openapi import document
from postroad.dashboard.view import render
from postroad.dashboard.watch import INTERVAL, Watch
from postroad.errors import BrokerError, ConfigurationError, OperationRefused, PostroadError, StoreError
from postroad.redact import one_line
from postroad.stores import migrations

log = logging.getLogger("postroad")

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: then a form's Origin would be "null", and ours could not be told from others.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
PROBES: Final = ("/livez", "/readyz")
_PATIENCE: Final = 2.5
_LISTS: Final = ("ids",)
_MOST_FIELDS: Final = 2_000
Page = Callable[[Desk, Request], Awaitable[Response]]


def dashboard_app(
    road: Postroad,
    *,
    authorize: Authorize | None = None,
    token: str = "",
    hosts: Sequence[str] = (),
    mask: Sequence[str] = (),
    trace_url: str = "",
    interval: float = INTERVAL,
) -> Starlette:
    """The dashboard of one service, to be served or mounted.

    Without `authorize` and `token` only visitors from this machine come in. `authorize` says who makes a request and
    which role that is. `hosts` are the names under which it may be reached besides localhost; with https:// before it,
    a name is reached through a proxy that ends TLS. `mask` names fields of payloads that nobody may see. `trace_url` is
    where a trace is shown, with {trace_id} in the place of its id.
    """
    if trace_url and not (trace_url.startswith(("https://", "http://")) and TRACE_ID in trace_url):
        raise ConfigurationError(
            f"trace_url is {trace_url!r}. Write the address of a trace, as in https://jaeger.example.com/trace/{TRACE_ID}."
        )
    door = Door(allowed_hosts(hosts), token, authorize, tls_hosts(hosts))
    desk = Desk(road, door, Mask(mask), Watch(road, interval), trace_url)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await desk.jobs.aclose()
        await desk.watch.aclose()

    app = Starlette(
        routes=_routes(desk),
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=functools.partial(_guard, door))],
        exception_handlers={PostroadError: _refused, HTTPException: _refused},
        lifespan=lifespan,
    )
    app.state.desk = desk
    return app


def _routes(desk: Desk) -> list[BaseRoute]:
    def page(path: str, show: Page, methods: Sequence[str] = ("GET",)) -> Route:
        async def endpoint(request: Request) -> Response:
            return await show(desk, request)

        return Route(path, endpoint, methods=list(methods))

    def question(asked: api.Question) -> Route:
        async def answer(desk: Desk, request: Request) -> Response:
            return api.told(await asked.ask(desk, request))

        return page(asked.path, answer)

    return [
        Mount("/static", StaticFiles(packages=[("postroad.dashboard", "static")])),
        page("/livez", _livez),
        page("/readyz", _readyz),
        page("/login", _login_page),
        page("/login", _login, ["POST"]),
        page("/logout", _logout, ["POST"]),
        page("/", pages.overview),
        page("/tiles", pages.tiles),
        page("/outbox", pages.outbox),
        page("/outbox/retry", pages.retry_events),
        page("/outbox/{id}", pages.event),
        page("/outbox/{id}/edit", pages.edit),
        page("/failures", pages.failures),
        page("/dead", pages.dead),
        page("/dead/retry", pages.retry_dead),
        page("/dead/{topic}/{id}", pages.dead_letter),
        page("/groups", pages.groups),
        page("/groups/{group}", pages.group),
        page("/groups/{group}/retry", pages.retry_group),
        page("/groups/{group}/{id}", pages.record),
        page("/workers", pages.workers),
        page("/scheduled", pages.scheduled),
        page("/chain", pages.chain),
        page("/chain/{id:path}", pages.chain),
        page("/aggregates/{type}/{id:path}", pages.aggregate),
        page("/projections", pages.projections),
        page("/commands", pages.commands),
        page("/commands/retry", pages.retry_commands),
        page("/commands/{id}", pages.command),
        page("/consistency", pages.consistency),
        page("/doctor", pages.doctor),
        page("/topology", pages.topology_page),
        page("/audit", pages.audit),
        page("/jobs/{id}", pages.job),
        page("/do/{name}", _act, ["POST"]),
        page("/api/openapi.json", _document),
        *(question(asked) for asked in api.QUESTIONS),
        page("/api/acts/{name}", api.act, ["POST"]),
    ]


async def _guard(door: Door, request: Request, go_on: RequestResponseEndpoint) -> Response:
    csrf = request.cookies.get(CSRF) or secrets.token_urlsafe(24)
    request.state.csrf, request.state.user = csrf, None
    response = await _admitted(door, request, go_on)
    response.headers.update(HEADERS)
    path = request.url.path.removeprefix(_base(request))
    if path.startswith("/static/"):
        response.headers["Cache-Control"] = "max-age=3600"
    elif CSRF not in request.cookies and path not in PROBES:
        _set_cookie(door, request, response, CSRF, csrf)
    return response


async def _admitted(door: Door, request: Request, go_on: RequestResponseEndpoint) -> Response:
    path = request.url.path.removeprefix(_base(request))
    if path in PROBES:
        # Whoever probes calls us by an address and has no token; he learns no more than the answer's number.
        return await go_on(request)
    if not door.knows_host(request):
        told = "This dashboard does not answer to that name. Name the host with hosts=(…) or --allow-host."
        return PlainTextResponse(told, 421)
    if path.startswith("/static/") or (path == "/login" and door.token):
        return await go_on(request)
    request.state.user = await door.visitor(request)
    if request.state.user is not None:
        return await go_on(request)
    if path.startswith("/api/") or not door.token:
        told = "Not for you: come from this machine, log in, or send a token." if not door.token else "Send the token."
        return api.told({"error": told}, 401 if door.token else 403)
    return RedirectResponse(f"{_base(request)}/login", 303)


async def _livez(desk: Desk, request: Request) -> Response:
    """That it answers shows that its event loop is not blocked."""
    return PlainTextResponse("ok\n")


async def _readyz(desk: Desk, request: Request) -> Response:
    """The broker need not be there: what the database knows is shown all the same."""
    try:
        async with asyncio.timeout(_PATIENCE):
            await migrations.require_current(desk.road.store, desk.road.outboxes)
    except (TimeoutError, PostroadError) as error:
        log.warning("the dashboard is not ready: %s", error or f"the database did not answer within {_PATIENCE:g} s")
        return PlainTextResponse("The database cannot be used; the log says why.\n", 503)
    return PlainTextResponse("ok\n")


async def _login_page(desk: Desk, request: Request) -> Response:
    return render(request, "login.html", {"wrong": False})


async def _login(desk: Desk, request: Request) -> Response:
    form = await request.form(max_fields=10)
    name = " ".join(str(form.get("name", "")).split())[:60]
    if not may_act(request, str(form.get("csrf", ""))) or not desk.door.lets_in(request, str(form.get("token", ""))):
        return render(request, "login.html", {"wrong": True}, status=403)
    response = RedirectResponse(f"{_base(request)}/", 303)
    _set_cookie(desk.door, request, response, SESSION, desk.door.session(name or "token"))
    return response


async def _logout(desk: Desk, request: Request) -> Response:
    form = await request.form(max_fields=10)
    if not may_act(request, str(form.get("csrf", ""))):
        raise Forbidden("This form is not of this visit. Load the page again.")
    response = RedirectResponse(f"{_base(request)}/login", 303)
    response.delete_cookie(SESSION, path=_base(request) or "/")
    return response


async def _act(desk: Desk, request: Request) -> Response:
    form = await request.form(max_fields=_MOST_FIELDS, max_part_size=16 * 1024 * 1024)
    if not may_act(request, str(form.get("csrf", ""))):
        raise Forbidden("This form is not of this visit. Load the page again.")
    given: dict[str, Any] = {name: form.getlist(name) if name in _LISTS else form[name] for name in form}
    given.pop("csrf", None)
    done = await do(desk, request.state.user, request.path_params["name"], given)
    return RedirectResponse(f"{_base(request)}{done.go}?{urlencode({'done': done.message})}", 303)


async def _document(desk: Desk, request: Request) -> Response:
    return api.as_json(document(_base(request), _version()))


def _refused(request: Request, error: Exception) -> Response:
    told = one_line(error.detail if isinstance(error, HTTPException) else str(error))
    if request.url.path.removeprefix(_base(request)).startswith("/api/"):
        return api.told({"error": told}, _code(error))
    return render(request, "error.html", {"error": told, "code": _code(error)}, status=_code(error))


def _code(error: Exception) -> int:
    if isinstance(error, HTTPException):
        return error.status_code
    if isinstance(error, Forbidden):
        return 403
    if isinstance(error, StoreError | BrokerError):
        return 503
    return 409 if isinstance(error, OperationRefused) else 400


def _set_cookie(door: Door, request: Request, response: Response, name: str, value: str) -> None:
    secure = request.url.scheme == "https" or door.behind_tls(request)
    response.set_cookie(name, value, httponly=True, samesite="strict", secure=secure, path=_base(request) or "/")


def _base(request: Request) -> str:
    return str(request.scope.get("root_path", ""))


def _version() -> str:
    try:
        return version("postroad")
    except PackageNotFoundError:
        return "0"
