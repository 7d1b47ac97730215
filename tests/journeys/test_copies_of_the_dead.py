"""A copy on the wire of an event that has failed for good: nobody asked for another attempt."""

from uuid import uuid4

import msgspec
import pytest

from postroad import Backoff, Postroad, SubscriberOptions, event, operations
from postroad.brokers.base import Confirmed


@pytest.mark.spec("P10", "T4")
async def test_only_a_person_has_a_dead_event_tried_again(sqlite_url: str, broker_url: str) -> None:
    topic = f"post.c{uuid4().hex[:8]}.events"
    tried: list[int] = []
    mended = False

    @event(f"{topic}.sent", topic=topic, aggregate="letter", key="letter")
    class LetterSent(msgspec.Struct):
        letter: str
        number: int

    async with Postroad(
        "post", sqlite_url, broker_url, subscriber=SubscriberOptions(backoff=Backoff(attempts=1))
    ) as road:

        @road.on(LetterSent, group="readers")
        async def read(event: LetterSent) -> None:
            tried.append(event.number)
            if event.number == 1 and not mended:
                raise RuntimeError("not now")

        await road.migrate()
        async with road.running():
            async with road.session() as session, session.begin():
                first, _ = [road.add(session, LetterSent("a", number)) for number in (1, 2)]
            await road.drain(60)
            mended = True
            outcomes = await road.broker.send([msgspec.structs.replace(first.message, version=1)])
            assert isinstance(outcomes[0], Confirmed)
            await road.drain(60)
            assert tried == [1, 2]
            dead = await operations.dead_page(road.broker, [topic])
            assert {letter.event_id for letter in dead} == {str(first.id)}
            assert await operations.retry_dead(road.store, road.broker, dead, actor="ann")
            await road.drain(60)
            assert tried == [1, 2, 1]
            assert await operations.dead_page(road.broker, [topic]) == []
