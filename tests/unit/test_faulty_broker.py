from collections.abc import AsyncIterator
from random import Random

import pytest

from postroad.brokers.base import Confirmed, Flow, Outcome, Refused, Unavailable
from postroad.brokers.embedded import connect
from postroad.errors import BrokerUnavailable
from postroad.message import Message
from postroad.testing import Faults, FaultyBroker, VirtualClock
from postroad.testing.post import Post


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def broker(clock: VirtualClock) -> AsyncIterator[FaultyBroker]:
    broker = FaultyBroker(connect("embedded:", clock=clock), clock=clock, random=Random(1))
    yield broker
    await broker.aclose()


@pytest.fixture
async def post(broker: FaultyBroker) -> Post:
    post = Post(broker, silence=0.03)
    await broker.apply(post.topology)
    return post


def kinds(outcomes: "list[Outcome]") -> list[type]:
    return [type(outcome) for outcome in outcomes]


async def test_a_scripted_break_before_the_broker_took_anything(broker: FaultyBroker, post: Post) -> None:
    broker.script("unavailable", "none")
    assert kinds(list(await broker.send([post.message(), post.message()]))) == [Unavailable] * 2
    assert await post.has_depth(0)
    await post.send_texts("k", "a")
    assert await post.has_depth(1)


async def test_a_scripted_lost_confirm_after_the_broker_took_everything(broker: FaultyBroker, post: Post) -> None:
    broker.script("lost_confirm")
    assert kinds(list(await broker.send([post.message(), post.message()]))) == [Unavailable] * 2
    assert await post.has_depth(2)


async def test_an_unknown_fate_is_refused_at_once(broker: FaultyBroker) -> None:
    with pytest.raises(ValueError, match="'explode' is no fate"):
        broker.script("explode")


@pytest.mark.parametrize("fault", ["unavailable", "lost_confirm"])
async def test_chance_cuts_a_batch_in_two(broker: FaultyBroker, post: Post, fault: str) -> None:
    broker.faults = Faults(**{fault: 1.0})
    outcomes = list(await broker.send([post.message() for _ in range(20)]))
    confirmed = outcomes.count(Confirmed())
    assert 0 < confirmed < 20
    assert kinds(outcomes) == [Confirmed] * confirmed + [Unavailable] * (20 - confirmed)
    assert await post.has_depth(confirmed if fault == "unavailable" else 20)


async def test_a_seed_repeats_its_faults(post: Post) -> None:
    async def outcomes(seed: int) -> list[type]:
        faults = Faults(unavailable=0.3, lost_confirm=0.3)
        broker = FaultyBroker(post.broker, faults, random=Random(seed))
        return [kind for _ in range(20) for kind in kinds(list(await broker.send([post.message()] * 3)))]

    assert await outcomes(7) == await outcomes(7)
    assert await outcomes(7) != await outcomes(8)


async def test_refusal_holds_back_the_rest_of_the_key(broker: FaultyBroker, post: Post) -> None:
    def refuse(message: Message) -> str | None:
        return "rotten" if message.payload == b"x" else None

    broker.refuse = refuse
    batch = [post.message("k", "a"), post.message("k", "x"), post.message("k", "b"), post.message("o", "c")]
    outcomes = list(await broker.send(batch))
    assert outcomes[:2] == [Confirmed(), Refused("rotten")]
    assert kinds(outcomes[2:]) == [Unavailable, Confirmed]
    assert await post.has_depth(2)


async def test_a_lost_ack_brings_the_message_again(broker: FaultyBroker, post: Post) -> None:
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    broker.faults = Faults(lost_ack=1.0)
    await (await post.take(receiver, 1))[0].ack()
    broker.faults = Faults()
    (again,) = await post.take(receiver, 1)
    assert again.attempt == 2
    await again.ack()
    assert await post.has_depth(0)


async def test_a_duplicate_comes_right_behind_and_its_verdict_does_nothing(broker: FaultyBroker, post: Post) -> None:
    receiver = await post.subscribe()
    broker.faults = Faults(duplicate=1.0)
    await post.send_texts("k", "ab")
    deliveries = await post.take(receiver, 4)
    assert b"".join(delivery.data for delivery in deliveries) == b"aabb"
    await deliveries[0].ack()
    await deliveries[1].dead("seen before")
    assert list(await broker.dead_letters(post.topic)) == []


async def test_a_late_delivery_waits_on_the_clock(broker: FaultyBroker, post: Post, clock: VirtualClock) -> None:
    receiver = await post.subscribe()
    broker.faults = Faults(late=1.0, lateness=5.0)
    await post.send_texts("k", "a")
    assert await post.nothing_comes(receiver)
    broker.faults = Faults()
    assert await post.take_texts(receiver, 1) == "a"


async def test_an_outage_stops_everything_and_loses_nothing(broker: FaultyBroker, post: Post) -> None:
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    (delivery,) = await post.take(receiver, 1)
    broker.down = True
    assert kinds(list(await broker.send([post.message()]))) == [Unavailable]
    for call in (
        receiver.receive(),
        delivery.ack(),
        delivery.retry(0),
        delivery.dead("down"),
        broker.subscribe(post.subscription.name, Flow()),
        broker.depth(post.subscription.name),
        broker.plan(post.topology),
        broker.apply(post.topology),
        broker.subscriptions(),
        broker.seek(post.subscription.name, "x"),
        broker.snapshot(post.subscription.name, "x"),
        broker.dead_letters(post.topic),
        broker.revive(post.topic, []),
        broker.discard(post.topic, []),
    ):
        with pytest.raises(BrokerUnavailable, match="outage"):
            await call
    broker.down = False
    await delivery.ack()
    assert await post.has_depth(0)
