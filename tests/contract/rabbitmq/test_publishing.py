"""Sending to a real RabbitMQ that refuses, breaks off, falls silent or is not there."""

import asyncio
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pika
import pytest

from postroad.brokers.base import Confirmed, Flow, Outcome, Refused, Topology, Unavailable
from postroad.brokers.rabbitmq.broker import RabbitBroker
from postroad.brokers.rabbitmq.confirms import Confirms
from postroad.errors import BrokerUnavailable
from postroad.testing.post import Post
from proof.chaos.proxy import CutAfter, Proxy, Side
from tests.support.rabbitmq import api, confirmed, connected, fresh_vhost, through

PATIENCE = 30.0


def kinds(outcomes: Sequence[Outcome]) -> list[type[Outcome]]:
    return [type(outcome) for outcome in outcomes]


# --- refused ---------------------------------------------------------------------------------------


@pytest.mark.spec("R3", "R8")
async def test_what_no_queue_takes_is_refused(broker: RabbitBroker) -> None:
    post = Post(broker)
    await broker.apply(Topology((post.topic,)))
    (outcome,) = await broker.send([post.message()])
    assert isinstance(outcome, Refused)
    assert "no queue takes 'thing.happened'" in outcome.reason
    await broker.apply(post.topology)
    await post.send(post.message())


@pytest.mark.spec("R8")
async def test_nothing_of_a_key_overtakes_what_no_queue_took(broker: RabbitBroker, channel: Any) -> None:
    post = Post(broker)
    await broker.apply(Topology((post.topic,)))
    channel.queue_declare(post.topic + ".narrow", durable=True)
    channel.queue_bind(post.topic + ".narrow", post.topic, "thing.known")
    batch = [
        post.message("k", "a", type="thing.known"),
        post.message("k", "b", type="thing.unknown"),
        post.message("k", "c", type="thing.known"),
        post.message("other", "d", type="thing.known"),
    ]
    assert kinds(await broker.send(batch)) == [Confirmed, Refused, Unavailable, Confirmed]
    bodies = [channel.basic_get(post.topic + ".narrow", True)[2] for _ in range(3)]
    assert bodies == [b"a", b"d", None]


async def test_nothing_of_a_key_overtakes_what_a_full_queue_rejected(post: Post, channel: Any) -> None:
    """A server that takes one, rejects the next and has room again for the third."""
    full = post.topic + ".full"
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare(full, durable=True, arguments=arguments)
    channel.queue_bind(full, post.topic, "#")
    outcomes = await post.broker.send([post.message("k", text) for text in "abc"])
    assert kinds(outcomes)[0] is Confirmed
    assert set(kinds(outcomes)[1:]) == {Unavailable}
    channel.queue_purge(full)
    assert kinds(await post.broker.send([post.message("k", "b")])) == [Confirmed]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"headers": {"n" * 250: ""}}, "is longer than the 255 bytes"),
        ({"headers": {"n": "v" * 130_000}}, "the attributes are 130,"),
        ({"headers": {"n": "\ud800"}}, "not valid Unicode"),
        ({"type": "t" * 256}, "the event type is 256 bytes long"),
        ({"topic": "t" * 256}, "the topic's name is longer"),
        ({"topic": "\ud800"}, "no valid text"),
    ],
)
async def test_what_cannot_be_put_on_the_wire_is_refused_and_harms_no_other(
    post: Post, changes: dict[str, object], told: str
) -> None:
    bad, good = await post.broker.send([post.message("bad", **changes), post.message("good")])
    assert isinstance(bad, Refused)
    assert told in bad.reason
    assert good == Confirmed()


async def test_attributes_as_large_as_promised_do_arrive(post: Post) -> None:
    receiver = await post.subscribe()
    sent = post.message("k", headers={"n": "ü" * 59_000, "m" * 240: "x"})
    await post.send(sent)
    (delivery,) = await post.take(receiver, 1)
    assert delivery.attributes == sent.attributes()
    await delivery.dead("also with these")
    (letter,) = await post.broker.dead_letters(post.topic)
    assert letter.attributes == sent.attributes()


async def test_a_message_for_which_the_server_closes_the_channel_is_refused_and_no_other(
    post: Post, rabbitmq_url: str
) -> None:
    """Here for want of a right; with another server it may be for its size."""
    rights = {"exchange": post.topic, "write": "^thing[.]", "read": ".*"}
    api(rabbitmq_url, "/api/topic-permissions/{vhost}/guest", "PUT", rights)
    batch = [post.message(f"k{n}", f"{n}", type="forbidden" if n in (2, 5) else "thing.happened") for n in range(8)]
    outcomes = await post.broker.send([*batch, post.message("k2", "behind")])
    expected = [Refused if n in (2, 5) else Confirmed for n in range(8)]
    assert kinds(outcomes)[:8] == expected
    assert isinstance(outcomes[8], Unavailable)
    assert "topic 'forbidden'" in outcomes[2].reason  # type: ignore[union-attr]
    assert kinds(await post.broker.send([batch[2]])) == [Refused]
    await post.send(batch[0])


