"""Arguments in the wrong place are told with the right call."""

from typing import Any

import msgspec
import pytest

from postroad import Postroad, event
from postroad.app import DAY
from postroad.errors import ConfigurationError, InvalidSetting, SchemaMissing


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


@pytest.mark.parametrize(
    ("outbox_days", "inbox_days", "told"),
    [
        (7, 13.9, "is 13.9 days, but a message can return for 14 "),
        (30, 15, "is 15 days, but a message can return for 37 "),
        (7, float("nan"), "is nan days"),
    ],
)
def test_an_inbox_that_forgets_what_can_return(outbox_days: float, inbox_days: float, told: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        Postroad("house", outbox_retention=outbox_days * DAY, inbox_retention=inbox_days * DAY)
    assert refused.value.path == "inbox_retention"
    assert told in refused.value.rule
    assert "Keep inbox rows at least that long." in refused.value.rule


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_an_outbox_that_keeps_nothing(seconds: float) -> None:
    with pytest.raises(InvalidSetting, match=r"outbox_retention: is .*: it must be more than 0 seconds"):
        Postroad("house", outbox_retention=seconds)


def test_an_inbox_that_remembers_just_long_enough() -> None:
    assert Postroad("house", outbox_retention=8 * DAY, inbox_retention=15 * DAY).inbox_retention == 15 * DAY


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
