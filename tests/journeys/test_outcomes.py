"""Log records say in one word, for machines, what became of an event."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from postroad import Postroad, event
from postroad.message import Message
from postroad.relay import Relay, RelayOptions
from postroad.retry import Backoff
from postroad.subscriber import SubscriberOptions
from postroad.testing import FaultyBroker

TOPIC = "outcome.parcel.events"


@event("parcel.posted", topic=TOPIC, aggregate="parcel", key="parcel")
class ParcelPosted(msgspec.Struct, frozen=True):
    parcel: str


@pytest.fixture
async def road(tmp_path: Path) -> AsyncIterator[Postroad]:
    options = SubscriberOptions(backoff=Backoff(attempts=2, base=0.01))
    url = f"sqlite:///{tmp_path / 'outcomes.db'}"
    async with Postroad("parcels", url, f"embedded:{tmp_path / 'broker.db'}", subscriber=options) as road:
        await road.migrate()
        yield road


def message(parcel: str, type: str = "parcel.posted") -> Message:
    return Message(
        id=uuid4(),
        type=type,
        topic=TOPIC,
        aggregate_type="parcel",
        aggregate_id=parcel,
        version=1,
        occurred_at=datetime.now(UTC),
        payload=b'{"parcel":"%s"}' % parcel.encode(),
        correlation_id="c-1",
    )


def outcomes(caplog: pytest.LogCaptureFixture, event_id: object) -> list[str]:
    told = [record for record in caplog.records if getattr(record, "event_id", None) == str(event_id)]
    return [getattr(record, "outcome", "") for record in told]


@pytest.mark.spec("P17")
async def test_a_consumer_tells_duplicates_failures_and_what_it_cannot_read(
    road: Postroad, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "postroad")

    @road.on(ParcelPosted, group="depot")
    async def take(posted: ParcelPosted) -> None:
        if posted.parcel == "broken":
            raise ConnectionError("the depot does not answer")

    twice, broken, unknown = message("a"), message("broken"), message("b", "parcel.exploded")
    unreadable = msgspec.structs.replace(message("c"), payload=b"{}")
    async with road.running():
        await road.broker.send([twice, twice, broken, unknown, unreadable])
        await road.drain()
    assert outcomes(caplog, twice.id) == ["duplicate"]
    assert outcomes(caplog, broken.id) == ["failed", "failed"]
    assert outcomes(caplog, unknown.id) == ["unknown_type"]
    assert outcomes(caplog, unreadable.id) == ["unreadable"]
    assert {getattr(r, "correlation_id", None) for r in caplog.records if hasattr(r, "outcome")} >= {"c-1"}


@pytest.mark.spec("P17")
async def test_a_relay_tells_refusals_and_what_it_parks(road: Postroad, caplog: pytest.LogCaptureFixture) -> None:
    async with road.session() as session, session.begin():
        added = road.add(session, ParcelPosted("a"))
    refusing = FaultyBroker(road.broker, refuse=lambda message: "no")
    relay = Relay(road.store, refusing, options=RelayOptions(backoff=Backoff(attempts=2, base=0.001)))
    async with asyncio.timeout(30):
        while not relay.statistics.parked:
            await relay.run_once()
    await relay.leases.release()
    assert outcomes(caplog, added.id) == ["refused", "parked"]
