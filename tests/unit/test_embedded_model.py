"""Random runs of the embedded broker; after every step, what must be true of keys and holders is checked."""

import asyncio
import sqlite3
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from random import Random

import pytest

from postroad.brokers.base import Flow
from postroad.brokers.embedded import EmbeddedBroker, connect
from postroad.brokers.embedded.receiver import EmbeddedDelivery, EmbeddedReceiver
from postroad.testing import VirtualClock
from postroad.testing.post import Post

SHARED_KEY = """
    SELECT key FROM delivery WHERE holder IS NOT NULL AND key <> ''
    GROUP BY subscription, key HAVING count(DISTINCT holder) > 1
"""
WRONGLY_READY = """
    SELECT d.message, d.key, d.ready_at FROM delivery d
    WHERE d.ready_at IS NOT (
        CASE WHEN d.holder IS NULL AND (d.key = '' OR d.message = (
            SELECT min(e.message) FROM delivery e WHERE e.subscription = d.subscription AND e.key = d.key))
        THEN d.due END)
"""


@dataclass
class Run:
    post: Post
    clock: VirtualClock
    random: Random
    began: datetime
    receivers: list[EmbeddedReceiver] = field(default_factory=list)
    hands: dict[EmbeddedReceiver, list[EmbeddedDelivery]] = field(default_factory=lambda: defaultdict(list))
    sent: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    settled: set[int] = field(default_factory=set)
    delivered: set[int] = field(default_factory=set)

    @property
    def broker(self) -> EmbeddedBroker:
        assert isinstance(self.post.broker, EmbeddedBroker)
        return self.post.broker

    async def step(self) -> None:
        steps = (self.send, self.send, self.receive, self.receive, self.receive, self.verdicts, self.verdicts)
        rare = (self.pass_time, self.join, self.leave, self.die, self.revive, self.revive, self.seek)
        await self.random.choice(rare if self.random.random() < 0.15 else steps)()
        await self.broker._database.read(check_invariants)

    async def send(self) -> None:
        batch = []
        for _ in range(self.random.randint(1, 6)):
            number = sum(len(numbers) for numbers in self.sent.values()) + 1
            key = self.random.choice("abc")
            self.sent[key].append(number)
            batch.append(self.post.message(key, str(number)))
        await self.post.send(*batch)

    async def join(self) -> None:
        if len(self.receivers) < 4:
            flow = Flow(messages=self.random.randint(1, 5))
            self.receivers.append(await self.broker.subscribe(self.post.subscription.name, flow))

    async def receive(self) -> None:
        if not self.receivers:
            return
        receiver = self.random.choice(self.receivers)
        receiving = asyncio.ensure_future(receiver.receive())
        for _ in range(30):
            await asyncio.sleep(0)
        receiving.cancel()
        await asyncio.wait((receiving,))
        if not receiving.cancelled():
            for delivery in receiving.result():
                self.note(receiver, delivery)

    def note(self, receiver: EmbeddedReceiver, delivery: EmbeddedDelivery) -> None:
        """Everything before it in its key is settled, or in the same hands."""
        number = int(delivery.data)
        assert number not in self.settled
        mine = {int(held.data) for held in self.hands[receiver]}
        earlier = {n for n in self.sent[delivery.key] if n < number} - self.settled
        assert earlier <= mine, "overtaken"
        self.hands[receiver].append(delivery)
        self.delivered.add(number)

    async def verdicts(self) -> None:
        for receiver in self.receivers:
            hand = self.hands[receiver]
            for delivery in hand[: self.random.randint(0, len(hand))]:
                await self.verdict(delivery)
                hand.remove(delivery)

    async def verdict(self, delivery: EmbeddedDelivery) -> None:
        match self.random.randrange(6):
            case 0:
                await delivery.retry(self.random.choice((0, 0, 5)))
            case 1:
                await delivery.dead("unreadable")
                self.settled.add(int(delivery.data))
            case _:
                await delivery.ack()
                self.settled.add(int(delivery.data))

    async def pass_time(self) -> None:
        await self.clock.advance(self.random.choice((1, 30, 90)))

    async def leave(self) -> None:
        if self.receivers:
            receiver = self.receivers.pop(self.random.randrange(len(self.receivers)))
            await receiver.aclose()
            self.hands.pop(receiver, None)

    async def die(self) -> None:
        if self.receivers:
            receiver = self.receivers.pop(self.random.randrange(len(self.receivers)))
            receiver.abandon()
            self.hands.pop(receiver, None)

    async def seek(self) -> None:
        """Everything that is settled comes again, dead or not."""
        await self.broker.seek(self.post.subscription.name, self.began)
        self.settled.clear()

    async def revive(self) -> None:
        letters = await self.broker.dead_letters(self.post.topic)
        if letters:
            letter = self.random.choice(letters)
            assert await self.broker.revive(self.post.topic, [letter.id]) == 1
            self.settled.discard(int(letter.data))

    async def drain(self) -> None:
        while self.receivers:
            await self.leave()
        await self.clock.advance(120)
        receiver = await self.broker.subscribe(self.post.subscription.name, Flow())
        unsettled = {n for numbers in self.sent.values() for n in numbers} - self.settled
        while unsettled:
            for delivery in await self.post.take(receiver, 1) if len(unsettled) == 1 else await receiver.receive():
                self.note(receiver, delivery)
                await delivery.ack()
                self.hands[receiver].remove(delivery)
                self.settled.add(int(delivery.data))
                unsettled.discard(int(delivery.data))
        assert (await self.broker.depth(self.post.subscription.name)).messages == 0


def check_invariants(connection: sqlite3.Connection, now: int) -> None:
    assert connection.execute(SHARED_KEY).fetchall() == []
    assert connection.execute(WRONGLY_READY).fetchall() == []


@pytest.mark.parametrize("seed", range(40))
async def test_nothing_is_lost_shared_or_overtaken(seed: int) -> None:
    clock = VirtualClock()
    broker = connect("embedded:", clock=clock)
    post = Post(broker)
    await broker.apply(post.topology)
    run = Run(post, clock, Random(seed), clock.now())
    await run.join()
    for _ in range(150):
        await run.step()
    await run.drain()
    assert len(run.delivered) == sum(len(numbers) for numbers in run.sent.values())
    await broker.aclose()
