"""The genesis service on an empty store of each kind, with a group that keeps a list of what it was told."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroad import Postroad
from postroad.stores import Store
from tests.support.genesis import SessionFinished, SessionStarted, ThemeProposed, genesis


@pytest.fixture
async def road(store: Store, store_url: str, tmp_path: Path) -> AsyncIterator[Postroad]:
    async with genesis(store_url, f"embedded:{tmp_path / 'broker.db'}") as road:
        for kind in (SessionStarted, ThemeProposed, SessionFinished):
            road.on(kind, group="readers")(_nothing)
        yield road


async def _nothing(event: object) -> None:
    return None
