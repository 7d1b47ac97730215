"""Secrets out of texts: the one redactor for all that is printed or logged."""

import re
from typing import Any, Final
from urllib.parse import quote, unquote

HIDDEN: Final = "***"

_SECRET: Final = r"(?:password|passwd|secret|secret[_-]?key|api[_-]?key|access[_-]?key|token)"
_SECRET_NAME: Final = re.compile(rf"{_SECRET}$|(?:^|[^a-z])pwd$", re.IGNORECASE)
# Looked for in one unbroken word at a time, so that no text, however long, takes long.
_WORD: Final = re.compile(r"[^\s'\"]+")
_USER: Final = re.compile(r"://[^:/?#@]*:")
# In quotation marks, these may stand in the value behind a backslash; or the marks themselves stand behind one, where
# one text is quoted inside another. Without them, up to what ends a value in most notations.
_ASSIGNED: Final = re.compile(
    rf"(?P<before>(?<![a-z_])(?:[a-z_]*{_SECRET}|pwd)\\*['\"]?\s*[=:]\s*)(?P<quote>\\*['\"]?)"
    r"(?:(?<=\\['\"])[^'\"\\]*|(?<=')(?:[^'\\]|\\[\s\S])*|(?<=\")(?:[^\"\\]|\\[\s\S])*"
    r"|(?:[^\s'\"&;,)]|[,)](?=[^\s'\"&;,)]))+)",
    re.IGNORECASE,
)
_BEARER: Final = re.compile(r"(?P<before>\b(?:bearer|basic)\s+)[a-z0-9._~+/=-]{8,}", re.IGNORECASE)
_IN_QUERY: Final = re.compile(rf"[?&][a-z_]*{_SECRET}=(?P<value>[^&#]*)", re.IGNORECASE)
_SHORTEST_KNOWN: Final = 4
CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

_known: set[str] = set()


def remember(url: str) -> None:
    """Hide this URL's secrets from now on wherever they appear, also outside a URL."""
    found = [match["value"] for match in _IN_QUERY.finditer(url)]
    if user := _USER.search(url):
        rest = url[user.end() :]
        # To the first @, or to the last one, if somebody forgot to encode that of the password.
        found += [rest.partition("@")[0], rest.rpartition("@")[0]] if "@" in rest else []
    for text in found:
        forms = {text, unquote(text), quote(unquote(text), safe="", errors="replace")}
        _known.update(form for form in forms if len(form) >= _SHORTEST_KNOWN)


def redact(text: str) -> str:
    for secret in sorted(_known, key=len, reverse=True):
        # Not inside a word: a password like "post" must not eat half of every other word.
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
    if "://" in text:
        text = _WORD.sub(lambda match: _without_password(match[0]), text)
    text = _ASSIGNED.sub(rf"\g<before>\g<quote>{HIDDEN}", text)
    return _BEARER.sub(rf"\g<before>{HIDDEN}", text)


def one_line(text: str) -> str:
    """Redacted, and without control characters: nobody's data may forge a line or steer a terminal."""
    return CONTROL.sub(lambda match: _escaped(match[0]), redact(text))


def redact_values(value: Any) -> Any:
    """The same for data: each text within it, its structure untouched."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {name: HIDDEN if _is_secret(name, one) else redact_values(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [redact_values(one) for one in value]
    return value


def _is_secret(name: object, value: object) -> bool:
    # Whether there is one tells nothing.
    return isinstance(name, str) and not (value is None or isinstance(value, bool)) and bool(_SECRET_NAME.search(name))


def _without_password(word: str) -> str:
    """Up to the last @ before the host: a password may contain an @ that somebody forgot to encode."""
    end = word.rfind("@")
    user = _USER.search(word, 0, end) if end > 0 else None
    return f"{word[: user.end()]}{HIDDEN}{word[end:]}" if user else word


def _escaped(character: str) -> str:
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character, f"\\x{ord(character):02x}")
