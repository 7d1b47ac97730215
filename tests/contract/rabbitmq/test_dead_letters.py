"""Dead letters on a real RabbitMQ: the adapter's own, and those the server made."""

import asyncio
from typing import Any

import pytest

from postroad.brokers.base import DeadLetter
from postroad.brokers.rabbitmq import dead
from postroad.brokers.rabbitmq import receiver as receiving
from postroad.brokers.rabbitmq.broker import RabbitBroker
from postroad.errors import BrokerUnavailable
from postroad.testing.post import Post
from proof.chaos.proxy import Proxy
from tests.support.rabbitmq import connected


async def test_what_the_server_drops_is_a_dead_letter_too(post: Post, channel: Any) -> None:
    sent = post.message("k", "a")
    await post.send(sent)
    method, _, _ = channel.basic_get(post.subscription.name)
    channel.basic_reject(method.delivery_tag, requeue=False)

    async def there() -> bool:
        return bool(await post.broker.dead_letters(post.topic))

    assert await post.eventually(there)
    (letter,) = await post.broker.dead_letters(post.topic)
    assert (letter.subscription, letter.reason) == (post.subscription.name, "dropped by RabbitMQ: rejected")
    assert (letter.attributes, letter.data) == (sent.attributes(), b"a")
    assert await post.broker.revive(post.topic, [letter.id]) == 1
    receiver = await post.subscribe()
    (delivery,) = await post.take(receiver, 1)
    assert delivery.attributes == sent.attributes()


async def test_a_letter_whose_subscription_is_gone_stays_with_the_dead(post: Post, channel: Any) -> None:
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    await (await post.take(receiver, 1))[0].dead("reason")
    await receiver.aclose()
    channel.queue_delete(post.subscription.name)
    (letter,) = await post.broker.dead_letters(post.topic)
    assert await post.broker.revive(post.topic, [letter.id, "unknown"]) == 0
    assert [one.id for one in await post.broker.dead_letters(post.topic)] == [letter.id]
    assert await post.broker.discard(post.topic, [letter.id]) == 1
    assert list(await post.broker.dead_letters(post.topic)) == []


async def test_nothing_is_lost_while_the_queue_of_dead_letters_is_missing(
    post: Post, channel: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "_ANOTHER_TRY", 0.1)
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    (delivery,) = await post.take(receiver, 1)
    channel.queue_delete(f"{post.topic}.dlq")
    await delivery.dead("reason")
    assert "Run: postroad topology apply" in caplog.text
    assert await post.has_depth(1)
    assert await post.nothing_comes(receiver)
    await post.broker.apply(post.topology)
    assert await post.has_depth(0)
    (letter,) = await post.broker.dead_letters(post.topic)
    assert letter.reason == "reason"


async def test_a_burial_that_was_not_answered_and_is_repeated_shows_one_letter(
    post: Post, broker: RabbitBroker, channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "_ANOTHER_TRY", 0.1)
    place, answers = broker._publisher.place, iter([BrokerUnavailable("no answer")])

    async def place_unheard(letter: Any) -> None:
        await place(letter)
        if unheard := next(answers, None):
            raise unheard

    monkeypatch.setattr(broker._publisher, "place", place_unheard)
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    await (await post.take(receiver, 1))[0].dead("reason")
    assert await post.eventually(lambda: dead_count_is(post, channel, 2))
    (letter,) = await broker.dead_letters(post.topic)
    assert letter.data == b"a"


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
async def test_looking_changes_neither_order_nor_number(queue_type: str, rabbitmq_url: str) -> None:
    broker = connected(rabbitmq_url, queue_type=queue_type)
    post = Post(broker)
    await broker.apply(post.topology)
    receiver = await post.subscribe()
    await post.send_texts("k", "abcdefgh")
    for delivery in await post.take(receiver, 8):
        await delivery.dead(delivery.data.decode())
    for limit in (3, 8, 100, 1):
        letters = await post.broker.dead_letters(post.topic, limit=limit)
        assert "".join(letter.reason for letter in letters) == "abcdefgh"[:limit]
    all_ids = [letter.id for letter in await post.broker.dead_letters(post.topic)]
    assert await post.broker.revive(post.topic, [all_ids[1], all_ids[5]]) == 2
    assert "".join(letter.reason for letter in await post.broker.dead_letters(post.topic)) == "acdegh"
    assert await post.take_texts(receiver, 2) == "bf"
    await broker.aclose()


