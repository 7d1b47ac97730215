"""What is said about failures: which event, which attempt, what next, and where in the user's code."""

import logging
import sysconfig
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from types import CodeType
from typing import Any, Final

from postroad.clock import Clock
from postroad.handlers import Handler
from postroad.logs import about
from postroad.message import Message, rfc3339
from postroad.retry import Ack, Backoff, Dead, Decision, Retry, describe
from postroad.subscriber.intake import Foreign, Item

_NOT_THE_USERS: Final = (
    str(Path(__file__).parents[1]),
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)
_MOST_SUBJECTS: Final = 1_000
_FOREIGN_PARTS: Final = frozenset({"site-packages", "dist-packages"})


class Occasionally:
    """True for a subject at most once in `interval` seconds, so that an outage does not fill the log."""

    def __init__(self, clock: Clock, interval: float = 30.0) -> None:
        self._clock, self._interval = clock, interval
        self._said: dict[str, float] = {}

    def __call__(self, subject: str) -> bool:
        now = self._clock.monotonic()
        if subject in self._said and now - self._said[subject] < self._interval:
            return False
        if len(self._said) >= _MOST_SUBJECTS:
            self._said.clear()
        self._said[subject] = now
        return True


def failure(
    message: Message,
    handler: Handler,
    error: BaseException,
    failures: int,
    backoff: Backoff,
    decision: Decision,
    now: datetime,
) -> tuple[int, str]:
    """The level and the text for one failed attempt."""
    what = f"{message.type} {message.id}"
    why = f"{describe(error)} ({place(error, handler)})"
    match decision:
        case Ack():
            return (
                logging.WARNING,
                f"{what} was refused by group {handler.group} and is kept in its inbox: {why}",
            )
        case Retry(after=after):
            due = rfc3339(now + timedelta(seconds=after))
            then = f"attempt {failures} of {backoff.attempts}, next try at {due}"
            return logging.WARNING, f"{what} failed in group {handler.group}, {then}: {why}"
        case Dead():
            then = f"attempt {failures} of {backoff.attempts}, now with the dead letters of {message.topic}"
            return logging.ERROR, f"{what} failed in group {handler.group}, {then}: {why}"


def identity(item: Item, group: str, outcome: str = "", attempt: int | None = None) -> Mapping[str, Any]:
    """The fields of a structured log record. `outcome` says in one word what the text says to people."""
    delivery = item.delivery
    return about(
        None if isinstance(item, Foreign) else item.message,
        group=group,
        consumer=group,
        subscription=delivery.subscription,
        # Some brokers have a queue behind it, and an id for each message; others know no names but ours.
        queue=getattr(delivery, "queue", delivery.subscription),
        message_id=getattr(delivery, "message_id", None),
        attempt=attempt,
        outcome=outcome or None,
    )


def place(error: BaseException, handler: Handler) -> str:
    """The innermost frame of the user's own code; without one (a failed commit), where the handler begins."""
    found, trace = "", error.__traceback__
    while trace is not None:
        if _is_the_users(trace.tb_frame.f_code.co_filename):
            found = _told(trace.tb_frame.f_code, trace.tb_lineno)
        trace = trace.tb_next
    code = getattr(handler.function, "__code__", None)
    if not found and isinstance(code, CodeType):
        return _told(code, code.co_firstlineno)
    return found or handler.name


def _is_the_users(filename: str) -> bool:
    if filename.startswith("<"):
        return False
    return not filename.startswith(_NOT_THE_USERS) and not _FOREIGN_PARTS & set(Path(filename).parts)


def _told(code: CodeType, line: int) -> str:
    return f"{code.co_filename}:{line} in {code.co_qualname}"
