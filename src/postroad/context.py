"""What is being handled right now, so that what is written meanwhile knows where it comes from."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from postroad.message import Message

current_message: ContextVar[Message | None] = ContextVar("postroad_current_message", default=None)


@dataclass(frozen=True, slots=True)
class Common:
    """What all events of a batch agree on. None of them is the cause of what is written."""

    tenant: str
    correlation_id: str | None
    user_id: str | None


_current_batch: ContextVar[Common | None] = ContextVar("postroad_current_batch", default=None)


def origin() -> Message | Common | None:
    """What hands its tenant, flow and user on to whatever is written now."""
    return current_message.get() or _current_batch.get()


@contextmanager
def handling_batch(messages: Sequence[Message]) -> Iterator[None]:
    """Nothing is taken over that is not true of all: the data of one tenant must not get into another's event."""
    if len(messages) == 1:
        token = current_message.set(messages[0])
        try:
            yield
        finally:
            current_message.reset(token)
        return
    agreed = _current_batch.set(
        Common(
            tenant=_agreed({message.tenant for message in messages}) or "",
            correlation_id=_agreed({message.correlation_id for message in messages}),
            user_id=_agreed({message.user_id for message in messages}),
        )
    )
    try:
        yield
    finally:
        _current_batch.reset(agreed)


def _agreed(values: set[str] | set[str | None]) -> str | None:
    return values.pop() if len(values) == 1 else None
