"""Dead letters of several topics are looked for at once, and the looks end together."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from postroad import Postroad, operations
from postroad.brokers.base import DeadLetter, Subscription, Topology
from postroad.errors import BrokerUnavailable

TOPICS = ("shop.order.events", "shop.return.events")


@pytest.fixture
async def road(tmp_path: Path) -> AsyncIterator[Postroad]:
    async with Postroad("shop", f"sqlite:///{tmp_path}/shop.db", "embedded:") as road:
        await road.migrate()
        await road.broker.apply(Topology(TOPICS, tuple(Subscription(f"{topic}.receipts", topic) for topic in TOPICS)))
        yield road


@pytest.fixture
def called_off(road: Postroad, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics whose look was ended before its answer; the first topic's fails when the others have begun."""
    others_look, called_off = asyncio.Event(), []

    async def dead_letters(topic: str, limit: int = 100, after: str = "") -> Sequence[DeadLetter]:
        if topic == TOPICS[0]:
            await others_look.wait()
            raise BrokerUnavailable("away") from OSError("reset")
        others_look.set()
        try:
            await asyncio.Event().wait()
        finally:
            called_off.append(topic)
        return []

    monkeypatch.setattr(road.broker, "dead_letters", dead_letters)
    return called_off


async def test_a_look_that_fails_ends_the_others_and_is_the_error(road: Postroad, called_off: list[str]) -> None:
    with pytest.raises(BrokerUnavailable, match="away") as raised:
        await operations.dead_page(road.broker, TOPICS)
    assert called_off == [TOPICS[1]]
    assert isinstance(raised.value.__cause__, OSError)


async def test_a_status_leaves_no_look_behind(road: Postroad, called_off: list[str]) -> None:
    found = await operations.status(road.store, road.outboxes, road.broker)
    assert called_off == [TOPICS[1]]
    assert found.broker_trouble == "away"
