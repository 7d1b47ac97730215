"""Several processes on one file, one of them killed."""

import asyncio
import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from postroad.brokers.embedded import connect
from postroad.clock import SystemClock
from tests.support.embedded_process import KEYS, SUBSCRIPTION

PUBLISHERS, EACH = 2, 600
PATIENCE = 120
"""Seconds; starting an interpreter can take many on a busy machine."""


@asynccontextmanager
async def processes() -> AsyncIterator[Callable[..., asyncio.Future[asyncio.subprocess.Process]]]:
    """Starts processes, and kills those that still run at the end."""
    started: list[asyncio.subprocess.Process] = []
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    async def start(*arguments: object) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "tests.support.embedded_process", *map(str, arguments)]
        process = await asyncio.create_subprocess_exec(*command, env=environment)
        started.append(process)
        return process

    try:
        yield lambda *arguments: asyncio.ensure_future(start(*arguments))
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
            await process.wait()


def deliveries(log: Path) -> list[tuple[int, str, int, int]]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [(int(at), key, int(number), int(attempt)) for at, key, number, attempt in map(str.split, lines)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 (another process cannot set our events)
            await asyncio.sleep(0.02)


async def until_settled(path: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        while await depth(path):  # noqa: ASYNC110 (another process cannot set our events)
            await asyncio.sleep(0.02)


async def depth(path: Path) -> int:
    broker = connect(f"embedded:{path}", clock=SystemClock())
    depth = await broker.depth(SUBSCRIPTION.name)
    await broker.aclose()
    return depth.messages


async def test_everything_arrives_in_order_although_a_consumer_is_killed(tmp_path: Path) -> None:
    path, logs = tmp_path / "broker.db", [tmp_path / f"consumer-{n}.log" for n in range(3)]
    async with processes() as start:
        publishers = [await start("publish", path, f"p{n}", EACH) for n in range(PUBLISHERS)]
        victim = await start("hold", path, logs[0])
        await until(lambda: len(deliveries(logs[0])) > 0)
        for log in logs[1:]:
            await start("consume", path, log)
        # Not until they have got something: the victim may hold every key, and then they rightly get nothing.
        await until(lambda: all(log.exists() for log in logs))
        victim.kill()
        assert [await publisher.wait() for publisher in publishers] == [0] * PUBLISHERS
        expected = {(f"p{p}-{n % KEYS}", n) for p in range(PUBLISHERS) for n in range(EACH)}
        await until(lambda: {d[1:3] for log in logs[1:] for d in deliveries(log)} >= expected)
        await until_settled(path)
    lost = {d[1:3] for d in deliveries(logs[0])}
    again = {d[1:3]: d[3] for log in logs[1:] for d in deliveries(log)}
    assert all(again[message] >= 2 for message in lost)
    assert_first_deliveries_are_in_order([d for log in logs for d in deliveries(log)])


def assert_first_deliveries_are_in_order(all_deliveries: list[tuple[int, str, int, int]]) -> None:
    first: dict[str, list[int]] = defaultdict(list)
    for _, key, number, _ in sorted(all_deliveries):
        if number not in first[key]:
            first[key].append(number)
    assert len(first) == PUBLISHERS * KEYS
    assert all(numbers == sorted(numbers) for numbers in first.values())


async def test_many_processes_may_find_a_new_file_at_once(tmp_path: Path) -> None:
    async with processes() as start:
        publishers = [await start("publish", tmp_path / "broker.db", f"p{n}", 20) for n in range(4)]
        assert [await publisher.wait() for publisher in publishers] == [0] * 4
    assert await depth(tmp_path / "broker.db") == 80