async def test_a_right_that_was_taken_away_is_no_messages_fault(rabbitmq_url: str) -> None:
    with fresh_vhost(rabbitmq_url) as url:
        other = connected(url)
        post = Post(other)
        await other.apply(post.topology)
        nothing = {"configure": ".*", "write": "^$", "read": ".*"}
        api(url, "/api/permissions/{vhost}/guest", "PUT", nothing)
        assert kinds(await other.send([post.message("a"), post.message("b")])) == [Unavailable, Unavailable]
        assert kinds(await other.send([post.message("a")])) == [Unavailable]
        await other.aclose()


# --- on the wire -----------------------------------------------------------------------------------


@pytest.mark.spec("P4", "P5", "R3")
async def test_others_find_persistent_messages_with_attributes_in_the_headers(post: Post, channel: Any) -> None:
    sent = post.message("o-1", "{}", type="ORDER_STATUS_CHANGED", correlation_id="c-1", user_id="u-1", trace_id="t-1")
    await post.send(sent)
    method, properties, body = channel.basic_get(post.subscription.name, True)
    assert (method.exchange, method.routing_key, body) == (post.topic, "order.status.changed", b"{}")
    assert properties.headers == sent.attributes()
    assert {"event_id", "event_type", "aggregate_id", "aggregate_type", "version", "occurred_at", "schema_version"} <= (
        properties.headers.keys()
    )
    assert properties.headers["occurred_at"].endswith("Z")
    assert {"correlation_id": "c-1", "user_id": "u-1", "trace_id": "t-1"}.items() <= properties.headers.items()
    assert (properties.delivery_mode, properties.content_type) == (2, "application/json")
    assert properties.message_id == str(sent.id)


async def test_messages_of_others_can_be_read(post: Post, channel: Any) -> None:
    headers = {"event_id": "e-1", "count": 3, "yes": True, "when": datetime(2026, 1, 1, tzinfo=UTC), "none": None}
    properties = pika.BasicProperties(headers=headers | {"x-foreign": "hidden"})
    channel.basic_publish(post.topic, "anything", b"\xff", properties)
    receiver = await post.subscribe()
    (delivery,) = await post.take(receiver, 1)
    assert (delivery.key, delivery.data) == ("", b"\xff")
    assert {"event_id": "e-1", "count": "3", "yes": "True", "none": ""}.items() <= delivery.attributes.items()
    assert "x-foreign" not in delivery.attributes


class FarFuture(datetime):
    """Milliseconds where AMQP has seconds: a time that no calendar knows."""

    def utctimetuple(self) -> Any:
        return 2026, 1, 20_000_000_000, 0, 0, 0


@pytest.mark.parametrize(
    ("headers", "read"),
    [({b"\xff\xfename": "v"}, {"??name": "v"}), ({"n": b"\xff" * 60_000}, {"n": "?" * 60_000})],
)
async def test_messages_of_others_are_read_as_far_as_they_are_text(
    post: Post, channel: Any, headers: Any, read: dict[str, str]
) -> None:
    channel.basic_publish(post.topic, "anything", b"{}", pika.BasicProperties(headers=headers))
    receiver = await post.subscribe()
    (delivery,) = await post.take(receiver, 1)
    assert delivery.attributes == read
    await delivery.dead("not ours")
    (letter,) = await post.broker.dead_letters(post.topic)
    assert letter.attributes == read


async def test_headers_that_cannot_be_read_cost_no_other_message_anything(
    post: Post, channel: Any, caplog: pytest.LogCaptureFixture
) -> None:
    when = FarFuture(2026, 1, 1)
    channel.basic_publish(post.topic, "anything", b"{}", pika.BasicProperties(headers={"when": when, "a": "b"}))
    await post.send_texts("k", "a")
    receiver = await post.subscribe()
    foreign, ours = await post.take(receiver, 2)
    assert (foreign.attributes, foreign.data, ours.data) == ({}, b"{}", b"a")
    await foreign.dead("not ours")
    await ours.ack()
    assert await post.has_depth(0)
    assert "interrupted" not in caplog.text


# --- broken off ------------------------------------------------------------------------------------


