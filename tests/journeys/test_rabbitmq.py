"""From the business transaction to the handler's effect by way of a real RabbitMQ, on each database."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from postroad import Postroad, event
from postroad.drain import unsent
from postroad.errors import PoisonError, StoreUnavailable
from postroad.message import Message
from postroad.retry import Backoff
from postroad.subscriber import SubscriberOptions
from proof.chaos.proxy import Proxy
from tests.support.rabbitmq import through, with_options

TOPIC = f"journey.r{uuid4().hex[:8]}.events"
OUTAGE = float(os.environ.get("POSTROAD_OUTAGE_SECONDS", "2"))
"""Long enough for all pauses between tries to have become the longest there are: a minute shows no more."""


@event("parcel.moved", topic=TOPIC, aggregate="parcel", key="parcel")
class ParcelMoved(msgspec.Struct, frozen=True):
    parcel: str
    step: int


@pytest.fixture
async def road(database_url: str, rabbitmq_url: str, tmp_path: Path) -> AsyncIterator[Postroad]:
    layout = tmp_path / "quick.toml"
    layout.write_text("delays = [0.05, 0.2]\n")
    options = SubscriberOptions(backoff=Backoff(attempts=3, base=0.05))
    url = f"{rabbitmq_url}&layout={layout}"
    async with Postroad("parcels", database_url, url, subscriber=options) as road:
        await road.migrate()
        async with road.session() as session, session.begin():
            await session.execute(text("CREATE TABLE trail (parcel VARCHAR(20), step INT)"))
        yield road


async def note(session: AsyncSession, moved: ParcelMoved) -> None:
    await session.execute(text("INSERT INTO trail VALUES (:parcel, :step)"), msgspec.to_builtins(moved))


async def trail(road: Postroad) -> dict[str, list[int]]:
    async with road.session() as session:
        rows = (await session.execute(text("SELECT parcel, step FROM trail"))).all()
    found: dict[str, list[int]] = {}
    for parcel, step in rows:
        found.setdefault(parcel, []).append(step)
    return found


async def move(road: Postroad, parcels: str, steps: int, *, first: int = 0) -> None:
    for step in range(first, first + steps):
        async with road.session() as session, session.begin():
            for parcel in parcels:
                road.add(session, ParcelMoved(parcel, step))


@pytest.mark.spec("P6", "R9")
async def test_every_effect_happens_once_and_in_order_although_handlers_fail(road: Postroad) -> None:
    group = f"g{uuid4().hex[:8]}"
    seen: dict[str, list[int]] = {}
    failed: set[ParcelMoved] = set()

    @road.on(ParcelMoved, group=group)
    async def record(moved: ParcelMoved, session: AsyncSession) -> None:
        if moved.step % 2 and moved not in failed:
            failed.add(moved)
            raise ConnectionError("the depot does not answer")
        await note(session, moved)
        seen.setdefault(moved.parcel, []).append(moved.step)

    async with road.running():
        await move(road, "abcd", 5)
        await road.drain(60)
    assert await trail(road) == {parcel: list(range(5)) for parcel in "abcd"}
    assert seen == {parcel: list(range(5)) for parcel in "abcd"}


@pytest.mark.spec("R9")
async def test_the_recoverable_is_retried_to_its_limit_and_poison_dies_at_once(road: Postroad) -> None:
    group = f"g{uuid4().hex[:8]}"
    tried: dict[str, int] = {}

    @road.on(ParcelMoved, group=group)
    async def record(moved: ParcelMoved, session: AsyncSession) -> None:
        tried[moved.parcel] = tried.get(moved.parcel, 0) + 1
        if moved.parcel == "p":
            raise PoisonError("no such parcel")
        if moved.parcel == "f":
            raise ConnectionError("never answers")
        await note(session, moved)

    async with road.running():
        await move(road, "apf", 1)
        await road.drain(60)
        letters = {
            letter.attributes["aggregate_id"]: letter
            for letter in await road.broker.dead_letters(TOPIC)
            if letter.subscription == f"{TOPIC}.{group}"
        }
    assert tried == {"a": 1, "p": 1, "f": 3}
    assert letters["p"].reason == "PoisonError: no such parcel"
    assert letters["f"].reason.startswith("exceeded maxRetry (3 attempts)")
    assert await trail(road) == {"a": [0]}


@pytest.mark.spec("R9")
async def test_a_message_that_comes_twice_has_one_effect(road: Postroad) -> None:
    group = f"g{uuid4().hex[:8]}"

    @road.on(ParcelMoved, group=group)
    async def record(moved: ParcelMoved, session: AsyncSession, message: Message) -> None:
        await note(session, moved)
        sent.append(message)

    sent: list[Message] = []
    async with road.running():
        await move(road, "a", 1)
        await road.drain(60)
        await road.broker.send(sent * 3)
        await road.drain(60)
    assert len(sent) == 1
    assert await trail(road) == {"a": [0]}


async def test_a_delayed_event_comes_when_it_is_due(road: Postroad) -> None:
    group = f"g{uuid4().hex[:8]}"
    arrived: asyncio.Queue[Any] = asyncio.Queue()

    @road.on(ParcelMoved, group=group)
    async def record(moved: ParcelMoved, message: Message) -> None:
        await arrived.put((moved.step, road.clock.now(), message.deliver_at))

    async with road.running():
        async with road.session() as session, session.begin():
            road.add(session, ParcelMoved("a", 1), delay=0.5)
            road.add(session, ParcelMoved("a", 2))
        async with asyncio.timeout(60):
            first, second = await arrived.get(), await arrived.get()
    assert (first[0], second[0]) == (2, 1)
    assert second[1] >= second[2]


@pytest.mark.spec("P6")
async def test_a_worker_that_leaves_during_a_retry_takes_no_order_with_it(road: Postroad) -> None:
    """The next one finds later events in the queue, and the failed one only when its time has come."""
    group = f"g{uuid4().hex[:8]}"
    failed = asyncio.Event()

    @road.on(ParcelMoved, group=group)
    async def record(moved: ParcelMoved, session: AsyncSession) -> None:
        if not failed.is_set():
            failed.set()
            raise ConnectionError("the depot does not answer")
        await note(session, moved)

    patient = SubscriberOptions(backoff=Backoff(attempts=3, base=1.0))
    road.subscriber_options = patient
    async with road.running():
        await move(road, "a", 1)
        async with asyncio.timeout(60):
            await failed.wait()
        await move(road, "ab", 3)
        await until_sent(road)
    await road.aclose()
    async with road.running():
        await road.drain(60)
    assert await trail(road) == {"a": [0, 0, 1, 2], "b": [0, 1, 2]}


@pytest.mark.spec("P6")
async def test_a_worker_that_leaves_while_its_database_is_away_takes_no_order_with_it(
    sqlite_url: str, rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing could be recorded, so the next one knows of the waiting events only if they are still in their places."""
    begun: dict[str, list[int]] = {}
    parcels, steps, prefetch = "abcd", 3, 4
    async with Postroad("parcels", sqlite_url, with_options(rabbitmq_url, prefetch=prefetch)) as road:
        await road.migrate()

        @road.on(ParcelMoved, group=f"g{uuid4().hex[:8]}")
        async def record(moved: ParcelMoved) -> None:
            begun.setdefault(moved.parcel, []).append(moved.step)

        tries, again_and_again = count(1), asyncio.Event()

        async def away(*_: Any) -> bool:
            if next(tries) > 4 * prefetch:
                again_and_again.set()
            raise StoreUnavailable("gone")

        monkeypatch.setattr(road.inbox, "claim", away)
        async with road.running(), asyncio.timeout(60):
            await move(road, parcels, steps)
            await until_sent(road)
            await again_and_again.wait()
        await road.aclose()
        async with road.running():
            await road.drain(60)
    assert begun == {parcel: list(range(steps)) for parcel in parcels}