async def test_an_unknown_topic_has_no_dead_letters(post: Post) -> None:
    assert list(await post.broker.dead_letters("nobody.knows.events")) == []
    assert await post.broker.discard("nobody.knows.events", ["x"]) == 0


async def test_a_long_and_broken_reason_is_kept_as_far_as_it_can_be(post: Post) -> None:
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    await (await post.take(receiver, 1))[0].dead("\ud800 line\nbreak " + "x" * 200_000)
    (letter,) = await post.broker.dead_letters(post.topic)
    assert letter.reason.startswith("? line break xxx")
    assert letter.reason.endswith("…")


async def test_no_more_are_fetched_than_are_looked_at(post: Post, channel: Any) -> None:
    for n in range(20):
        channel.basic_publish("", f"{post.topic}.dlq", b"%d" % n)
    assert await post.eventually(lambda: dead_count_is(post, channel, 20))
    assert [letter.data for letter in await post.broker.dead_letters(post.topic, limit=3)] == [b"0", b"1", b"2"]
    found = [channel.basic_get(f"{post.topic}.dlq") for _ in range(20)]
    assert [method.redelivered for method, _, _ in found] == [True] * 3 + [False] * 17


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
async def test_what_is_far_behind_is_found(
    queue_type: str, rabbitmq_url: str, channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead, "_FEW", 2)
    if queue_type == "classic":
        monkeypatch.setattr(dead, "MOST_PREFETCHED", 30)
    broker = connected(rabbitmq_url, queue_type=queue_type)
    post = Post(broker)
    await broker.apply(post.topology)
    for n in range(40):
        channel.basic_publish("", f"{post.topic}.dlq", b"%d" % n)
    assert await post.eventually(lambda: dead_count_is(post, channel, 40))
    letters = await broker.dead_letters(post.topic)
    assert [letter.data for letter in letters] == [b"%d" % n for n in range(40)]
    following = await broker.dead_letters(post.topic, limit=3, after=letters[33].id)
    assert [letter.data for letter in following] == [b"34", b"35", b"36"]
    assert await broker.discard(post.topic, [letters[n].id for n in (0, 1, 5, 20, 39)]) == 5
    left = [b"%d" % n for n in range(40) if n not in (0, 1, 5, 20, 39)]
    assert [letter.data for letter in await broker.dead_letters(post.topic)] == left
    await broker.aclose()


async def dead_count_is(post: Post, channel: Any, expected: int) -> bool:
    return bool(channel.queue_declare(f"{post.topic}.dlq", passive=True).method.message_count == expected)


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
async def test_two_who_look_at_once_both_see_everything(queue_type: str, rabbitmq_url: str) -> None:
    brokers = [connected(rabbitmq_url, queue_type=queue_type) for _ in range(2)]
    post = Post(brokers[0])
    await brokers[0].apply(post.topology)
    receiver = await post.subscribe()
    await post.send_texts("k", "abc")
    for delivery in await post.take(receiver, 3):
        await delivery.dead("reason")

    async def look(broker: RabbitBroker, times: int) -> list[str]:
        return ["".join(one.data.decode() for one in await broker.dead_letters(post.topic)) for _ in range(times)]

    await look(brokers[1], 1)  # so that it is connected
    looking = asyncio.ensure_future(look(brokers[0], 10))
    seen = await look(brokers[1], 10)
    assert set(seen + await looking) == {"abc"}
    for broker in brokers:
        await broker.aclose()


async def test_a_connection_that_breaks_during_a_look_is_told(
    post: Post, distant: RabbitBroker, proxy: Proxy, channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(await distant.dead_letters(post.topic)) == []  # so that it is connected
    for number in range(8):
        # Together more than is on the way at once.
        channel.basic_publish("", f"{post.topic}.dlq", bytes([number]) * 4_000_000)
    assert await post.eventually(lambda: dead_count_is(post, channel, 8))
    loop, look = asyncio.get_running_loop(), distant._graveyard._letter

    async def cut() -> None:
        proxy.cut_all()

    def look_and_cut(*arguments: Any) -> DeadLetter:
        asyncio.run_coroutine_threadsafe(cut(), loop).result(5.0)
        return look(*arguments)

    with monkeypatch.context() as broken:
        broken.setattr(distant._graveyard, "_letter", look_and_cut)
        with pytest.raises(BrokerUnavailable):
            await distant.dead_letters(post.topic)
    assert len(await post.broker.dead_letters(post.topic)) == 8
