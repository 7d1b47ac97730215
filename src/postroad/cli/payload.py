"""JSON on the command line: as it stands, from a file, or from standard input."""

import sys
from pathlib import Path

from postroad.errors import ConfigurationError, WriteRefused
from postroad.events import EventType
from postroad.operations.typed import typed_event


def read_event(text: str, kind: EventType) -> object:
    """`text` is JSON, or @file, or - for standard input."""
    return typed_event(read_text(text), kind)


def read_text(text: str) -> str:
    return _text(_payload(text))


def _payload(text: str) -> bytes:
    if text == "-":
        return sys.stdin.buffer.read()
    if text.startswith("@"):
        try:
            return Path(text[1:]).read_bytes()
        except OSError as error:
            raise ConfigurationError(f"{text[1:]} cannot be read: {error.strerror}.") from None
    return text.encode()


def _text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise WriteRefused(f"The JSON is no UTF-8 text from byte {error.start + 1} on. Nothing was stored.") from None