async def test_effects_happen_once_and_in_order_however_often_connections_break(
    sqlite_url: str, rabbitmq_url: str
) -> None:
    group = f"g{uuid4().hex[:8]}"
    proxy = Proxy("127.0.0.1", urlsplit(rabbitmq_url).port or 0)
    await proxy.start()
    url = with_options(through(rabbitmq_url, proxy.port), publish_timeout=2)
    steps, parcels, cuts = 40, "abcde", 15
    async with Postroad("parcels", sqlite_url, url) as road:
        await road.migrate()
        async with road.session() as session, session.begin():
            await session.execute(text("CREATE TABLE trail (parcel VARCHAR(20), step INT)"))
        handled = 0

        @road.on(ParcelMoved, group=group)
        async def record(moved: ParcelMoved, session: AsyncSession) -> None:
            nonlocal handled
            await note(session, moved)
            handled += 1
            if handled % (steps * len(parcels) // cuts) == 0:
                proxy.cut_all()

        async with road.running():
            await move(road, parcels, steps)
            await until_trail_has(road, steps * len(parcels))
        assert proxy.cuts >= cuts // 2
        assert await trail(road) == {parcel: list(range(steps)) for parcel in parcels}
    await proxy.aclose()


@pytest.mark.spec("P6", "F5", "R8")
async def test_a_time_without_the_broker_loses_nothing_and_costs_no_attempt(
    database_url: str, rabbitmq_url: str, store_kind: str
) -> None:
    group = f"g{uuid4().hex[:8]}"
    proxy = Proxy("127.0.0.1", urlsplit(rabbitmq_url).port or 0)
    await proxy.start()
    steps, parcels = 30, "abcde"
    begun: dict[str, list[int]] = {}
    async with Postroad("parcels", database_url, through(rabbitmq_url, proxy.port)) as road:
        await road.migrate()
        async with road.session() as session, session.begin():
            await session.execute(text("CREATE TABLE trail (parcel VARCHAR(20), step INT)"))

        @road.on(ParcelMoved, group=group)
        async def record(moved: ParcelMoved, session: AsyncSession) -> None:
            await note(session, moved)
            begun.setdefault(moved.parcel, []).append(moved.step)

        runner = road.runner()
        async with runner.started():
            # Some are on their way when it begins.
            await move(road, parcels, steps)
            proxy.leave()
            for step in range(steps):
                await asyncio.sleep(OUTAGE / steps)
                await move(road, parcels, 1, first=steps + step)
            there = sum(map(len, (await trail(road)).values()))
            left = 2 * steps * len(parcels) - there
            proxy.come_back()
            back = time.monotonic()
            await until_trail_has(road, there + 1)
            first = time.monotonic() - back
            await until_trail_has(road, there + left)
            last = time.monotonic() - back
            print(f"{store_kind}, {OUTAGE:g} s without RabbitMQ, {left} left: first {first:.2f} s, last {last:.2f} s")
            await road.drain(60)
        in_order = {parcel: list(range(2 * steps)) for parcel in parcels}
        assert {parcel: sorted(found) for parcel, found in (await trail(road)).items()} == in_order
        assert {parcel: list(dict.fromkeys(found)) for parcel, found in begun.items()} == in_order
        (relay,) = runner.relays
        assert relay.statistics.outages >= 1
        assert await outbox_and_inbox(road) == ({("SENT", 0)}, {0})
    await proxy.aclose()


async def outbox_and_inbox(road: Postroad) -> tuple[set[Any], set[Any]]:
    """States and attempts of the one, attempts of the other."""
    async with road.session() as session:
        outbox = await session.execute(text(f"SELECT state, attempts FROM {road.outboxes[0].delivery}"))
        inbox = await session.execute(text("SELECT retry_count FROM postroad_inbox"))
        return set(map(tuple, outbox)), set(inbox.scalars())


async def until_trail_has(road: Postroad, length: int) -> None:
    async with asyncio.timeout(120):
        while sum(map(len, (await trail(road)).values())) < length:  # noqa: ASYNC110 (the trail is in a database)
            await asyncio.sleep(0.05)


async def until_sent(road: Postroad) -> None:
    async with asyncio.timeout(60):
        for pause in count(1):
            if not await unsent(road, road.clock.now()):
                return
            await asyncio.sleep(0.01 * pause)
