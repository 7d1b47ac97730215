"""From values to pages: the templates, and how times, ages and payloads are written."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from postroad.dashboard.access import SESSION, Role
from postroad.operations import waits_in
from postroad.redact import redact

MENU: Final = (
    ("", "Overview", "o"),
    ("/outbox", "Outbox", "e"),
    ("/failures", "Failures", "f"),
    ("/dead", "Dead letters", "d"),
    ("/groups", "Groups", "g"),
    ("/workers", "Workers", "w"),
    ("/scheduled", "Scheduled", "s"),
    ("/commands", "Commands", "m"),
    ("/projections", "Projections", "p"),
    ("/chain", "Chains", "c"),
    ("/topology", "Topology", "t"),
    ("/consistency", "Consistency", "y"),
    ("/doctor", "Doctor", "h"),
    ("/audit", "Audit", "a"),
)


def render(
    request: Request, template: str, values: Mapping[str, Any] | None = None, *, status: int = 200, go: str = ""
) -> Response:
    base = request.scope.get("root_path", "")
    if go:
        return RedirectResponse(f"{base}{go}", 303)
    shared = {
        "base": base,
        "user": getattr(request.state, "user", None),
        "csrf": getattr(request.state, "csrf", ""),
        "here": request.url.path.removeprefix(base),
        "logged_in": SESSION in request.cookies,
        "menu": MENU,
        "source": request.app.state.desk.road.source,
        "told": request.query_params.get("done", "")[:200],
        "now": datetime.now(UTC),
    }
    text = _templates().get_template(template).render({**shared, **(values or {})})
    return Response(text, status, media_type="text/html")


@cache
def _templates() -> Environment:
    found = Environment(
        loader=PackageLoader("postroad.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_without_secrets,
    )
    found.filters |= {
        "ago": ago, "age": age, "moment": moment, "iso": iso, "pretty": pretty, "part": part, "safe_text": safe_text,
        "short": short, "waits_in": waits_in,
    }  # fmt: skip
    found.globals |= {"Role": Role, "query": query}
    return found


def _without_secrets(value: object) -> object:
    """Whatever a page shows comes past here: nobody has to think of it where a text is shown. Markup has already."""
    return redact(value) if type(value) is str else value


def query(**values: object) -> str:
    """`?a=b`, without what is empty."""
    given = {name: value for name, value in values.items() if value not in ("", None)}
    return f"?{urlencode(given)}" if given else ""


def part(text: object) -> str:
    """As one part of a path."""
    return quote(str(text), safe="")


def safe_text(text: object) -> str:
    """Before it is cut: half an address would not be known for one with a password in it."""
    return redact(str(text or ""))


def short(text: object) -> str:
    """An id as a person tells it from others: its end, for the beginning is the time."""
    whole = str(text)
    return f"{whole[:8]}…{whole[-6:]}" if len(whole) > 20 else whole


def iso(value: datetime | None) -> str:
    return value.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z") if value else ""


def moment(value: datetime | None) -> str:
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if value else ""


def ago(value: datetime | None, now: datetime) -> str:
    if value is None:
        return ""
    seconds = (now - value).total_seconds()
    return f"in {age(-seconds)}" if seconds < 0 else "just now" if seconds < 1 else f"{age(seconds)} ago"


def age(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 or seconds == 0 else "< 1 s"


def pretty(payload: Any) -> Markup:
    """Of a masked payload: its secrets are hidden by now, and as JSON it shall stay readable."""
    if payload is None:
        return Markup("hidden")
    if isinstance(payload, bytes):
        return escape("\n".join(_hex_line(payload, start) for start in range(0, min(len(payload), 4096), 16)))
    return escape(msgspec.json.format(msgspec.json.encode(payload), indent=2).decode())


def _hex_line(data: bytes, start: int) -> str:
    line = data[start : start + 16]
    text = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in line)
    return f"{start:06x}  {line.hex(' '):<47}  {text}"
