"""Leases, acknowledgements, broken streams, and the order of a key on this side of the wire."""

import asyncio
import threading
from functools import partial
from typing import Any

import pytest
from google.protobuf.empty_pb2 import Empty

from postroad.brokers.base import Flow, Subscription, Topology
from postroad.brokers.pubsub.broker import PubSubBroker
from postroad.brokers.pubsub.line import Rejection, connections_thread, raw
from postroad.brokers.pubsub.receiver import PubSubReceiver
from postroad.errors import BrokerError, BrokerUnavailable, ConfigurationError
from postroad.testing.post import Post
from proof.chaos.proxy import Proxy
from tests.support.pubsub import Gate, Outsider, connected, overheard


async def listening(post: Post, flow: Flow | None = None) -> PubSubReceiver:
    receiver = await post.subscribe(flow)
    assert isinstance(receiver, PubSubReceiver)
    return receiver


def ack_ids(receiver: PubSubReceiver) -> list[str]:
    assert receiver.consumer is not None
    return [lease.ack_id for lease in receiver.consumer._leases.values()]


@pytest.mark.spec("F6")
async def test_a_lease_is_extended_while_a_handler_keeps_the_loop_busy(broker: PubSubBroker, visitor: Outsider) -> None:
    post = Post(broker, ack_deadline=10)
    await broker.apply(post.topology)
    await post.send_texts("sandglass", "s")
    (sandglass,) = await visitor.pull(post.subscription.name)
    receiver = await listening(post)
    await post.send_texts("k", "a")
    (held,) = await post.take(receiver, 1)
    (lease,) = ack_ids(receiver)
    extended = threading.Event()

    async def hear(request: Any) -> None:
        if lease in request.ack_ids:
            extended.set()

    overheard(broker, "Subscriber/ModifyAckDeadline", hear)
    await visitor.lease(post.subscription.name, 4, lease)
    await visitor.lease(post.subscription.name, 5, sandglass.ack_id)
    assert extended.wait(post.patience)  # in this thread, so nobody has a turn on this loop
    assert await post.take_texts(receiver, 1) == "s", "what nobody extends comes again"
    assert ack_ids(receiver)[0] == lease, "what was extended does not"
    await held.ack()
    assert await post.has_depth(0)


