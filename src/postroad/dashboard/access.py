"""Who may come in, and what each may do. Closed unless something opens it."""

import base64
import hashlib
import hmac
import ipaddress
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from inspect import isawaitable
from typing import Final

from starlette.requests import HTTPConnection, Request

from postroad.operations import this_user

log = logging.getLogger("postroad")

SESSION: Final = "postroad_session"
CSRF: Final = "postroad_csrf"
LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
_HTTPS: Final = "https://"
_DAY: Final = 86_400
# A proxy on this machine would make everybody a local visitor; those that say so are believed.
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


class Role(IntEnum):
    VIEWER = 1
    """Looks."""
    OPERATOR = 2
    """Also lets things be tried again."""
    ADMIN = 3
    """Also gives things up for good, and changes what an event says."""


@dataclass(frozen=True, slots=True)
class User:
    name: str
    """As the audit table keeps it."""
    role: Role

    def may(self, role: Role) -> bool:
        return self.role >= role


Authorize = Callable[[Request], User | Awaitable[User | None] | None]
"""Given by the application that mounts the dashboard: who makes this request. None: nobody who may come in."""


@dataclass(frozen=True)
class Door:
    """Decides about each request before anything is read from the database."""

    hosts: tuple[str, ...]
    token: str = ""
    authorize: Authorize | None = None
    tls: tuple[str, ...] = ()
    """The hosts that are reached by https, though a proxy asks us by http."""

    def knows_host(self, connection: HTTPConnection) -> bool:
        """Else a page elsewhere could point its own name at this address and read what it answers."""
        return _bare(connection.headers.get("host", "")) in self.hosts

    def behind_tls(self, connection: HTTPConnection) -> bool:
        return _bare(connection.headers.get("host", "")) in self.tls

    async def visitor(self, request: Request) -> User | None:
        if self.authorize is not None:
            found = self.authorize(request)
            return await found if isawaitable(found) else found
        if self.token:
            return self._by_token(request)
        return User(this_user(), Role.ADMIN) if _is_local(request) else None

    def _by_token(self, request: Request) -> User | None:
        if bearer(request):
            return User("token", Role.ADMIN) if self.lets_in(request, bearer(request)) else None
        name = self._session_name(request.cookies.get(SESSION, ""))
        return User(name, Role.ADMIN) if name else None

    def lets_in(self, request: Request, token: str) -> bool:
        """Whoever tries tokens is seen in the log. What was tried is not: it may be nearly right."""
        if self.opens(token):
            return True
        log.warning("a wrong token was given to the dashboard, from %s", request.client.host if request.client else "?")
        return False

    def opens(self, token: str) -> bool:
        return bool(self.token) and secrets.compare_digest(token.encode(), self.token.encode())

    def session(self, name: str) -> str:
        """A cookie that says who logged in and until when, signed; the token itself is not in it."""
        until = int(time.time()) + _DAY
        told = base64.urlsafe_b64encode(f"{until}:{name}".encode()).decode()
        return f"{told}.{self._sign(told)}"

    def _session_name(self, cookie: str) -> str:
        told, _, signature = cookie.partition(".")
        if not secrets.compare_digest(signature.encode(), self._sign(told).encode()):
            return ""
        until, _, name = base64.urlsafe_b64decode(told).decode().partition(":")
        return name if int(until) > time.time() else ""

    def _sign(self, told: str) -> str:
        return hmac.new(f"postroad dashboard session {self.token}".encode(), told.encode(), hashlib.sha256).hexdigest()


def bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def may_act(request: Request, given: str) -> bool:
    """Whether the request was meant: it came from our own page, or from a program that named its token.

    A browser sends cookies along with what other sites make it send, but never a header that they chose.
    """
    if bearer(request):
        return True
    if not same_origin(request):
        return False
    expected = request.cookies.get(CSRF, "")
    return bool(expected) and secrets.compare_digest(given.encode(), expected.encode())


def same_origin(request: Request) -> bool:
    """As far as the browser tells; a program tells nothing."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2] == request.headers["host"]


def is_loopback(host: str) -> bool:
    if _bare(host) == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def allowed_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    return (*LOOPBACK, *(_bare(host.removeprefix(_HTTPS)) for host in hosts))


def tls_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    return tuple(_bare(host.removeprefix(_HTTPS)) for host in hosts if host.startswith(_HTTPS))


def _is_local(request: Request) -> bool:
    if any(name in request.headers for name in _FORWARDED):
        return False
    return request.client is not None and is_loopback(request.client.host)


def _bare(host: str) -> str:
    """Without the port."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()
