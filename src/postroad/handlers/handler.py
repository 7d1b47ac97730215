"""A handler: the user's function, what it asks for, and how it is called."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from postroad.context import current_message, handling_batch
from postroad.errors import ConfigurationError, TransientError
from postroad.events import EventType
from postroad.message import Message
from postroad.telemetry import tracing

_OFFERED: Final = ("session", "message", "road")
_OFFERED_TO_BATCHES: Final = ("session", "messages", "road")
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    group: str
    event_type: EventType
    function: Callable[..., Any]
    wants: frozenset[str]
    """Which of session, message (or messages) and road it asks for, by the names of its parameters."""
    is_async: bool
    batch: int | None = None
    """The most events it takes as one list; None: one event at a time."""
    commit_every: int = 1
    """How many events may share a commit."""
    shares: object = None
    """Handlers with the same one may share a batch, though they are of different types. They go by what it says of
    itself as text: a read model says its name."""

    @property
    def name(self) -> str:
        return name_of(self.function) if self.shares is None else str(self.shares)

    async def __call__(
        self, events: Sequence[object], messages: Sequence[Message], session: AsyncSession, road: object
    ) -> None:
        """In turn, or as one list; in the session's transaction, which is not ended here."""
        if self.batch is not None:
            offered = {"messages": list(messages), "road": road}
            with handling_batch(messages), tracing.handling(self.group, messages):
                await self.call(list(events), offered, session)
            return
        for event, message in zip(events, messages, strict=True):
            token = current_message.set(message)
            try:
                with tracing.handling(self.group, (message,)):
                    await self.call(event, {"message": message, "road": road}, session)
            finally:
                current_message.reset(token)

    async def call(self, first: object, offered: dict[str, object], session: AsyncSession) -> Any:
        """With what it wants of the offered; what it returns."""
        try:
            return await self._run(first, offered, session)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody stops us: the handler awaited something that was cancelled. Taken for a stop, the event
            # would come again at once, for ever.
            raise TransientError(f"{self.name} awaited something that was cancelled.") from error

    async def _run(self, first: object, offered: dict[str, object], session: AsyncSession) -> Any:
        given = {name: value for name, value in offered.items() if name in self.wants}
        if self.is_async:
            result = self.function(first, **given, **({"session": session} if "session" in self.wants else {}))
        elif "session" in self.wants:
            result = await session.run_sync(self._call_with, first, given)
        else:
            result = await asyncio.to_thread(self.function, first, **given)
        # Awaitable is also what a plain function returns that only calls an async one.
        return await result if inspect.isawaitable(result) else result

    def _call_with(self, session: Session, first: object, given: dict[str, object]) -> Any:
        return self.function(first, session=session, **given)


def make_handler(
    group: str,
    event_type: EventType,
    function: Callable[..., Any],
    batch: int | None = None,
    commit_every: int = 1,
    shares: object = None,
    *,
    offered: Sequence[str] = _OFFERED,
    first: str = "event",
) -> Handler:
    """Raises ConfigurationError for a function that cannot be called as a handler."""
    _check_sizes(function, batch, commit_every)
    kind = _code_of(function)
    if inspect.isgeneratorfunction(kind) or inspect.isasyncgenfunction(kind):
        raise ConfigurationError(f"{name_of(function)} yields, so calling it runs nothing. Use return.")
    wants = _wants(function, offered if batch is None else _OFFERED_TO_BATCHES, first)
    return Handler(group, event_type, function, wants, inspect.iscoroutinefunction(kind), batch, commit_every, shares)


def name_of(function: Callable[..., Any]) -> str:
    """As its author would call it: where it was made, in another function perhaps, says nothing to others."""
    name = getattr(function, "__qualname__", "")
    return str(name).rpartition("<locals>.")[2] if name else repr(function)


def _check_sizes(function: Callable[..., Any], batch: int | None, commit_every: int) -> None:
    if not callable(function):
        raise ConfigurationError(f"{function!r} cannot be a handler: it is not a function.")
    for name, size in (("batch", batch), ("commit_every", commit_every)):
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise ConfigurationError(f"{name_of(function)}: {name} is {size!r}. Give a count of at least 1.")
    if batch is not None and commit_every != 1:
        raise ConfigurationError(
            f"{name_of(function)} has both batch and commit_every. A batch is one commit already: drop commit_every."
        )


def _code_of(function: Callable[..., Any]) -> Any:
    """The function itself, or what an object does when it is called."""
    plain = inspect.isroutine(function) or hasattr(function, "func")  # func: a functools.partial
    return function if plain else type(function).__call__


def _wants(function: Callable[..., Any], offered: Sequence[str], first: str) -> frozenset[str]:
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (*_POSITIONAL, inspect.Parameter.VAR_POSITIONAL):
        raise ConfigurationError(f"{name_of(function)} takes no {first}. Make the {first} its first parameter.")
    wants = set()
    for parameter in parameters[1:]:
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        if parameter.name in offered and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
            wants.add(parameter.name)
        elif parameter.default is inspect.Parameter.empty:
            raise ConfigurationError(_unknown(function, parameter.name, offered, first))
    return frozenset(wants)


def _unknown(function: Callable[..., Any], parameter: str, offered: Sequence[str], first: str) -> str:
    near = get_close_matches(parameter, offered, n=1)
    cure = f"Did you mean {near[0]!r}?" if near else "Remove it or give it a default."
    if parameter == first:
        cure = f"Put the {first} first."
    return (
        f"{name_of(function)} asks for {parameter!r}, which no handler is given. {cure} "
        f"After the {first} it may ask for: {', '.join(offered)}."
    )
