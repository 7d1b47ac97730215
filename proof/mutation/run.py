"""A process that has everything loaded, and a child of it for each mistake."""

import json
import mmap
import multiprocessing.connection
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from proof.mutation.databases import drop_left_behind, name_databases
from proof.mutation.mutants import Mutant
from proof.mutation.plant import CannotExchange, Import, plant_in_loaded
from proof.mutation.select import OPTIONS, silence, test_files

_PATIENCE, _TIMES = 3.0, 10.0
"""How long a test may take: so many seconds more than so many times what it takes when all is well. What it spent in
waiting for a processor does not count, so that a busy machine is not taken for a mistake that was noticed."""
_BUSY: Final = 20.0
_LATE: Final = 5.0
_FOLDER: Final = f"{'/dev/shm' if os.path.isdir('/dev/shm') else tempfile.gettempdir()}/postroad-mutation-{{}}"
_RUNNING: Final = mmap.mmap(-1, 300)
"""The test that a child is at: what one cannot tell that is ended in the middle of it."""
_CHANGES_SCHEMA: Final = ("stores/migrations.py", "stores/adopt.py", "stores/tables.py")


@dataclass(frozen=True, slots=True)
class Job:
    mutant: Mutant | None
    """None to see that the tests still pass when nothing is wrong."""
    tests: Sequence[tuple[str, float]]
    """With their usual seconds."""


@dataclass(frozen=True, slots=True)
class Verdict:
    status: str
    """killed, survived, or late: the mistake has to be there from the beginning."""
    by: str = ""
    """The test that noticed; after "time: " if it did not come to its end; "import" when none could begin."""


class Warm:
    """Asked from a process that has nothing loaded, which is where late mistakes can be tried."""

    def __init__(self) -> None:
        self._ours, theirs = multiprocessing.Pipe()
        self._pid = os.fork()
        if self._pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._ours.close()
            _be_warm(theirs)
        theirs.close()
        try:
            self._ours.recv()
        except EOFError:
            raise SystemExit("The tests cannot be collected: run them with pytest to see why.") from None

    def ask(self, job: Job) -> Verdict:
        self._ours.send(job)
        verdict: Verdict = self._ours.recv()
        return verdict

    def close(self) -> None:
        with suppress(BrokenPipeError):
            self._ours.send(None)
        os.waitpid(self._pid, 0)
        self._ours.close()
        for folder in (self._pid, f"{self._pid}-kept"):
            shutil.rmtree(_FOLDER.format(folder), ignore_errors=True)


def ask_fresh(job: Job) -> Verdict:
    """In a process that loads the code with the mistake in it."""
    files = sorted({test.partition("::")[0] for test, _ in job.tests})
    folder = _folder()

    def attempt(tell: Callable[[Verdict], NoReturn]) -> None:
        silence()
        assert job.mutant is not None
        Import(job.mutant).install()
        pytest.main([*OPTIONS, *folder, *files], plugins=[_Once(job, tell)])
        tell(Verdict("killed", "import"))

    try:
        return _in_child(attempt, job, starting=60.0)
    finally:
        shutil.rmtree(_FOLDER.format(os.getpid()), ignore_errors=True)


# -- in the warm process ------------------------------------------------------------------------------------


def _be_warm(connection: "multiprocessing.connection.Connection[Any, Any]") -> NoReturn:
    silence()
    with ExitStack() as databases:
        pytest.main([*OPTIONS, *_folder(), *test_files()], plugins=[_Server(connection, databases)])
    os._exit(0)


def _folder() -> list[str]:
    return [f"--basetemp={_FOLDER.format(os.getpid())}"]


