"""Several questions at once."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def together(questions: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All answers, in order; or the first error, once the other questions are called off: none goes on unseen."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(question) for question in questions]
    except ExceptionGroup as failed:
        first = failed.exceptions[0]
        raise first from first.__cause__  # as if it had been asked alone
    return [task.result() for task in tasks]
