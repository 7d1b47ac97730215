"""Arguments in the wrong place are told with the right call."""

from typing import Any

import msgspec
import pytest

from postroad import Postroad, event
from postroad.errors import ConfigurationError, SchemaMissing


@event("door.opened", topic="house.door.events", aggregate="door", key="door_id")
class DoorOpened(msgspec.Struct, frozen=True):
    door_id: str


@pytest.mark.parametrize(
    ("source", "told"),
    [(5, "not of type int"), (None, "not of type NoneType"), ("postgresql://me:secret@host/shop", "not a URL")],
)
def test_a_source_that_is_no_name(source: Any, told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Postroad(source)
    assert told in str(refused.value)
    assert 'Write Postroad("shop")' in str(refused.value)
    assert "secret" not in str(refused.value)


async def test_the_event_before_the_transaction(sqlite_url: str) -> None:
    async with Postroad("house", sqlite_url, "embedded:") as road, road.session() as session, session.begin():
        swapped: Any = DoorOpened("d-1")
        with pytest.raises(ConfigurationError, match=r"first, then the event: road\.add\(session, DoorOpened\(…\)\)"):
            road.add(swapped, session)
        with pytest.raises(ConfigurationError, match="None where an event is expected"):
            road.add(session, None)


async def test_missing_tables_name_both_cures(sqlite_url: str) -> None:
    async with Postroad("house", sqlite_url, "embedded:") as road:
        with pytest.raises(SchemaMissing, match=r"postroad db migrate \(in Python: await road\.migrate\(\)\)"):
            async with road.running():
                pass
        async with road.session() as session, session.begin():
            road.add(session, DoorOpened("d-1"))
            with pytest.raises(SchemaMissing, match=r"await road\.migrate\(\)"):
                await session.flush()
            await session.rollback()