class _Server:
    """In place of running the tests that were collected: waits to be told which, and with which mistake."""

    def __init__(self, connection: "multiprocessing.connection.Connection[Any, Any]", databases: ExitStack) -> None:
        self._connection, self._databases = connection, databases
        self._urls: dict[str, str] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        name_databases()
        self._connection.send("ready")
        while (job := self._connection.recv()) is not None:
            self._lend_databases(job)
            self._connection.send(_in_child(partial(self._attempt, session, job), job))
        drop_left_behind()
        return True

    def _attempt(self, session: pytest.Session, job: Job, tell: Callable[[Verdict], NoReturn]) -> None:
        if job.mutant is not None:
            try:
                plant_in_loaded(job.mutant)
            except CannotExchange:
                tell(Verdict("late"))
            if job.mutant.file not in _CHANGES_SCHEMA:
                self._use_lent()
        else:
            self._use_lent()
        tell(_first_failure(session, job))

    def _lend_databases(self, job: Job) -> None:
        """Making one takes longer than most tests; tests empty what they are given."""
        from tests.support import components, databases

        folder = Path(_FOLDER.format(f"{os.getpid()}-kept"))
        folder.mkdir(exist_ok=True)
        self._urls["sqlite"] = f"sqlite:///{folder / 'recycled.db'}"
        makers = {"postgresql": databases.fresh_postgresql, "mariadb": databases.fresh_mariadb}
        for kind, make in makers.items():
            if kind not in self._urls and any(kind in test for test, _ in job.tests):
                self._urls[kind] = self._databases.enter_context(make(components.address(kind)))

    def _use_lent(self) -> None:
        from tests.support.outbox import Recycled

        create = Recycled._create
        Recycled._create = lambda this, kind: self._urls.get(kind) or create(this, kind)  # type: ignore[method-assign,assignment]


class _Once:
    def __init__(self, job: Job, tell: Callable[[Verdict], NoReturn]) -> None:
        self._job, self._tell = job, tell

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            self._tell(Verdict("killed", "import"))
        self._tell(_first_failure(session, self._job))


# -- in a child ---------------------------------------------------------------------------------------------


class _Listener:
    def __init__(self) -> None:
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed


def _first_failure(session: pytest.Session, job: Job) -> Verdict:
    items = {item.nodeid: item for item in session.items}
    chosen = [(items[test], seconds) for test, seconds in job.tests if test in items]
    session.config.pluginmanager.register(listener := _Listener())
    for place, (item, seconds) in enumerate(chosen):
        _RUNNING[:] = item.nodeid.encode()[: len(_RUNNING)].ljust(len(_RUNNING))
        _end_after(_PATIENCE + _TIMES * seconds)
        following = chosen[place + 1][0] if place + 1 < len(chosen) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if listener.failed:
            with suppress(Exception):
                session._setupstate.teardown_exact(None)
            return Verdict("killed", item.nodeid)
    return Verdict("survived")


def _end_after(seconds: float) -> None:
    begun, queued = time.monotonic(), _queued()

    def look(*_: object) -> None:
        left = seconds - (time.monotonic() - begun) + (_queued() - queued)
        if left < -_LATE:  # the alarm itself came late: all of this was stopped for a while
            _end_after(seconds)
        elif left > 0:
            signal.setitimer(signal.ITIMER_REAL, left + 0.1)
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _queued() -> float:
    """Seconds for which this process was ready to run, and was not let."""
    schedule = Path("/proc/self/schedstat")
    return int(schedule.read_text(encoding="ascii").split()[1]) / 1e9 if schedule.exists() else 0.0


def _in_child(work: Callable[[Callable[[Verdict], NoReturn]], None], job: Job, starting: float = 0.0) -> Verdict:
    reading, writing = os.pipe()
    _RUNNING[:] = b" " * len(_RUNNING)
    child = os.fork()
    if child == 0:
        _work_and_exit(work, writing)
    os.close(writing)
    patience = starting + _BUSY + sum(_PATIENCE + _TIMES * seconds for _, seconds in job.tests)
    watched = os.pidfd_open(child)
    select.select([watched], [], [], patience)
    os.close(watched)
    # Whatever the tests have started goes with them.
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.set_blocking(reading, False)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    if told:
        return Verdict(**json.loads(told))
    if os.WIFSIGNALED(status):
        return Verdict("killed", f"time: {_RUNNING[:].decode().strip()}")
    return Verdict("killed", "crash")


def _work_and_exit(work: Callable[[Callable[[Verdict], NoReturn]], None], writing: int) -> NoReturn:
    def tell(verdict: Verdict) -> NoReturn:
        os.write(writing, json.dumps({"status": verdict.status, "by": verdict.by}).encode())
        os._exit(0)

    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        work(tell)
    except BaseException as error:
        tell(Verdict("killed", f"{type(error).__name__}: {error}"[:200]))
    sys.exit(1)
