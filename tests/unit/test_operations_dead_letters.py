"""Dead letters of several topics are looked for at once, and the looks end together."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from postroad import Postroad, operations
from postroad.brokers.base import DeadLetter, Subscription, Topology
from postroad.errors import BrokerUnavailable, OperationRefused

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


def letters(topic: str, count: int) -> list[DeadLetter]:
    died_at = datetime(2026, 11, 17, tzinfo=UTC)
    return [DeadLetter(f"{n:03}", topic, f"{topic}.receipts", "no", 1, died_at, {}, b"{}") for n in range(count)]


@pytest.fixture
def full(road: Postroad, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[DeadLetter]]:
    found = {topic: letters(topic, 250) for topic in TOPICS}

    async def dead_letters(topic: str, limit: int = 100, after: str = "") -> Sequence[DeadLetter]:
        return [one for one in found.get(topic, ()) if one.id > after][:limit]

    monkeypatch.setattr(road.broker, "dead_letters", dead_letters)
    return found


async def from_place(road: Postroad, topics: Sequence[str], place: str, most: int = 1_000) -> list[str]:
    found: list[str] = []
    async with aclosing(operations.dead_from(road.broker, topics, place)) as dead:
        async for one in dead:
            found.append(operations.place_of_dead(one))
            if len(found) == most:
                break
    return found


async def test_dead_letters_go_on_from_a_place_over_all_topics(
    road: Postroad, full: dict[str, list[DeadLetter]]
) -> None:
    expected = [f"{topic}~{one.id}" for topic, all_of_it in full.items() for one in all_of_it]
    for most in (1_000, 120):
        found: list[str] = []
        while page := await from_place(road, TOPICS[::-1], found[-1] if found else "", most):
            found += page
        assert found == expected
    assert await from_place(road, TOPICS[:1], "247") == expected[248:250]


async def test_a_place_in_a_topic_that_has_gone_skips_nothing_of_the_next(
    road: Postroad, full: dict[str, list[DeadLetter]]
) -> None:
    found = await from_place(road, TOPICS[1:], f"{TOPICS[0]}~200")
    assert len(found) == 250


async def test_an_id_alone_is_no_place_among_several_topics(road: Postroad) -> None:
    with pytest.raises(OperationRefused, match="no place in a list of several topics"):
        await from_place(road, TOPICS, "7")
