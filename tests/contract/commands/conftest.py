"""The genesis service on an empty store of each kind."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroad import Postroad
from postroad.stores import Store
from tests.support.genesis import genesis


@pytest.fixture
async def road(store: Store, store_url: str, tmp_path: Path) -> AsyncIterator[Postroad]:
    async with genesis(store_url, f"embedded:{tmp_path / 'broker.db'}") as road:
        yield road
