"""Deliveries in, verdicts out, on every store: once in effect, in order, nothing acknowledged too soon."""

import asyncio
import random
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from postroad.errors import BrokerError
from postroad.inbox import Inbox, Status
from postroad.retry import Backoff, Retry
from postroad.stores import open_store
from tests.support.consuming import (
    GROUP,
    NotedDelivery,
    OrderCancelled,
    OrderPlaced,
    bench,
    deliver,
    effect,
    handlers,
    placed,
    subscriber,
)


@pytest.mark.spec("P10", "R9")
async def test_a_duplicate_is_acknowledged_and_not_handled_again(database_url: str) -> None:
    async with bench(database_url) as b:
        at_work, message = subscriber(b, handlers()), placed()
        assert await deliver(at_work, [message]) == [("ack", 1)]
        assert await deliver(at_work, [message, message]) == [("ack", 1), ("ack", 1)]
        assert await b.effects() == ["1/1"]
        assert (at_work.statistics.handled, at_work.statistics.duplicates) == (1, 2)


@pytest.mark.spec("F7")
async def test_an_event_is_acknowledged_only_after_its_commit(database_url: str) -> None:
    async with bench(database_url) as b:
        seen: list[Any] = []
        elsewhere = Inbox(open_store(database_url))

        class Looking(NotedDelivery):
            async def ack(self) -> None:
                seen.append(await elsewhere.find(GROUP, message.id))
                seen.append(await b.effects())

        message = placed()
        await subscriber(b, handlers()).handle([Looking(message)])
        assert seen[0].status is Status.SUCCEEDED
        assert seen[1] == ["1/1"]
        await elsewhere.store.aclose()


@pytest.mark.spec("P10", "F15")
async def test_a_crash_between_commit_and_acknowledgement_costs_a_duplicate_only(
    database_url: str,
) -> None:
    async with bench(database_url) as b:

        class Lost(NotedDelivery):
            async def ack(self) -> None:
                raise BrokerError("the receiver is closed")

        message = placed()
        await subscriber(b, handlers()).handle([Lost(message)])
        after_the_crash = subscriber(b, handlers())
        assert await deliver(after_the_crash, [message]) == [("ack", 1)]
        assert await b.effects() == ["1/1"]
        assert after_the_crash.statistics.duplicates == 1


@pytest.mark.spec("T6", "P10")
async def test_two_workers_with_the_same_delivery_have_one_effect(database_url: str) -> None:
    async with bench(database_url) as b, bench(database_url) as other:
        message = placed()
        verdicts = await asyncio.gather(
            deliver(subscriber(b, handlers()), [message]), deliver(subscriber(other, handlers()), [message])
        )
        assert verdicts == [[("ack", 1)], [("ack", 1)]]
        assert await b.effects() == ["1/1"]


async def test_what_is_in_progress_elsewhere_is_given_back_and_never_acknowledged(database_url: str) -> None:
    async with bench(database_url) as b:
        message = placed()
        held = await b.inbox.try_acquire(GROUP, message, 30)
        at_work = subscriber(b, handlers())
        [(verdict, after, _)] = await deliver(at_work, [message])
        assert verdict == "retry"
        assert 0 < after <= 1
        await b.inbox.mark_failed(GROUP, message, RuntimeError(), Retry(0.0), lease=held.lease)
        assert await deliver(at_work, [message]) == [("ack", 1)]
        assert await b.effects() == ["1/1"]


async def test_the_same_id_with_another_type_goes_to_the_dead_letters(database_url: str) -> None:
    async with bench(database_url) as b:
        registry = handlers()
        registry.add(GROUP, OrderCancelled, lambda event: None)
        message = placed()
        other = placed(id=message.id, type="order.cancelled")
        verdicts = await deliver(subscriber(b, registry), [message, other])
        assert [verdict[0] for verdict in verdicts] == ["ack", "dead"]
        assert "order.cancelled" in verdicts[1][1]


@pytest.mark.spec("P6")
@pytest.mark.parametrize("store_kind", ["postgresql", "mariadb"], indirect=True)
async def test_a_slow_key_holds_up_no_other(database_url: str) -> None:
    async with bench(database_url) as b:
        others_done, order = asyncio.Event(), []

        async def handle(event: OrderPlaced, session: AsyncSession) -> None:
            if event.order_id == "slow" and event.n == 1:
                await others_done.wait()
            order.append((event.order_id, event.n))
            if order.count(("quick", 5)):
                others_done.set()

        messages = [placed(n, key) for n in range(1, 6) for key in ("slow", "quick")]
        at_work = subscriber(b, handlers(handle), concurrency=2)
        await asyncio.wait_for(deliver(at_work, messages), 30)
        assert order == [("quick", n) for n in range(1, 6)] + [("slow", n) for n in range(1, 6)]


@pytest.mark.spec("P6", "F15")
async def test_order_holds_within_every_key_under_random_failures(database_url: str) -> None:
    async with bench(database_url) as b:
        dice, handled = random.Random(7), []

        async def handle(event: OrderPlaced, session: AsyncSession) -> None:
            await effect(session, f"{event.order_id}/{event.n}")
            if dice.random() < 0.3:
                raise RuntimeError("not now")
            handled.append((event.order_id, event.n))

        at_work = subscriber(b, handlers(handle), backoff=Backoff(attempts=100, base=0.0))
        waiting = [placed(n, key) for n in range(1, 9) for key in "abcd"]
        for _ in range(200):
            deliveries = [NotedDelivery(message) for message in waiting]
            await at_work.handle(deliveries)
            waiting = [d.message for d in deliveries if d.message and d.verdicts[0][0] == "retry"]
            if not waiting:
                break
        assert waiting == []
        for key in "abcd":
            assert [n for known, n in handled if known == key] == list(range(1, 9))
        assert sorted(await b.effects()) == sorted(f"{key}/{n}" for key in "abcd" for n in range(1, 9))
