"""What `consume` is given to run: an async function, or a plain one, which then gets a plain session."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from postroad.errors import ConfigurationError
from postroad.message import Message

Work = Callable[[AsyncSession], Awaitable[object]]
MessageHandler = Callable[[Message, AsyncSession], Awaitable[object]] | Callable[[Message, Session], object]


def work_of(handler: MessageHandler, message: Message) -> Work:
    """The handler with its message, to be awaited in the session's transaction."""
    if not callable(handler):
        raise ConfigurationError(f"{handler!r} cannot handle a message: it is not a function.")
    if _is_async(handler):
        return lambda session: handler(message, session)  # type: ignore[return-value, arg-type]
    return lambda session: session.run_sync(_plainly, handler, message)  # type: ignore[arg-type]


def _plainly(session: Session, handler: Callable[[Message, Session], object], message: Message) -> None:
    result = handler(message, session)
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()  # not begun, and never will be
        # It has been given a session that cannot be awaited; nobody could have known before the call.
        raise ConfigurationError(
            f"{getattr(handler, '__qualname__', handler)!s} is a plain function that returns something to be awaited. "
            "Make it `async def`, and await it there."
        )


def _is_async(handler: Any) -> bool:
    """Also an object whose call is async, and a partial of an async function."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)
