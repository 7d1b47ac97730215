"""The order of a key when streams break and deadlines pass, against Google's rules as the simulator models them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from postroad.brokers.base import Delivery, Flow, Receiver
from postroad.brokers.pubsub.broker import PubSubBroker
from proof.simulator.pubsub_model import Model
from tests.support.pubsub import connected
from tests.support.pubsub_server import PATIENCE, SUBSCRIPTION, Server, serving
from tests.support.pubsub_world import World


@pytest.fixture
async def google() -> AsyncIterator[tuple[Server, str]]:
    async with serving() as served:
        yield served


@pytest.fixture
def server(google: tuple[Server, str]) -> Server:
    return google[0]


@pytest.fixture
def model(server: Server) -> Model:
    return server.model


@pytest.fixture
async def broker(google: tuple[Server, str]) -> AsyncIterator[PubSubBroker]:
    broker = connected(google[1])
    yield broker
    await broker.aclose()


async def take(receiver: Receiver, count: int) -> list[Delivery]:
    taken: list[Delivery] = []
    async with asyncio.timeout(PATIENCE):
        while len(taken) < count:
            taken += await receiver.receive()
    return taken


async def texts(receiver: Receiver, count: int) -> str:
    taken = await take(receiver, count)
    for delivery in taken:
        await delivery.ack()
    return "".join(delivery.data.decode() for delivery in taken)


async def all_settled(server: Server) -> None:
    await server.until(lambda model: model.open_ones() == 0)


@pytest.mark.spec("P6", "F6")
async def test_what_was_lost_with_a_stream_comes_before_what_was_behind_it(
    server: Server, model: Model, broker: PubSubBroker
) -> None:
    receiver = await broker.subscribe(SUBSCRIPTION, Flow())
    await server.do(lambda: model.publish("k", "a"))
    assert await texts(receiver, 1) == "a"
    await server.do(server.stall, lambda: model.publish("k", "b", "c"), server.cut)
    await server.until(lambda model: len(model.streams) > 1)
    await server.do(lambda: model.publish("k", "d"), lambda: model.publish("other", "x"))
    assert await texts(receiver, 1) == "x", "the new stream is open, and d waits"
    await server.do(model.pass_deadlines)
    assert await texts(receiver, 3) == "bcd"
    await all_settled(server)


@pytest.mark.spec("P6", "F6")
async def test_what_a_dead_worker_held_goes_to_another_in_order(
    server: Server, model: Model, broker: PubSubBroker, google: tuple[Server, str]
) -> None:
    first = await broker.subscribe(SUBSCRIPTION, Flow())
    await server.do(lambda: model.publish("k", "a", "b", "c"))
    for delivery in await take(first, 3):
        await delivery.retry(3600)
    other = connected(google[1])
    # The first worker is gone: no word from it any more, and its leases end.
    for task in first.consumer._tasks:  # type: ignore[union-attr]
        task.get_loop().call_soon_threadsafe(task.cancel)
    await server.do(server.cut)
    second = await other.subscribe(SUBSCRIPTION, Flow())
    await server.until(lambda model: len(model.streams) > 1)
    await server.do(model.pass_deadlines)
    assert await texts(second, 3) == "abc"
    await all_settled(server)
    await other.aclose()


@pytest.mark.spec("F6")
async def test_a_deadline_that_passed_while_it_was_in_hand_costs_nothing(
    server: Server, model: Model, broker: PubSubBroker
) -> None:
    receiver = await broker.subscribe(SUBSCRIPTION, Flow())
    await server.do(lambda: model.publish("k", "a", "b", "c"))
    held = await take(receiver, 3)
    await server.do(model.pass_deadlines, lambda: model.publish("other", "x"))
    assert await texts(receiver, 1) == "x", "and what came again has come before it"
    for delivery in held:
        await delivery.ack()
    await all_settled(server)
    assert model.refused == [], "each was acknowledged by the id of its last delivery"


@pytest.mark.spec("F6")
async def test_an_earlier_one_that_came_again_late_is_acknowledged_first(
    server: Server, model: Model, broker: PubSubBroker
) -> None:
    receiver = await broker.subscribe(SUBSCRIPTION, Flow())
    await server.do(lambda: model.publish("k", "a", "b"))
    first, second = await take(receiver, 2)
    await server.do(server.stall, model.pass_deadlines)
    await first.ack()  # too late
    await server.until(lambda model: len(model.refused) == 1)
    await server.do(server.cut, model.pass_deadlines)
    (again,) = await take(receiver, 1)
    assert again.data == b"a"
    await second.ack()
    await server.until(lambda model: len(model.refused) == 2)
    await again.ack()
    await all_settled(server)


# --- whatever breaks, on virtual time -----------------------------------------------------------------


def after_a_storm(seed: int) -> World:
    world = World(seed)
    world.run(world.storm)
    return world


@pytest.mark.spec("F6")
@pytest.mark.parametrize("seed", range(40))
def test_whatever_breaks_each_key_is_handled_in_order(seed: int) -> None:
    world = after_a_storm(seed)
    assert world.violations == [], world.told()


def test_a_seed_is_the_same_story_each_time() -> None:
    first, second = after_a_storm(1), after_a_storm(1)
    assert len(first.story) > 300
    assert first.story == second.story


@pytest.mark.spec("F6")
def test_what_is_done_and_not_acknowledged_keeps_nothing_from_coming_again() -> None:
    """Its own acknowledgement is refused until the earlier one has come again."""
    world = World(0)

    async def lose_the_first_lease() -> None:
        world.calm, world.model.all_behind = True, 0.0
        await world.begin("north")
        world.publish("x", 2)
        (stream,) = world.model.streams
        stream.breaks(arriving=1)
        world.model.end(stream)
        world.model.expire(world.model.messages[:1])

    world.run(lose_the_first_lease)
    assert world.violations == [], world.told()
    assert world.effects["x"] == [0, 1]