async def test_a_channel_that_the_server_closes_concerns_its_topic_alone(
    post: Post, broker: RabbitBroker, channel: Any
) -> None:
    other = Post(broker)
    await broker.apply(other.topology)
    assert kinds(await broker.send([post.message(), other.message()])) == [Confirmed, Confirmed]
    channel.exchange_delete(post.topic)
    outcomes = await broker.send([post.message("a"), other.message("b"), post.message("c")])
    assert kinds(outcomes) == [Unavailable, Confirmed, Unavailable]
    assert "404" in outcomes[0].reason  # type: ignore[union-attr]
    (gone,) = await broker.send([post.message()])
    assert gone == Refused(f"topic {post.topic!r} does not exist. Run: postroad topology apply")
    await broker.apply(post.topology)
    await post.send(post.message())


async def test_an_exchange_that_differs_concerns_its_topic_alone(
    post: Post, broker: RabbitBroker, channel: Any
) -> None:
    other = Post(broker)
    channel.exchange_declare(other.topic, "fanout", durable=True)
    good, bad = await broker.send([post.message(), other.message()])
    assert good == Confirmed()
    assert isinstance(bad, Unavailable)
    assert "differs in argument 'type'" in bad.reason


async def test_a_connection_cut_before_the_confirm_costs_a_duplicate_and_no_attempt(
    post: Post, distant: RabbitBroker, proxy: Proxy
) -> None:
    assert kinds(await distant.send([post.message("k", "a")])) == [Confirmed]
    proxy.trap = trap = CutAfter(1, Side.SERVER)
    message = post.message("k", "b")
    assert kinds(await distant.send([message, post.message("k", "c")])) == [Unavailable, Unavailable]
    assert trap.sprung.is_set()
    proxy.trap = None
    assert await confirmed(distant, message)
    receiver = await post.subscribe()
    assert await post.take_texts(receiver, 3) == "abb"
    assert await post.nothing_comes(receiver)


async def test_a_connection_cut_inside_a_message_costs_nothing_but_time(
    post: Post, distant: RabbitBroker, proxy: Proxy
) -> None:
    assert kinds(await distant.send([post.message("k", "a")])) == [Confirmed]
    proxy.trap = CutAfter(100, Side.CLIENT)
    message = post.message("k", "b")
    assert kinds(await distant.send([message])) == [Unavailable]
    proxy.trap = None
    assert await confirmed(distant, message)
    assert await post.take_texts(await post.subscribe(), 2) == "ab"


async def test_however_connections_break_there_are_only_duplicates(
    post: Post, distant: RabbitBroker, proxy: Proxy
) -> None:
    """Sent as a relay sends: on from the first that was not confirmed, key by key."""
    chance = random.Random(7)
    each, keys = 40, "abcde"
    left = {key: [post.message(key, f"{key}{n:02}") for n in range(each)] for key in keys}
    cuts = 0
    async with asyncio.timeout(4 * PATIENCE):
        while any(left.values()):
            if chance.random() < 0.7:
                side = chance.choice([Side.CLIENT, Side.SERVER])
                proxy.trap = CutAfter(chance.randrange(1, 4_000 if side is Side.CLIENT else 200), side)
            batch = [message for key in keys for message in left[key][: chance.randrange(1, 8)]]
            outcomes = dict(zip([message.id for message in batch], await distant.send(batch), strict=True))
            cuts += proxy.trap is not None and proxy.trap.sprung.is_set()
            proxy.trap = None
            for key in keys:
                while left[key] and outcomes.get(left[key][0].id) == Confirmed():
                    del left[key][0]
    assert cuts > 5
    receiver = await post.broker.subscribe(post.subscription.name, Flow())
    seen: dict[str, list[str]] = {key: [] for key in keys}
    while any(len(set(of_key)) < each for of_key in seen.values()):
        for delivery in await receiver.receive():
            seen[delivery.key].append(delivery.data.decode())
            await delivery.ack()
    for key, of_key in seen.items():
        assert list(dict.fromkeys(of_key)) == [f"{key}{n:02}" for n in range(each)]


# --- silent or absent ------------------------------------------------------------------------------


async def test_a_server_that_falls_silent_is_given_up_after_the_time_limit(
    post: Post, distant: RabbitBroker, proxy: Proxy
) -> None:
    message = post.message("k", "a")
    assert kinds(await distant.send([message])) == [Confirmed]
    proxy.stall()
    (outcome,) = await distant.send([message])
    assert outcome == Unavailable("no confirmation within 2 s")
    proxy.resume()
    assert await confirmed(distant, message)


async def test_a_connection_that_stays_silent_is_replaced(post: Post, distant: RabbitBroker, proxy: Proxy) -> None:
    message = post.message("k", "a")
    assert kinds(await distant.send([message])) == [Confirmed]
    proxy.stall()
    assert kinds(await distant.send([message])) == [Unavailable]
    proxy.silent = False  # for new connections; the old ones hear nothing more
    assert kinds(await distant.send([message])) == [Confirmed]


