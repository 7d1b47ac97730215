"""Secrets out of texts: the one redactor for all that is printed or logged."""

import re
from typing import Any, Final
from urllib.parse import unquote

HIDDEN: Final = "***"

# Up to the last @ before the host: a password may contain an @ that somebody forgot to encode.
_IN_URL: Final = re.compile(r"(?P<before>\b[a-z][a-z0-9+.-]*://[^\s:/?#@'\"]*):[^\s'\"]*(?=@)", re.IGNORECASE)
_ASSIGNED: Final = re.compile(
    r"(?P<before>(?<![a-z])(?:[a-z_]*(?:password|passwd|secret|api[_-]?key|access[_-]?key|token)|pwd)"
    r"['\"]?\s*[=:]\s*)(?P<quote>['\"]?)(?:(?<=')[^']*|(?<=\")[^\"]*|[^\s'\"&;,)]+)",
    re.IGNORECASE,
)
_BEARER: Final = re.compile(r"(?P<before>\b(?:bearer|basic)\s+)[a-z0-9._~+/=-]{8,}", re.IGNORECASE)
_PASSWORD: Final = re.compile(r"://[^:/?#@]*:(?P<password>.+)@")
_SHORTEST_KNOWN: Final = 4
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

_known: set[str] = set()


def remember(url: str) -> None:
    """Hide this URL's password from now on wherever it appears, also outside a URL."""
    if found := _PASSWORD.search(url):
        texts = (found["password"], unquote(found["password"]))
        _known.update(text for text in texts if len(text) >= _SHORTEST_KNOWN)


def redact(text: str) -> str:
    for secret in sorted(_known, key=len, reverse=True):
        # Not inside a word: a password like "post" must not eat half of every other word.
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
    text = _IN_URL.sub(rf"\g<before>:{HIDDEN}", text)
    text = _ASSIGNED.sub(rf"\g<before>\g<quote>{HIDDEN}", text)
    return _BEARER.sub(rf"\g<before>{HIDDEN}", text)


def one_line(text: str) -> str:
    """Redacted, and without control characters: nobody's data may forge a line or steer a terminal."""
    return _CONTROL.sub(lambda match: _escaped(match[0]), redact(text))


def redact_values(value: Any) -> Any:
    """The same for data: each text within it, its structure untouched."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {name: redact_values(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [redact_values(one) for one in value]
    return value


def _escaped(character: str) -> str:
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character, f"\\x{ord(character):02x}")
