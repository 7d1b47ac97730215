"""The command `postroad` in a process of its own, in a folder with a small shop."""

import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from tests.support.components import ROOT

SHOP = """
import asyncio
from pathlib import Path

import msgspec

from postroad import Backoff, BusinessError, PoisonError, Postroad, RelayOptions, event

road = Postroad(source="shop", relay=RelayOptions(backoff=Backoff(attempts=1), poll=0.1))


@event("order.placed", topic="shop.order.events", aggregate="order", key="order_id")
class OrderPlaced(msgspec.Struct, frozen=True):
    order_id: str
    cents: int


@road.on(OrderPlaced, group="receipts")
async def write_receipt(order: OrderPlaced) -> None:
    if order.cents == 13 and not Path("mended").exists():
        raise PoisonError("unlucky")
    if order.cents == 14:
        raise BusinessError("not for sale")
    if order.cents == 99:
        print("handling", flush=True)
        await asyncio.sleep(3600)
    with open("receipts", "a") as receipts:
        receipts.write(f"{order.order_id}\\n")
    print(f"receipt {order.order_id}", flush=True)
"""


def leaves(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """The commands that do something, each with the words that lead to it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, *path, name)
        else:
            yield (*path, name), command


class Shell:
    """Runs commands in `folder`, where shop.py is; `output` collects all they ever printed."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder, self.output = folder, ""
        (folder / "shop.py").write_text(SHOP, encoding="utf-8")
        ours = {"DATABASE_URL", "BROKER_URL", "POSTROAD_APP"}
        inherited = {name: value for name, value in os.environ.items() if name not in ours}
        self.environment = {
            **inherited,
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONWARNINGS": "error",
            "PYTHONUNBUFFERED": "1",
            **environment,
        }

    def __call__(self, command: str, *more: str, expect: int = 0) -> str:
        """What `postroad <command> <more…>` printed, both streams together; it must end with `expect`."""
        done = subprocess.run(
            self._words(command, more),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        self.output += done.stdout
        assert done.returncode == expect, done.stdout
        return done.stdout

    @contextmanager
    def running(self, command: str, *more: str) -> Iterator["Running"]:
        process = subprocess.Popen(
            self._words(command, more),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        running = Running(process)
        try:
            yield running
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            running.close()
            self.output += running.text

    def _words(self, command: str, more: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "postroad", *shlex.split(command), *more]


class Running:
    """A command that goes on; its lines can be waited for."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.text = process, ""
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def until(self, part: str, timeout: float = 30.0) -> str:
        """The next line that contains `part`."""
        while True:
            try:
                line = self._lines.get(timeout=timeout)
            except queue.Empty:
                raise AssertionError(f"{part!r} did not come; there was:\n{self.text}") from None
            assert line, f"the process ended before {part!r}; there was:\n{self.text}"
            if part in line:
                return line

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self, timeout: float = 30.0) -> int:
        return self.process.wait(timeout)

    def close(self) -> None:
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.text += line
            self._lines.put(line)
        self._lines.put("")
