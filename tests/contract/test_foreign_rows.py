"""What other programs write into an adopted table, however odd: shown, freed, parked, and nobody else stopped."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import text

from postroad.errors import ConfigurationError
from postroad.operations import outbox_page, retry_events, status
from postroad.stores.tables import OutboxTable
from tests.journeys.test_running import ParcelSent, make_road

FOREIGN = (
    "INSERT INTO app_outbox (event_id, topic, event_type, aggregate_type, aggregate_id, version, payload, attributes,"
    " occurred_at) VALUES (:id, 'post.parcel.events', 'parcel.sent', 'parcel', :key, 1, '{\"parcel\":\"x\"}',"
    " :attributes, '2026-01-01T00:00:00Z')"
)


@pytest.fixture
def table() -> OutboxTable:
    return OutboxTable("app_outbox", topic="post.parcel.events", ids="text")


async def test_an_id_that_is_no_uuid_is_carried_shown_and_freed(tmp_path: Path, table: OutboxTable) -> None:
    road, seen = make_road(tmp_path)
    road.outboxes = (table,)
    await road.migrate()
    async with road:
        async with road.session() as session, session.begin():
            await session.execute(text(FOREIGN), {"id": "abc-1", "key": "a", "attributes": None})
            await session.execute(text(FOREIGN), {"id": "bad-1", "key": "b", "attributes": '{"headers": [1]}'})
            await session.execute(text(FOREIGN), {"id": "bad-2", "key": "c", "attributes": '{"headers": {"a": 1}}'})
        async with road.running():
            await road.drain(timeout=30)
        assert seen == ["x"]
        events = {event.id: event.state for event in await outbox_page(road.store, road.outboxes)}
        assert events == {"abc-1": "SENT", "bad-1": "FAILED", "bad-2": "FAILED"}
        parked = (await status(road.store, road.outboxes, road.broker)).parked
        assert {one.event_id for one in parked} == {"bad-1", "bad-2"}
        await retry_events(road.store, road.outboxes, ["bad-1"], actor="somebody")
        assert {e.id: e.state for e in await outbox_page(road.store, road.outboxes)}["bad-1"] == "NEW"


async def test_attributes_that_cannot_be_read_are_a_dead_letter_and_the_rest_goes_on(tmp_path: Path) -> None:
    road, seen = make_road(tmp_path, f"embedded:{tmp_path}/broker.db")
    await road.migrate()
    async with road:
        await road.broker.apply(road.topology)
        async with road.session() as session, session.begin():
            added = road.add(session, ParcelSent(parcel="p"))
        await road.broker.send([added.message])
        with sqlite3.connect(tmp_path / "broker.db") as connection:
            connection.execute("UPDATE message SET attributes = ?", (b'{"event_id": 1}',))
        connection.close()
        async with road.running():
            await road.drain(timeout=30)
        assert seen == ["p"]
        assert len(await road.broker.dead_letters("post.parcel.events")) == 1


def test_an_append_only_table_cannot_be_somebody_elses() -> None:
    with pytest.raises(ConfigurationError, match="append_only is for tables that Postroad creates"):
        OutboxTable("app_outbox", append_only=True, topic="post.parcel.events")
