"""Log records for people on a terminal, for machines elsewhere: one line each, without secrets."""

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

from postroad.redact import CONTROL, one_line, redact, remember

FIELDS: Final = (
    "event_id",
    "event_type",
    "aggregate_id",
    "aggregate_type",
    "version",
    "message_id",
    "trace_id",
    "span_id",
    "correlation_id",
    "ordering_key",
    "topic",
    "group",
    "subscription",
    "queue",
    "consumer",
    "attempt",
    "outcome",
    "tenant_id",
)
"""What a record may carry through `extra`; nothing else of it is written."""

FORMATS: Final = ("auto", "human", "json")
_COLOURS: Final = {"WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[1;31m", "DEBUG": "\x1b[2m"}
_PLAIN: Final = "\x1b[0m"


def configure(level: str = "INFO", form: str = "auto", stream: TextIO | None = None) -> logging.Handler:
    """Sends Postroad's log, and the application's, to standard error in the form that fits it."""
    target = stream or sys.stderr
    human = form == "human" or (form == "auto" and target.isatty())
    handler = _CurrentStderr() if stream is None else logging.StreamHandler(stream)
    handler.setFormatter(HumanFormatter(colour=_wants_colour(target)) if human else JsonFormatter())
    for name in ("DATABASE_URL", "BROKER_URL"):
        remember(os.environ.get(name, ""))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    if root.level < logging.INFO:
        # SQLite's driver tells two lines for every statement, and the relay asks many times a second.
        logging.getLogger("aiosqlite").setLevel(logging.INFO)
    return handler


class JsonFormatter(logging.Formatter):
    """One JSON object per line; a line break in the data stays within its string."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": _moment(record).isoformat().replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        for name in FIELDS:
            if (value := getattr(record, name, None)) is not None:
                entry[name] = value if isinstance(value, int | float) else redact(str(value))
        if record.exc_info:
            entry["exception"] = redact(self.formatException(record.exc_info))
        # JSON itself lets some characters pass that steer a terminal or end a line there.
        return CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(entry, ensure_ascii=False))


class HumanFormatter(logging.Formatter):
    def __init__(self, *, colour: bool = False) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_moment(record).astimezone():%H:%M:%S} {record.levelname:<7} {one_line(record.getMessage())}"
        if self._colour and record.levelname in _COLOURS:
            line = f"{_COLOURS[record.levelname]}{line}{_PLAIN}"
        if record.exc_info:
            # Set off by a bar, so that no line of a traceback can pass for a record.
            trace = self.formatException(record.exc_info).splitlines()
            line = "\n".join([line, *(f"  | {one_line(part)}" for part in trace)])
        return line


class _CurrentStderr(logging.StreamHandler[TextIO]):
    """Writes to whatever standard error is at the moment: a live display takes it over while it shows."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def _moment(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _wants_colour(target: TextIO) -> bool:
    return target.isatty() and "NO_COLOR" not in os.environ
