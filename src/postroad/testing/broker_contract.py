"""What every broker adapter must do. Subclass `BrokerContract` and give it a `broker` fixture:

    class TestMyBroker(BrokerContract):
        @pytest.fixture
        async def broker(self) -> AsyncIterator[Broker]:
            broker = connect("my://host", clock=SystemClock())
            yield broker
            await broker.aclose()

Needs pytest-asyncio in auto mode. Names are new in every test, so a shared server will do.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from postroad.brokers.base import (
    Broker,
    Confirmed,
    Flow,
    Receiver,
    Refused,
    Replaying,
    Subscription,
    Topology,
    Unavailable,
)
from postroad.errors import ConfigurationError, UnsupportedByBroker
from postroad.message import Message
from postroad.testing.post import Post


class BrokerContract:
    patience = 30.0
    """Seconds after which something that must happen counts as not happening."""
    silence = 0.15
    """Seconds without a delivery that count as proof that none comes."""

    @pytest.fixture
    async def post(self, broker: Broker) -> Post:
        post = Post(broker, patience=self.patience, silence=self.silence)
        await broker.apply(post.topology)
        return post

    # --- sending and receiving

    async def test_a_message_arrives_byte_for_byte(self, post: Post) -> None:
        sent = post.message(
            "schlüssel-☃",
            payload=bytes(range(256)),
            version=7,
            schema_version=3,
            tenant="mandant-é",
            headers={"note": "æøå \u2028 🚃 'quoted' \"twice\"", "empty": ""},
            correlation_id="c-1",
            content_type="application/octet-stream",
        )
        receiver = await post.subscribe()
        await post.send(sent)
        (delivery,) = await post.take(receiver, 1)
        assert Message.from_wire(delivery.topic, delivery.attributes, delivery.data) == sent
        assert delivery.attributes == sent.attributes()
        assert (delivery.key, delivery.attempt) == (sent.aggregate_id, 1)
        assert (delivery.topic, delivery.subscription) == (post.topic, post.subscription.name)

    async def test_an_empty_batch_has_no_outcomes(self, post: Post) -> None:
        assert list(await post.broker.send([])) == []

    async def test_what_is_acknowledged_does_not_come_again(self, post: Post) -> None:
        first = await post.subscribe()
        await post.send_texts("k", "a")
        assert await post.take_texts(first, 1) == "a"
        await first.aclose()
        assert await post.nothing_comes(await post.subscribe())

    async def test_what_was_sent_before_anybody_listened_arrives(self, post: Post) -> None:
        await post.send_texts("k", "ab")
        assert await post.take_texts(await post.subscribe(), 2) == "ab"

    async def test_a_key_keeps_its_order_within_and_across_batches(self, post: Post) -> None:
        receiver = await post.subscribe()
        for texts in ("abc", "d", "efghij"):
            await post.send_texts("k", texts)
        assert await post.take_texts(receiver, 10) == "abcdefghij"

    async def test_a_key_in_hand_does_not_stop_the_others(self, post: Post) -> None:
        receiver = await post.subscribe()
        await post.send_texts("held", "a")
        (held,) = await post.take(receiver, 1)
        await post.send_texts("other", "b")
        assert await post.take_texts(receiver, 1) == "b"
        await held.ack()
        assert await post.has_depth(0)

    async def test_a_cancelled_receive_loses_nothing(self, post: Post) -> None:
        receiver = await post.subscribe()
        waiting = asyncio.ensure_future(receiver.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait((waiting,))
        await post.send_texts("k", "a")
        assert await post.take_texts(receiver, 1) == "a"

    # --- refusing

    async def test_an_unknown_topic_is_refused(self, post: Post) -> None:
        unknown = f"contract.t{uuid4().hex[:12]}.events"
        (outcome,) = await post.broker.send([post.message(topic=unknown)])
        assert isinstance(outcome, Refused)
        assert outcome.reason

    async def test_an_oversize_message_is_refused_and_nothing_of_its_key_overtakes_it(self, post: Post) -> None:
        large = post.message("large", payload=bytes(post.broker.features.max_message_bytes + 1))
        receiver = await post.subscribe()
        batch = [post.message("large", "a"), large, post.message("large", "b"), post.message("other", "c")]
        before, refused, after, other = await post.broker.send(batch)
        assert isinstance(refused, Refused)
        assert (before, other) == (Confirmed(), Confirmed())
        expected = {"a", "c"}
        if post.broker.features.ordered_runs:
            assert isinstance(after, Unavailable)
        elif after == Confirmed():
            expected.add("b")
        assert set(await post.take_texts(receiver, len(expected))) == expected

    # --- verdicts

    async def test_a_retry_comes_again_after_its_time_with_the_next_attempt(self, post: Post) -> None:
        receiver = await post.subscribe()
        await post.send_texts("k", "a")
        (delivery,) = await post.take(receiver, 1)
        began = time.monotonic()
        await delivery.retry(0.1)
        (again,) = await post.take(receiver, 1)
        assert time.monotonic() - began >= 0.09
        assert again.data == b"a"
        assert again.attempt == (2 if post.broker.features.attempts else 1)
        await again.ack()
        assert await post.has_depth(0)

    async def test_a_retry_keeps_the_order_of_its_key(self, post: Post) -> None:
        receiver = await post.subscribe()
        await post.send_texts("k", "abc")
        taken = list(await receiver.receive())
        assert taken[0].data == b"a"
        await taken[0].retry(0.05)
        for delivery in taken[1:]:
            await delivery.retry(0)
        assert await post.take_texts(receiver, 3) == "abc"

    async def test_a_second_verdict_does_nothing(self, post: Post) -> None:
        receiver = await post.subscribe()
        await post.send_texts("k", "a")
        (delivery,) = await post.take(receiver, 1)
        await delivery.ack()
        await delivery.retry(0)
        await delivery.dead("too late")
        assert await post.nothing_comes(receiver)
        assert list(await post.broker.dead_letters(post.topic)) == []

    async def test_a_dead_letter_can_be_revived(self, post: Post) -> None:
        receiver = await post.subscribe()
        sent = post.message("k", "a")
        await post.send(sent)
        await (await post.take(receiver, 1))[0].dead("cannot be read")
        (letter,) = await post.broker.dead_letters(post.topic)
        assert (letter.topic, letter.subscription) == (post.topic, post.subscription.name)
        assert (letter.reason, letter.attempts, letter.data) == ("cannot be read", 1, b"a")
        assert letter.attributes == sent.attributes()
        assert await post.broker.revive(post.topic, [letter.id]) == 1
        (delivery,) = await post.take(receiver, 1)
        assert (delivery.data, delivery.attempt) == (b"a", 1)
        await delivery.ack()
        assert list(await post.broker.dead_letters(post.topic)) == []

    async def test_dead_letters_are_paged_and_discarded(self, post: Post) -> None:
        receiver = await post.subscribe()
        await post.send(*(post.message(key, key) for key in "abc"))
        for delivery in await post.take(receiver, 3):
            await delivery.dead(delivery.data.decode())
        page = await post.broker.dead_letters(post.topic, limit=2)
        rest = await post.broker.dead_letters(post.topic, limit=2, after=page[-1].id)
        assert sorted(letter.reason for letter in (*page, *rest)) == ["a", "b", "c"]
        assert await post.broker.discard(post.topic, [page[0].id, page[1].id]) == 2
        left = await post.broker.dead_letters(post.topic)
        assert [letter.reason for letter in left] == [rest[0].reason]
        assert await post.nothing_comes(receiver)

    # --- several at once

    async def test_subscriptions_are_independent(self, post: Post) -> None:
        other = Subscription(f"{post.topic}.others", post.topic)
        await post.broker.apply(Topology((post.topic,), (post.subscription, other)))
        readers, others = await post.subscribe(), await post.broker.subscribe(other.name, Flow())
        await post.send_texts("k", "ab")
        assert await post.take_texts(readers, 2) == "ab"
        assert await post.take_texts(others, 2) == "ab"

    async def test_two_receivers_never_both_get_a_message(self, post: Post) -> None:
        receivers = [await post.subscribe(Flow(messages=5)) for _ in range(2)]
        count = 60
        received: list[str] = []
        done = asyncio.Event()

        async def consume(receiver: Receiver) -> None:
            while True:
                for delivery in await receiver.receive():
                    received.append(delivery.data.decode())
                    await delivery.ack()
                if len(received) >= count:
                    done.set()

        consumers = [asyncio.ensure_future(consume(receiver)) for receiver in receivers]
        await post.send(*(post.message(f"k{n % 20}", str(n)) for n in range(count)))
        async with asyncio.timeout(self.patience):
            await done.wait()
        for consumer in consumers:
            consumer.cancel()
        await asyncio.wait(consumers)
        assert sorted(received, key=int) == [str(n) for n in range(count)]
        for key in range(20):
            of_key = [int(text) for text in received if int(text) % 20 == key]
            assert of_key == sorted(of_key)

    async def test_what_a_closed_receiver_held_goes_to_another(self, post: Post) -> None:
        first = await post.subscribe()
        await post.send_texts("k", "ab")
        async with asyncio.timeout(self.patience):
            held = await first.receive()
        await first.aclose()
        second = await post.subscribe()
        assert await post.take_texts(second, 2) == "ab"
        for delivery in held:
            await delivery.retry(0)
        assert await post.nothing_comes(second)

    async def test_the_flow_limits_what_is_in_hand(self, post: Post) -> None:
        receiver = await post.subscribe(Flow(messages=3))
        await post.send(*(post.message(f"k{n}") for n in range(5)))
        held = await post.take(receiver, 3)
        assert await post.nothing_comes(receiver)
        await held[0].ack()
        assert len(await post.take(receiver, 1)) == 1

    async def test_the_flow_limits_bytes_in_hand(self, post: Post) -> None:
        receiver = await post.subscribe(Flow(bytes=10_000))
        await post.send(*(post.message(f"k{n}", payload=bytes(6_000)) for n in range(2)))
        (held,) = await post.take(receiver, 1)
        assert await post.nothing_comes(receiver)
        await held.ack()
        assert len(await post.take(receiver, 1)) == 1

    # --- looking after it

    async def test_applying_twice_changes_nothing(self, broker: Broker) -> None:
        post = Post(broker, patience=self.patience, silence=self.silence)
        planned = await broker.plan(post.topology)
        assert {(change.action, change.kind, change.name) for change in planned} >= {
            ("create", "topic", post.topic),
            ("create", "subscription", post.subscription.name),
        }
        assert list(await broker.apply(post.topology)) == list(planned)
        assert list(await broker.plan(post.topology)) == []
        assert list(await broker.apply(post.topology)) == []
        found = {s.name: s.topic for s in await broker.subscriptions()}
        assert found[post.subscription.name] == post.topic

    async def test_depth_counts_what_is_not_settled(self, post: Post) -> None:
        assert await post.has_depth(0)
        await post.send(*(post.message(f"k{n}") for n in range(3)))
        assert await post.has_depth(3)
        receiver = await post.subscribe()
        held = await post.take(receiver, 3)
        assert await post.has_depth(3)
        for delivery in held:
            await delivery.ack()
        assert await post.has_depth(0)
        assert (await post.broker.depth(post.subscription.name)).oldest is None

    # --- what not every broker can do

    async def test_a_delayed_message_waits_and_nothing_waits_behind_it(self, post: Post) -> None:
        if not post.broker.features.delay:
            pytest.skip("declares no delay: the relay keeps the message until it is due")
        receiver = await post.subscribe()
        for delay in (0.15, 1.5, 15.0):
            due = datetime.now(UTC) + timedelta(seconds=delay)
            await post.send(post.message("k", "later", deliver_at=due), post.message("k", "x"))
            async with asyncio.timeout(self.patience):
                taken = list(await receiver.receive())
            if datetime.now(UTC) < due:
                break
            # Too slow to tell the one from the other: once more, with more time.
            for delivery in (*taken, *await post.take(receiver, 2 - len(taken))):
                await delivery.ack()
        assert [delivery.data for delivery in taken] == [b"x"]
        await taken[0].ack()
        (delivery,) = await post.take(receiver, 1)
        assert delivery.data == b"later"
        assert datetime.now(UTC) >= due

    async def test_seeking_a_time_brings_back_what_was_settled_since(self, post: Post) -> None:
        receiver = await post.subscribe()
        start = datetime.now(UTC) - timedelta(seconds=60)
        if not post.broker.features.seek:
            await self._refuses_to_seek(post, start)
            return
        await post.send_texts("k", "abc")
        assert await post.take_texts(receiver, 3) == "abc"
        assert await post.broker.seek(post.subscription.name, start) == 3
        assert await post.take_texts(receiver, 3) == "abc"
        assert await post.broker.seek(post.subscription.name, datetime.now(UTC)) == 0

    async def test_only_a_time_with_its_zone_can_be_sought(self, post: Post) -> None:
        if not post.broker.features.seek:
            return
        for wrong, told in ((datetime(2026, 1, 1), "a time needs a time zone"), (7, "give a datetime")):
            with pytest.raises(ConfigurationError, match=told):
                await post.broker.seek(post.subscription.name, wrong)  # type: ignore[arg-type]

    async def test_seeking_a_snapshot_brings_back_what_was_not_settled_then(self, post: Post) -> None:
        receiver = await post.subscribe()
        if not post.broker.features.seek:
            await self._refuses_to_seek(post, "before")
            return
        await post.send_texts("k", "a")
        assert await post.take_texts(receiver, 1) == "a"
        await post.send_texts("k", "b")
        await post.broker.snapshot(post.subscription.name, "before")
        await post.send_texts("k", "c")
        assert await post.take_texts(receiver, 2) == "bc"
        assert await post.broker.seek(post.subscription.name, "before") == 2
        assert await post.take_texts(receiver, 2) == "bc"

    async def test_a_subscription_that_was_dropped_keeps_nothing_and_the_others_are_not_touched(
        self, post: Post
    ) -> None:
        if not isinstance(post.broker, Replaying):
            pytest.skip("has no replay: nothing makes subscriptions that go away again")
        passing = Subscription(f"{post.topic}.passing", post.topic)
        await post.broker.apply(Topology((), (passing,)))
        await post.send_texts("k", "ab")
        await post.broker.drop(passing.name)
        assert passing.name not in {one.name for one in await post.broker.subscriptions()}
        receiver = await post.subscribe()
        assert await post.take_texts(receiver, 2) == "ab"
        other = Subscription(f"{post.topic}.other", post.topic)
        await post.broker.apply(Topology((), (passing, other)))
        # As one that never was there before; to such a one some brokers give what the topic keeps.
        assert await post.broker.depth(passing.name) == await post.broker.depth(other.name)

    async def _refuses_to_seek(self, post: Post, to: datetime | str) -> None:
        with pytest.raises(UnsupportedByBroker):
            await post.broker.seek(post.subscription.name, to)
        with pytest.raises(UnsupportedByBroker):
            await post.broker.snapshot(post.subscription.name, "before")
