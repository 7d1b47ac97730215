"""A studio for each test, on the database and the broker that it is run with."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroad import events

# Other tests have small sessions of their own, under the same names. Theirs are put back here, ours when a test runs.
_before = dict(events._declared)
from examples.genesis.studio import Studio  # noqa: E402

_OURS = {name: kind for name, kind in events._declared.items() if kind.cls.__module__ == "examples.genesis.story"}
events._declared.update(_before)


@pytest.fixture(autouse=True)
def our_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in _OURS.items():
        monkeypatch.setitem(events._declared, name, kind)


@pytest.fixture
def store_kind() -> str:
    return "sqlite"


@pytest.fixture
def broker_address(tmp_path: Path) -> str:
    return f"embedded:{tmp_path / 'broker.db'}"


@pytest.fixture
async def studio(database_url: str, broker_address: str) -> AsyncIterator[Studio]:
    studio = Studio(database_url, broker_address)
    await studio.prepare()
    yield studio
    await studio.aclose()
