"""Log records for people on a terminal, for machines elsewhere: one line each, without secrets."""

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from postroad.context import current_message
from postroad.message import Message
from postroad.redact import CONTROL, one_line, redact, remember
from postroad.telemetry.names import LOG_FIELDS
from postroad.telemetry.tracing import ids_of

FIELDS: Final = tuple(LOG_FIELDS)

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


def about(message: Message | None, **more: object) -> dict[str, Any]:
    """The fields of a record about an event, for `extra`; with what else is known of the occasion."""
    known = {name: value for name, value in more.items() if value is not None}
    if message is None:
        return known
    trace_id, span_id = ids_of(message.headers)
    return {
        "event_id": str(message.id),
        "event_type": message.type,
        "aggregate_id": message.aggregate_id,
        "aggregate_type": message.aggregate_type,
        "version": message.version,
        "message_id": str(message.id),
        "trace_id": message.trace_id or trace_id,
        "span_id": message.span_id or span_id,
        "correlation_id": message.correlation_id,
        "ordering_key": message.ordering_key,
        "topic": message.topic or None,  # a command has none
        "tenant_id": message.tenant or None,
        **known,
    }


class JsonFormatter(logging.Formatter):
    """One JSON object per line; a line break in the data stays within its string."""

    def __init__(self) -> None:
        super().__init__()
        project = os.environ.get("GOOGLE_CLOUD_PROJECT", "")
        self._trace_prefix = f"projects/{project}/traces/" if project else ""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": _moment(record).isoformat().replace("+00:00", "Z"),
            "level": record.levelname,
            "severity": record.levelname,  # Cloud Logging knows the level by this name
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        given = vars(record)
        if "event_id" not in given and (handled := current_message.get()) is not None:
            given = {**about(handled), **given}  # what a handler says is about its event
        for name in FIELDS:
            if (value := given.get(name)) is not None:
                entry[name] = value if isinstance(value, int | float) else redact(str(value))
        if "trace_id" in entry:
            entry["logging.googleapis.com/trace"] = f"{self._trace_prefix}{entry['trace_id']}"
        if "span_id" in entry:
            entry["logging.googleapis.com/spanId"] = entry["span_id"]
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
