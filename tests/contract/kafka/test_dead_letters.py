"""Dead letters: a compacted topic, where a tombstone says that a letter is dealt with."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Message as Record

from postroad.brokers.base import Flow, Subscription, Topology
from postroad.brokers.kafka.reader import Reader
from postroad.errors import BrokerUnavailable
from postroad.testing.post import Post
from tests.support.kafka import admin, connected, records


@pytest.mark.spec("P14")
async def test_others_read_where_a_letter_came_from_and_why_it_died(post: Post, kafka_url: str) -> None:
    receiver = await post.subscribe()
    await post.send(post.message("order-1", "a"))
    (delivery,) = await post.take(receiver, 1)
    await delivery.dead("cannot be read\n")
    (record,) = records(kafka_url, f"{post.topic}.dlq")
    headers = {name: value.decode() for name, value in record.headers() or []}
    origin = f"{delivery.arrival.partition.number}-0"  # type: ignore[attr-defined]
    assert record.key() == f"readers-{origin}".encode()
    assert record.value() == b"a"
    assert headers["postroad.subscription"] == post.subscription.name
    assert headers["postroad.reason"] == "cannot be read "
    assert headers["postroad.attempts"] == "1"
    assert headers["postroad.topic"] == post.topic
    assert f"{headers['postroad.partition']}-{headers['postroad.offset']}" == origin
    assert await post.has_depth(0)


async def test_a_revived_letter_comes_to_its_own_subscription_alone(post: Post) -> None:
    other = Subscription(f"{post.topic}.others", post.topic)
    await post.broker.apply(Topology((post.topic,), (post.subscription, other)))
    receiver, others = await post.subscribe(), await post.broker.subscribe(other.name, Flow())
    await post.send_texts("k", "ab")
    assert await post.take_texts(others, 2) == "ab"
    first, second = await post.take(receiver, 2)
    await first.dead("no")
    await second.ack()
    (letter,) = await post.broker.dead_letters(post.topic)
    assert await post.broker.revive(post.topic, [letter.id, "unknown"]) == 1
    (again,) = await post.take(receiver, 1)
    assert (again.data, dict(again.attributes)) == (b"a", dict(letter.attributes))
    assert await post.nothing_comes(others)
    await post.send_texts("k", "c")
    assert await post.take_texts(others, 1) == "c"
    assert (await post.broker.depth(other.name)).messages == 0
    await again.dead("still no")
    (letter,) = await post.broker.dead_letters(post.topic)
    assert letter.reason == "still no"


async def test_a_letter_that_was_buried_twice_is_one_letter(post: Post) -> None:
    """A worker that died between burying and settling leaves the message to another, who buries it again."""
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    (delivery,) = await post.take(receiver, 1)
    await post.broker._graveyard.bury(delivery, "no")  # type: ignore[attr-defined]
    await receiver.aclose()
    (again,) = await post.take(await post.subscribe(), 1)
    await again.dead("no")
    (letter,) = await post.broker.dead_letters(post.topic)
    assert await post.broker.discard(post.topic, [letter.id]) == 1
    assert await post.broker.dead_letters(post.topic) == []
    assert await post.broker.discard(post.topic, [letter.id]) == 0


@pytest.mark.spec("G8")
async def test_a_walk_reads_each_letter_twice_however_many_pages_it_has(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once to learn which are dealt with, once for its page; page by page from the beginning it would be many times."""
    receiver = await post.subscribe()
    await post.send(*(post.message(f"k-{number}", str(number)) for number in range(30)))
    for delivery in await post.take(receiver, 30):
        await delivery.dead("no")
    all_of, read = Reader.all_of, list[Record]()

    def counted(reader: Reader, topic: str, begin: int = 0) -> Iterator[Record]:
        for record in all_of(reader, topic, begin):
            read.append(record)
            yield record

    monkeypatch.setattr(Reader, "all_of", counted)
    seen, after = list[str](), ""
    while page := await post.broker.dead_letters(post.topic, limit=3, after=after):
        assert len(page) == 3
        after = page[-1].id
        seen += [letter.data.decode() for letter in page]
    assert sorted(map(int, seen)) == list(range(30))
    assert len(read) == 2 * 30


async def test_what_is_dealt_with_between_two_pages_neither_stops_a_walk_nor_shows_again(post: Post) -> None:
    receiver = await post.subscribe()
    await post.send(*(post.message(f"k-{number}", str(number)) for number in range(6)))
    for delivery in await post.take(receiver, 6):
        await delivery.dead("no")
    all_six = [letter.id for letter in await post.broker.dead_letters(post.topic)]
    page = await post.broker.dead_letters(post.topic, limit=2)
    assert await post.broker.discard(post.topic, [all_six[1], all_six[3]]) == 2
    rest = await post.broker.dead_letters(post.topic, limit=10, after=page[-1].id)
    assert [letter.id for letter in rest] == [all_six[2], *all_six[4:]]
    # Another process knows of no walk, and finds its way all the same.
    post.broker._graveyard._places.clear()  # type: ignore[attr-defined]
    assert await post.broker.dead_letters(post.topic, limit=10, after=page[-1].id) == rest
    assert await post.broker.dead_letters(post.topic, limit=0) == []


async def test_what_cannot_be_buried_is_not_settled(kafka_url: str) -> None:
    broker = connected(kafka_url, publish_timeout=3)
    post = Post(broker)
    await broker.apply(post.topology)
    receiver = await post.subscribe()
    await post.send_texts("k", "a")
    (delivery,) = await post.take(receiver, 1)
    grave = f"{post.topic}.dlq"
    admin(kafka_url).delete_topics([grave])[grave].result()
    with pytest.raises(BrokerUnavailable):
        await delivery.dead("no")
    assert (await post.broker.depth(post.subscription.name)).messages == 1
    assert await post.broker.dead_letters(post.topic) == []
    await post.broker.apply(post.topology)
    await delivery.dead("no")
    assert [letter.reason for letter in await post.broker.dead_letters(post.topic)] == ["no"]
    assert await post.has_depth(0)
    await broker.aclose()


async def test_a_page_goes_on_behind_a_letter_that_is_gone_by_now(post: Post) -> None:
    receiver = await post.subscribe()
    await post.send(*(post.message(key, key) for key in "abcd"))
    for delivery in await post.take(receiver, 4):
        await delivery.dead(delivery.data.decode())
    first, second, *rest = await post.broker.dead_letters(post.topic)
    await post.broker.discard(post.topic, [first.id, second.id])
    assert list(await post.broker.dead_letters(post.topic, after=second.id)) == rest
    assert list(await post.broker.dead_letters(post.topic, limit=0)) == []
