"""The line of counters: on a terminal, and nowhere else."""

import asyncio
import codecs
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from types import SimpleNamespace
from typing import Any

import pytest

from postroad.cli import banner
from postroad.cli.output import Output
from postroad.relay.carrier import RelayStatistics
from postroad.subscriber.options import Statistics


@pytest.fixture
def runner() -> Any:
    relays = [SimpleNamespace(statistics=RelayStatistics(sent=sent)) for sent in (1_200, 34)]
    return SimpleNamespace(relays=relays, subscribers=[SimpleNamespace(statistics=Statistics(handled=5))])


class Terminal:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._came, self._more = "", asyncio.Event()
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def read(self) -> None:
        self._came += self._decoder.decode(os.read(self._descriptor, 4096))
        self._more.set()

    async def until(self, part: str) -> str:
        """All that has appeared, without colours and movements of the cursor."""
        async with asyncio.timeout(10):
            while part not in (seen := re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", self._came)):
                self._more.clear()
                await self._more.wait()
        return seen


@contextmanager
def on_terminal() -> Iterator[Terminal]:
    ours, theirs = os.openpty()
    terminal, loop = Terminal(ours), asyncio.get_running_loop()
    loop.add_reader(ours, terminal.read)
    try:
        with os.fdopen(theirs, "w", encoding="utf-8") as screen, redirect_stdout(screen), redirect_stderr(screen):
            yield terminal
    finally:
        loop.remove_reader(ours)
        os.close(ours)


async def test_counters_are_shown_as_they_grow_until_the_end(monkeypatch: pytest.MonkeyPatch, runner: Any) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(banner, "_REFRESH", 0.01)
    stop = asyncio.Event()
    with on_terminal() as terminal:
        showing = asyncio.create_task(banner.show_counters(Output(), runner, stop))
        await terminal.until("sent 1,234 · handled 5")
        runner.relays[0].statistics.parked = 1
        runner.subscribers[0].statistics.failed = 3
        runner.subscribers[0].statistics.dead = 2
        await terminal.until("sent 1,234 · parked 1 · handled 5 · failed attempts 3 · dead 2")
        stop.set()
        await showing


async def test_json_is_all_that_is_told_to_who_asks_for_it(runner: Any) -> None:
    with on_terminal() as terminal:
        await until_stopped(Output(as_json=True), runner)
        print("nothing else", flush=True)
        assert (await terminal.until("nothing else")).strip() == "nothing else"


async def test_a_pipe_gets_no_counters(capsys: pytest.CaptureFixture[str], runner: Any) -> None:
    await until_stopped(Output(), runner)
    assert capsys.readouterr() == ("", "")


async def until_stopped(out: Output, runner: Any) -> None:
    stop = asyncio.Event()
    showing = asyncio.create_task(banner.show_counters(out, runner, stop))
    await asyncio.sleep(0)
    assert not showing.done()
    stop.set()
    await showing
