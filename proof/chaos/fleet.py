"""The processes: relays, workers and writers. A killed one is started again, as a supervisor would."""

import asyncio
import logging
import multiprocessing
import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Final

from postroad import Postroad
from postroad.errors import PostroadError
from proof.chaos.bank import USUAL_LOAD, Load, make_road
from proof.chaos.journal import Journal, Note, Outcome
from proof.chaos.purses import move_until
from proof.chaos.writer import write_until

RELAYS: Final = ("relay-1", "relay-2", "relay-3")
WORKERS: Final = ("worker-1", "worker-2")
WRITERS: Final = ("writer-1",)
PROCESSES: Final = (*RELAYS, *WORKERS, *WRITERS)
TRANSFERS: Final = ".transfers"
COMMANDS: Final = ".commands"
"""Endings of the writers' journals."""
NOT_READY: Final = 75
"""Exit code of a process that found no database or broker when it started: the supervisor's turn."""
_PAUSE: Final = 2.0
"""Seconds between two starts in vain: else they would take the processor from the server that is to come back."""
_BEFORE_IT_BEGAN: Final = -signal.SIGTERM
"""Of one that was asked to stop when it had only just been started: later on SIGTERM is a wish, and is granted."""
_DISK: Final = re.compile(rb"disk is full|disk I/O error")
_IMPORTED_LATE: Final = [
    *("aiosqlite", "asyncmy", "psycopg", "postroad.brokers.embedded", "postroad.brokers.rabbitmq"),
    *("postroad.brokers.kafka.broker", "postroad.brokers.pubsub.broker"),
    *("sqlalchemy.dialects.sqlite.aiosqlite", "sqlalchemy.dialects.mysql.asyncmy"),
    *("sqlalchemy.dialects.postgresql.psycopg", "postroad.stores.sqlite.driver", "postroad.stores.mysql.driver"),
    *("postroad.stores.postgresql.driver", "postroad.stores.postgresql.notify"),
]
"""What the processes would import only once they know their address."""
_log = logging.getLogger("chaos.process")


def _template() -> ForkServerContext:
    """Processes are forked from one that has everything imported: a start costs milliseconds, not a second."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *_IMPORTED_LATE])
    before = os.environ.get("PYTHONPATH")
    # It would not find us otherwise: our path may come from the test runner.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    return context


class Fleet:
    """`urls(name)` are the addresses that the process of that name is to use, of database and broker."""

    def __init__(self, folder: Path, urls: Callable[[str], tuple[str, str]], load: Load = USUAL_LOAD) -> None:
        self._folder, self._urls, self._load = folder, urls, load
        self._context = _template()
        self._processes: dict[str, ForkServerProcess] = {}
        self._started: dict[str, float] = {}
        self.crashes: list[str] = []
        """Those that ended by themselves after they had begun: outages are to be waited out."""

    def start(self, *names: str) -> None:
        for name in names:
            arguments = (name, *self._urls(name), self._folder, self._load)
            self._processes[name] = self._context.Process(target=_live, args=arguments, name=name, daemon=True)
            self._processes[name].start()
            self._started[name] = time.monotonic()

    def pid(self, name: str) -> int:
        return self._processes[name].pid or 0

    def pids(self) -> list[int]:
        return [self.pid(name) for name in self._processes]

    def kill(self, name: str) -> bool:
        """Whether it was alive until then."""
        process = self._processes[name]
        process.kill()
        process.join()
        self.start(name)
        return process.exitcode == -signal.SIGKILL

    def freeze(self, name: str) -> bool:
        """Whether it was alive."""
        return self._processes[name].is_alive() and self._signal(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def revive(self) -> None:
        """Start again what has ended by itself; an end after a good beginning is noted as a crash."""
        for name, process in list(self._processes.items()):
            if process.is_alive():
                continue
            if process.exitcode != NOT_READY:
                self.crashes.append(f"{name} ended with {process.exitcode}:\n{self.log(name)}")
            elif time.monotonic() < self._started[name] + _PAUSE:
                continue
            self.start(name)

    async def stop(self, *names: str) -> None:
        leaving = [self._processes.pop(name) for name in names or list(self._processes) if name in self._processes]
        for process in leaving:
            process.terminate()
            if process.is_alive():
                os.kill(process.pid or 0, signal.SIGCONT)
        for process in leaving:
            await asyncio.to_thread(process.join, 30)
            if process.exitcode not in (0, NOT_READY, _BEFORE_IT_BEGAN):
                self.crashes.append(f"{process.name} ended with {process.exitcode}:\n{self.log(process.name)}")
                process.kill()

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")[-3000:]

    async def ask_what_they_do(self) -> None:
        """Their answers are in their logs."""
        for name in self._processes:
            self._signal(name, signal.SIGUSR1)
        await asyncio.sleep(1.0)

    def disk_complaints(self) -> int:
        return sum(len(_DISK.findall(path.read_bytes())) for path in self._folder.glob("*.log"))

    def journal(self, of: str = TRANSFERS) -> Journal:
        return Journal.read(*self._folder.glob(f"*{of}"))

    def _signal(self, name: str, number: signal.Signals) -> bool:
        try:
            os.kill(self.pid(name), number)
        except ProcessLookupError:
            return False  # it had ended by itself
        return True


# -- in the process ------------------------------------------------------------------------------------------


def _live(name: str, database_url: str, broker_url: str, folder: Path, load: Load) -> None:
    log = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(message)s", force=True)
    raise SystemExit(asyncio.run(_work(name, make_road(database_url, broker_url, load), folder, load)))


async def _work(name: str, road: Postroad, folder: Path, load: Load) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, _tell_tasks)
    if parent := multiprocessing.parent_process():
        # Nobody is to go on alone when the supervisor was killed.
        loop.add_reader(parent.sentinel, os._exit, 1)
    role, _, _ = name.partition("-")
    ready = False
    async with road:
        if role == "writer":
            await _write(stop, road, folder / name, load)
            return 0
        try:
            async with road.runner(relay=role == "relay", groups=[] if role == "relay" else None).started():
                ready = True
                await stop.wait()
        except PostroadError as error:
            if ready:
                raise
            _log.info("not ready: %s", error)
            return NOT_READY
    return 0


def _tell_tasks() -> None:
    """What this process waits for, into its log."""
    for task in asyncio.all_tasks():
        print(f"{task.get_name()}: {task.get_coro()}", file=sys.stderr)
        for frame in task.get_stack():
            print(f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}", file=sys.stderr)
    sys.stderr.flush()


async def _write(stop: asyncio.Event, road: Postroad, path: Path, load: Load) -> None:
    transfers, commands = _noting(path.with_suffix(TRANSFERS)), _noting(path.with_suffix(COMMANDS))
    tasks = 1 if road.store.dialect == "sqlite" else 3
    await asyncio.gather(
        *(write_until(stop, road, transfers, random.Random(), load) for _ in range(tasks)),
        *(move_until(stop, road, commands, random.Random()) for _ in range(tasks)),
    )


def _noting(path: Path) -> Note:
    journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(what: str, outcome: Outcome) -> None:
        try:
            os.write(journal, f"{what} {outcome.value}\n".encode())
        except OSError:
            pass  # the limit on file sizes, which plays the full disk, meets the journal too: then nobody knows

    return note
