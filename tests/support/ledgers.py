"""A comparison as it will be made when the present minute is over."""

from datetime import datetime

import pytest

from postroad import Postroad
from postroad.consistency.window import Window, window
from tests.support.genesis import change


async def known_for_years(road: Postroad) -> None:
    """So that the group has to have heard of everything."""
    await change(road, "UPDATE {handlers} SET first_seen = '2001-01-01 00:00:00'")


async def look_ahead(road: Postroad) -> Window:
    now = await window(road, 4 * 3_600, 0)
    later = datetime.fromtimestamp(now.now.timestamp() + 120, now.now.tzinfo)
    return Window(now.since, now.kept_since, later, later)


def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(road: Postroad, since: object, grace: object) -> Window:
        return await look_ahead(road)

    monkeypatch.setattr("postroad.consistency.losses.window", look)
