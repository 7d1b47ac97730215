"""Acts on many subjects, done by the server piece by piece, so that nobody's browser has to wait."""

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from postroad.errors import OperationRefused, PostroadError
from postroad.redact import one_line
from postroad.retry import describe

log = logging.getLogger("postroad")
_PIECE: Final = 100
_KEPT: Final = 50


@dataclass(slots=True)
class Job:
    id: str
    title: str
    actor: str
    total: int | None = None
    """None until they are found."""
    done: int = 0
    passed_over: int = 0
    """Had moved by itself meanwhile: sent, or retried by somebody else."""
    trouble: str = ""
    state: str = "running"
    """running, finished, stopped or failed"""
    shows: str = ""
    """The page on which its result is found."""


Find = Callable[[], Awaitable[Sequence[Any]]]
Do = Callable[[Sequence[Any]], Awaitable[object]]


class Jobs:
    """Of this process, and lost when it ends: what was done is done and audited, the rest can be asked for again."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, id: str) -> Job:
        if id not in self._jobs:
            raise OperationRefused(
                f"There is no job {id} in this dashboard's process. The audit log tells what was done, also by others."
            )
        return self._jobs[id]

    def start(self, title: str, actor: str, find: Find, act: Do, shows: str = "") -> Job:
        """Finding them is part of the job: there may be very many."""
        job = Job(secrets.token_hex(8), title, actor, shows=shows)
        self._jobs[job.id] = job
        while len(self._jobs) > _KEPT:
            self._jobs.popitem(last=False)
        task = asyncio.create_task(_run(job, find, act))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _run(job: Job, find: Find, act: Do) -> None:
    try:
        subjects = await find()
        job.total = len(subjects)
        for start in range(0, len(subjects), _PIECE):
            await _piece(job, subjects[start : start + _PIECE], act)
        job.state = "finished"
    except PostroadError as error:
        job.state, job.trouble = "stopped", str(error)
    except asyncio.CancelledError:
        job.state, job.trouble = "stopped", "The dashboard was stopped."
        raise
    except Exception as error:
        # Nobody awaits the task: the page is all that its user sees, and would show it running for ever.
        job.state, job.trouble = "failed", one_line(describe(error))
        log.exception("%s, begun by %s, failed after %d", job.title, job.actor, job.done)


async def _piece(job: Job, piece: Sequence[Any], act: Do) -> None:
    """All at once, or one by one if one of them cannot be done any more."""
    try:
        await act(piece)
        job.done += len(piece)
    except OperationRefused:
        for one in piece:
            try:
                await act([one])
                job.done += 1
            except OperationRefused:
                job.passed_over += 1
