"""The end of a replay, where the broker cannot count what is left, or not at once: Pub/Sub in the cloud cannot."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import TypeVar

import pytest

from postroad.brokers.base import Delivery, Depth, Flow, Receiver, Topology
from postroad.brokers.embedded.broker import EmbeddedBroker
from postroad.clock import SystemClock
from postroad.errors import BrokerError, BrokerUnavailable, UnsupportedByBroker
from postroad.projections import BrokerSource
from tests.support.projections import HISTORY, NAME, TOPIC, VideoSaved, message

T = TypeVar("T")

pytestmark = pytest.mark.spec("F9")


class Uncounted(EmbeddedBroker):
    async def depth(self, subscription: str) -> Depth:
        raise UnsupportedByBroker("Pub/Sub", "depth", "")


class Hesitant(EmbeddedBroker):
    """Does not answer when it is asked first."""

    asked = 0

    async def depth(self, subscription: str) -> Depth:
        self.asked += 1
        if self.asked == 1:
            raise BrokerUnavailable("The broker did not answer in time.")
        return await super().depth(subscription)


class Forgetful(EmbeddedBroker):
    """Counts what it never hands out."""

    async def subscribe(self, subscription: str, flow: Flow) -> Receiver:
        receiver = await super().subscribe(subscription, flow)

        async def nothing() -> Sequence[Delivery]:
            return await asyncio.get_running_loop().create_future()

        receiver.receive = nothing  # type: ignore[method-assign]
        return receiver


class Impatient(SystemClock):
    """Each wait takes a second at most, and passes for one whatever it took."""

    waited = 0

    def monotonic(self) -> float:
        return float(self.waited)

    async def wait_for(self, awaitable: Awaitable[T], timeout: float) -> T:
        self.waited += 1
        return await super().wait_for(awaitable, timeout / 50)


@pytest.fixture
async def broker() -> AsyncIterator[Uncounted]:
    broker = Uncounted(None, SystemClock())
    await broker.apply(Topology((TOPIC,)))
    yield broker
    await broker.aclose()


async def test_it_ends_after_a_minute_of_silence_and_gives_signs_of_life_meanwhile(broker: Uncounted) -> None:
    await broker.send(HISTORY)
    clock = Impatient()
    found = [one async for one in BrokerSource(broker, [TOPIC], NAME, clock=clock).read()]
    assert {one.id for one in found if one} == {one.id for one in HISTORY}
    assert found[-60:] == [None] * 60, "who rebuilds is told that the source lives"
    assert await broker.subscriptions() == []


async def test_events_that_happen_meanwhile_do_not_keep_it_from_ending(broker: Uncounted) -> None:
    """Whenever one has been read there is another."""
    await broker.send(HISTORY)
    later = SystemClock().now() + timedelta(hours=1)
    found = []
    async with aclosing(BrokerSource(broker, [TOPIC], NAME, clock=Impatient()).read()) as source:
        async for one in source:
            found.append(one.id if one else None)
            await broker.send([message(VideoSaved("live", "t"), len(found), occurred_at=later)])
    assert {one.id for one in HISTORY} <= set(found)
    assert len(found) > 60


async def test_a_broker_that_does_not_answer_for_a_moment_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    broker = Hesitant(None, SystemClock())
    await broker.apply(Topology((TOPIC,)))
    await broker.send(HISTORY)
    found = [one async for one in BrokerSource(broker, [TOPIC], NAME, clock=SystemClock()).read()]
    assert {one.id for one in found if one} == {one.id for one in HISTORY}
    assert "did not answer in time. The rebuild goes on when it answers." in caplog.text
    await broker.aclose()


async def test_what_is_never_handed_out_ends_it_with_an_error() -> None:
    broker = Forgetful(None, SystemClock())
    await broker.apply(Topology((TOPIC,)))
    await broker.send(HISTORY)
    with pytest.raises(BrokerError, match="does not hand out"):
        [one async for one in BrokerSource(broker, [TOPIC], NAME, clock=Impatient()).read()]
    assert await broker.subscriptions() == []
    await broker.aclose()
