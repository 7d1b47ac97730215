"""Acknowledgements go to the connections' thread together, and never so late that the server would wait for them."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from postroad.brokers.base import Flow
from postroad.brokers.rabbitmq import receiver as receiving
from postroad.brokers.rabbitmq.receiver import RabbitReceiver, Terms
from postroad.clock import SystemClock


class Thread:
    """Notes what it is handed."""

    def __init__(self) -> None:
        self.handed: list[list[int]] = []
        self.some = asyncio.Event()

    def post(self, work: Any, verdicts: Any) -> None:
        self.handed.append([tag for _, tag in verdicts])
        self.some.set()


def receiver(thread: Thread, prefetch: int) -> RabbitReceiver:
    terms = Terms("t.x.events", "t.x.events.g", Flow(), prefetch, shortest=1.0, exclusive=True)
    made = RabbitReceiver(thread, SystemClock(), None, terms)  # type: ignore[arg-type]
    made.consumer = SimpleNamespace(settle=None, generation=1)  # type: ignore[assignment]
    return made


def acknowledge(made: RabbitReceiver, *tags: int) -> None:
    for tag in tags:
        made._acknowledge_later(SimpleNamespace(generation=1, tag=tag))  # type: ignore[arg-type]


@pytest.mark.parametrize(("prefetch", "handed"), [(1, [[1], [2]]), (7, [[1], [2]]), (8, [[1, 2]])])
async def test_a_quarter_of_what_the_server_hands_over_is_acknowledged_at_once(
    prefetch: int, handed: list[list[int]]
) -> None:
    thread = Thread()
    acknowledge(receiver(thread, prefetch), 1, 2)
    assert thread.handed == handed


async def test_fewer_wait_for_others_but_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "_TOGETHER", 0.001)
    thread = Thread()
    acknowledge(receiver(thread, 200), 1, 2, 3)
    assert thread.handed == []
    await asyncio.wait_for(thread.some.wait(), 20)
    assert thread.handed == [[1, 2, 3]]
