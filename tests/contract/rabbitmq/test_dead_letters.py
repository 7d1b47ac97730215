"""Dead letters on a real RabbitMQ: the adapter's own, and those the server made."""

from typing import Any

import pytest

from postroad.brokers.rabbitmq import receiver as receiving
from postroad.testing.post import Post
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
    assert "Run apply" in caplog.text
    assert await post.has_depth(1)
    assert await post.nothing_comes(receiver)
    await post.broker.apply(post.topology)
    assert await post.has_depth(0)
    (letter,) = await post.broker.dead_letters(post.topic)
    assert letter.reason == "reason"


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