async def test_a_topic_that_is_not_confirmed_costs_the_others_no_connection(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose quorum queue has lost its majority: RabbitMQ then says neither yes nor no."""
    broker = connected(rabbitmq_url, publish_timeout=1)
    healthy, stuck = Post(broker), Post(broker)
    for post in (healthy, stuck):
        await broker.apply(post.topology)
        await post.send(post.message())
    unheard, hear = broker._publisher._channels[stuck.topic], Confirms._meant
    monkeypatch.setattr(Confirms, "_meant", lambda self, *told: [] if self is unheard else hear(self, *told))
    connection = broker._publishing._connection
    assert kinds(await broker.send([healthy.message(), stuck.message()])) == [Confirmed, Unavailable]
    assert kinds(await broker.send([healthy.message(), stuck.message()])) == [Confirmed, Confirmed]
    assert broker._publishing._connection is connection
    await broker.aclose()


async def test_a_caller_that_gives_up_leaves_the_broker_usable(post: Post, distant: RabbitBroker, proxy: Proxy) -> None:
    message = post.message("k", "a")
    assert kinds(await distant.send([message])) == [Confirmed]
    proxy.stall()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await distant.send([message, post.message("k", "b")])
    proxy.resume()
    assert await confirmed(distant, message)


async def test_whoever_gives_up_early_leaves_no_channel_open(post: Post, broker: RabbitBroker) -> None:
    await post.send(post.message())
    line = broker._publishing

    async def give_up_early() -> int:
        before = len(line._connection._channels)
        for turns in range(12):
            opening = asyncio.ensure_future(Confirms.open(line))
            for _ in range(turns):
                await asyncio.sleep(0)
            opening.cancel()
            await asyncio.wait((opening,))
            if not opening.cancelled():
                opening.result().leave()
        return before

    before = await broker._thread.run(give_up_early)

    async def closed() -> bool:
        return len(line._connection._channels) == before

    assert await post.eventually(closed)


async def test_nobody_there_is_an_outage_with_a_cure(rabbitmq_url: str, proxy: Proxy) -> None:
    await proxy.aclose()
    broker = connected(through(rabbitmq_url, proxy.port))
    post = Post(broker)
    (outcome,) = await broker.send([post.message()])
    assert isinstance(outcome, Unavailable)
    assert f"amqp://127.0.0.1:{proxy.port}/" in outcome.reason
    assert "Is RabbitMQ running there?" in outcome.reason
    with pytest.raises(BrokerUnavailable, match="cannot be reached"):
        await broker.plan(post.topology)
    await broker.aclose()


async def test_a_wrong_password_is_told_without_it(rabbitmq_url: str) -> None:
    broker = connected(rabbitmq_url.replace(":guest@", ":wrong-word@"))
    with pytest.raises(BrokerUnavailable, match="refused user 'guest'") as caught:
        await broker.plan(Topology(("a.events",)))
    assert "wrong-word" not in str(caught.value)
    await broker.aclose()


async def test_an_unknown_virtual_host_is_told(rabbitmq_url: str) -> None:
    broker = connected(rabbitmq_url.replace("/test_", "/absent_"))
    with pytest.raises(BrokerUnavailable, match="virtual host"):
        await broker.plan(Topology(("a.events",)))
    await broker.aclose()


async def test_a_closed_broker_says_so(rabbitmq_url: str) -> None:
    broker = connected(rabbitmq_url)
    await broker.aclose()
    (outcome,) = await broker.send([Post(broker).message()])
    assert isinstance(outcome, Unavailable)
    assert "closed" in outcome.reason
    with pytest.raises(BrokerUnavailable):
        await broker.apply(Topology(("a.events",)))
    await broker.aclose()


async def test_a_run_that_takes_too_long_is_sent_as_far_as_it_goes(post: Post, rabbitmq_url: str) -> None:
    hasty = connected(rabbitmq_url, publish_timeout=0.4)
    outcomes = kinds(await hasty.send([post.message("k", f"{n}") for n in range(3_000)]))
    sent = outcomes.count(Confirmed)
    assert 0 < sent < 3_000
    assert outcomes == [Confirmed] * sent + [Unavailable] * (3_000 - sent)
    await hasty.aclose()
    # One may have been on its way, unanswered; none behind it was.
    assert (await post.broker.depth(post.subscription.name)).messages in (sent, sent + 1)


async def test_many_keys_go_side_by_side_and_each_in_order(post: Post) -> None:
    batch = [post.message(f"k{n % 50}", f"{n:04}") for n in range(1_000)]
    await post.send(*batch)
    receiver = await post.broker.subscribe(post.subscription.name, Flow())
    seen: dict[str, list[str]] = {}
    while sum(map(len, seen.values())) < len(batch):
        for delivery in await receiver.receive():
            seen.setdefault(delivery.key, []).append(delivery.data.decode())
            await delivery.ack()
    assert all(of_key == sorted(of_key) and len(of_key) == 20 for of_key in seen.values())
