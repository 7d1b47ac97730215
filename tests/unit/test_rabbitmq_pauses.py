"""A server that was away for long is not missed for long after its return."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from postroad.brokers.rabbitmq.address import Address
from postroad.brokers.rabbitmq.consumer import Consumer
from postroad.brokers.rabbitmq.line import Line
from postroad.errors import BrokerUnavailable

OF_A_LINE, OF_A_CONSUMER = 0.25, 0.5
MINUTE = 60.0


async def test_a_line_tries_again_soon_however_long_the_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    line, tries, now = Line(Address(), "publish"), [0.0], 0.0

    async def refused() -> None:
        tries.append(now)
        raise BrokerUnavailable("away")

    monkeypatch.setattr(line, "_connect", refused)
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    while now < MINUTE:
        with pytest.raises(BrokerUnavailable, match="away"):
            await line.channel()
        now += 0.125
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert max(pauses) == OF_A_LINE
    assert len(tries) < 5 * MINUTE


async def test_a_consumer_tries_again_soon_however_long_the_server_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    enough = asyncio.Event()
    turn = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        if sum(pauses) > MINUTE:
            enough.set()
        await turn(0)

    class Away:
        async def channel(self) -> Any:
            raise BrokerUnavailable("away")

    consumer = Consumer(Away(), "orders", 1, lambda event: None)  # type: ignore[arg-type]
    lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    lost.set_result(BrokerUnavailable("lost"))
    consumer._channel = SimpleNamespace(closed=lost)  # type: ignore[assignment]
    monkeypatch.setattr(asyncio, "sleep", noted)
    keeping = asyncio.create_task(consumer._keep())
    await enough.wait()
    keeping.cancel()
    assert max(pauses) == OF_A_CONSUMER