@pytest.mark.spec("F6")
async def test_the_server_is_told_how_much_may_be_on_its_way(
    post: Post, broker: PubSubBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read late has no lease that anybody extends. Pub/Sub keeps to it, its emulator does not."""
    pull, asked = broker._line.pull, []

    def hear(first: Any) -> Any:
        asked.append((first.max_outstanding_messages, first.max_outstanding_bytes))
        return pull(first)

    monkeypatch.setattr(broker._line, "pull", hear)
    receiver = await listening(post, Flow(messages=3, bytes=1_000))
    await post.send_texts("k", "a")
    await post.take(receiver, 1)
    assert asked == [(30, 2_000)]


@pytest.mark.spec("F6")
async def test_an_acknowledgement_waits_for_the_earlier_ones_of_its_key(post: Post, broker: PubSubBroker) -> None:
    """With exactly-once delivery it is refused while one of them is open."""
    requests = []

    async def hear(request: Any) -> None:
        requests.append(len(request.ack_ids))

    overheard(broker, "Subscriber/Acknowledge", hear)
    receiver = await listening(post)
    await post.send_texts("k", "ab")
    first, second = await post.take(receiver, 2)
    await second.ack()
    await receiver.everything_settled()
    assert (await post.broker.depth(post.subscription.name)).messages == 2
    await first.ack()
    assert await post.has_depth(0)
    assert requests == [2]


@pytest.mark.spec("F6")
async def test_many_acknowledgements_may_be_refused_at_once(
    post: Post, broker: PubSubBroker, visitor: Outsider
) -> None:
    """As after a connection was cut: what it held is held by another delivery now. The answer names each of them."""
    name, path = post.subscription.name, visitor.address.subscription(post.subscription.name)
    await post.send(*(post.message(f"k{number}", "a") for number in range(400)))
    stale: list[str] = []
    async with asyncio.timeout(post.patience):
        while len(stale) < 400:
            stale += [one.ack_id for one in await visitor.pull(name)]
    await visitor.nack(name, *stale)
    request = raw("AcknowledgeRequest")(subscription=path, ack_ids=stale)
    ask = partial(broker._line.ask, about="subscription")
    with pytest.raises(Rejection) as refused:
        await connections_thread().run(ask, "Subscriber/Acknowledge", request, Empty)
    assert refused.value.causes.keys() == set(stale)


@pytest.mark.spec("F6")
async def test_an_acknowledgement_without_an_answer_is_repeated(post: Post, broker: PubSubBroker) -> None:
    failures = iter((True, True))

    async def hear(_: Any) -> None:
        if next(failures, False):
            raise BrokerUnavailable("gone for a moment")

    overheard(broker, "Subscriber/Acknowledge", hear)
    receiver = await listening(post)
    await post.send_texts("k", "abc")
    assert await post.take_texts(receiver, 3) == "abc"
    assert await post.has_depth(0)
    assert ack_ids(receiver) == []


@pytest.mark.spec("F6")
async def test_one_request_of_acknowledgements_is_on_its_way_at_a_time(post: Post, broker: PubSubBroker) -> None:
    gate = Gate(broker, "Subscriber/Acknowledge")
    receiver = await listening(post)
    await post.send_texts("k", "abcdefgh")
    first, *others = await post.take(receiver, 8)
    await first.ack()
    await gate.reached()
    for delivery in others:
        await delivery.ack()

    async def others_are_ready() -> bool:
        return receiver.consumer is not None and len(receiver.consumer._settled) == len(others)

    assert await post.eventually(others_are_ready)
    assert gate.waiting == 1
    gate.open()
    assert await post.has_depth(0)


async def test_what_is_delivered_again_while_it_is_here_is_handed_out_once(post: Post, visitor: Outsider) -> None:
    receiver = await listening(post)
    await post.send_texts("k", "a")
    (held,) = await post.take(receiver, 1)
    (first,) = ack_ids(receiver)
    await visitor.nack(post.subscription.name, first)

    async def delivered_again() -> bool:
        return ack_ids(receiver) != [first]

    assert await post.eventually(delivered_again)
    assert await post.nothing_comes(receiver)
    await held.ack()  # by its new id: the old one counts for nothing
    assert await post.has_depth(0)


async def test_what_was_taken_from_us_costs_only_a_second_delivery(post: Post, pubsub_url: str) -> None:
    receiver = await listening(post)
    await post.send_texts("k", "a")
    (held,) = await post.take(receiver, 1)
    assert receiver.consumer is not None
    (lease,) = receiver.consumer._leases.values()
    lease.ack_id = "stale"
    await held.ack()
    await receiver.everything_settled()
    assert ack_ids(receiver) == []
    assert await post.has_depth(1)


async def test_a_broken_stream_is_opened_again_and_what_was_held_is_still_ours(
    post: Post, distant: PubSubBroker, proxy: Proxy
) -> None:
    receiver = await distant.subscribe(post.subscription.name, Flow())
    await post.send_texts("k", "a")
    (held,) = await post.take(receiver, 1)
    proxy.cut_all()
    await post.send_texts("other", "b")
    assert await post.take_texts(receiver, 1) == "b"
    await held.ack()
    assert isinstance(receiver, PubSubReceiver)
    await receiver.everything_settled()
    assert await post.has_depth(0)


async def test_an_outage_is_waited_out_and_told_once(
    post: Post, distant: PubSubBroker, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = await distant.subscribe(post.subscription.name, Flow())
    await post.send_texts("k", "a")
    assert await post.take_texts(receiver, 1) == "a"
    proxy.leave()

    async def told() -> bool:
        return "receives nothing at the moment" in caplog.text

    assert await post.eventually(told)
    proxy.come_back()
    await post.send_texts("k", "b")
    assert await post.take_texts(receiver, 1) == "b"
    assert caplog.text.count("receives nothing at the moment") == 1


async def test_a_retry_stops_its_key_and_no_other(post: Post) -> None:
    """Even if more wait behind it than the flow has room for."""
    receiver = await listening(post, Flow(messages=5))
    await post.send(*(post.message("k", str(n)) for n in range(20)))
    while (taken := await receiver.receive())[0].data != b"0":
        pass
    for delivery in taken:
        await delivery.retry(3600)
    for text in "xyz":
        await post.send_texts("other", text)
        assert await post.take_texts(receiver, 1) == text
    assert await post.nothing_comes(receiver)


@pytest.mark.spec("P6")
async def test_what_a_dead_worker_held_comes_before_what_waits_for_it(broker: PubSubBroker, pubsub_url: str) -> None:
    """The emulator hands out later ones of a key while earlier ones are still another's."""
    post = Post(broker, ack_deadline=10)
    await broker.apply(post.topology)
    dead = await listening(post)
    await post.send_texts("k", "ab")
    await post.take(dead, 2)
    assert dead.consumer is not None
    for task in dead.consumer._tasks:
        connections_thread().post(task.cancel)
    heir = connected(pubsub_url)
    receiver = await heir.subscribe(post.subscription.name, Flow())
    await post.send_texts("k", "c")
    (too_early,) = await post.take(receiver, 1)
    assert too_early.data == b"c", "else this shows nothing"
    await too_early.retry(0.0)
    handled = ""
    async with asyncio.timeout(60):
        while handled != "abc":
            for delivery in (deliveries := list(await receiver.receive())):
                # It builds upon those before it. What is behind one that waits goes back, too, as in a subscriber.
                if handled + delivery.data.decode() not in ("a", "ab", "abc"):
                    await asyncio.gather(*(one.retry(0.1) for one in deliveries[deliveries.index(delivery) :]))
                    break
                handled += delivery.data.decode()
                await delivery.ack()
    await heir.aclose()


async def test_what_waits_for_its_retry_keeps_its_lease(post: Post, pubsub_url: str) -> None:
    receiver = await listening(post)
    await post.send_texts("k", "ab")
    for delivery in await post.take(receiver, 2):
        await delivery.retry(3600)
    other = connected(pubsub_url)
    second = await other.subscribe(post.subscription.name, Flow())
    assert await post.nothing_comes(second)
    await receiver.aclose()
    assert await post.take_texts(second, 2) == "ab"
    await other.aclose()


async def test_nothing_more_is_read_while_there_is_no_room(post: Post) -> None:
    receiver = await listening(post, Flow(messages=5))
    await post.send(*(post.message(f"k{n}") for n in range(10)))
    assert receiver.consumer is not None
    reading = receiver.consumer._may_read

    async def stopped() -> bool:
        return not reading.is_set()

    assert await post.eventually(stopped)
    for _ in range(2):
        for delivery in await post.take(receiver, 5):
            await delivery.ack()
    await receiver.everything_settled()
    assert reading.is_set()
    assert await post.has_depth(0)


async def test_a_closed_receiver_says_so(post: Post) -> None:
    receiver = await post.subscribe()
    waiting = asyncio.ensure_future(receiver.receive())
    await asyncio.sleep(0)
    await receiver.aclose()
    with pytest.raises(BrokerError, match="is closed"):
        await waiting


async def test_what_is_settled_is_acknowledged_before_the_receiver_closes(
    post: Post, broker: PubSubBroker, visitor: Outsider
) -> None:
    gate = Gate(broker, "Subscriber/Acknowledge")
    receiver = await listening(post)
    await post.send_texts("k", "abc")
    first, second, _ = await post.take(receiver, 3)
    await first.ack()
    await second.ack()
    closing = asyncio.create_task(receiver.aclose())
    await gate.reached()
    await visitor.subscription(post.subscription.name)  # as long as a request takes
    assert not closing.done()
    gate.open()
    await closing
    assert await post.take_texts(await post.subscribe(), 1) == "c"


async def test_an_unknown_subscription_is_named(broker: PubSubBroker) -> None:
    with pytest.raises(ConfigurationError, match=r"'a\.events\.nobody' does not exist\. Run: postroad topology apply"):
        await broker.subscribe("a.events.nobody", Flow())


async def test_who_was_called_back_from_the_dead_comes_only_to_its_own_subscription(post: Post) -> None:
    other = Subscription(f"{post.topic}.others", post.topic)
    await post.broker.apply(Topology((post.topic,), (post.subscription, other)))
    receiver, beside = await post.subscribe(), await post.broker.subscribe(other.name, Flow())
    await post.send_texts("k", "a")
    assert await post.take_texts(beside, 1) == "a"
    await (await post.take(receiver, 1))[0].dead("for now")
    (letter,) = await post.broker.dead_letters(post.topic)
    await post.broker.revive(post.topic, [letter.id])
    (again,) = await post.take(receiver, 1)
    assert (again.data, again.key) == (b"a", "k")
    assert await post.nothing_comes(beside)
    await again.ack()
    assert await post.has_depth(0)
    assert (await post.broker.depth(other.name)).messages == 0
