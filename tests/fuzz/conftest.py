"""Fuzzing: bounded and repeatable by default, longer with `pytest tests/fuzz --hypothesis-profile=long`."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.outbox import Recycled, recycled_databases

settings.register_profile("long", max_examples=2_000, derandomize=False)


def bounded(examples: int, **options: object) -> settings:
    """So many examples in the default profile, and as many times more as the chosen profile has.

    By default always the same ones: whoever sees a failure in a pipeline sees it at home too.
    """
    profile = settings.get_profile("default") if settings.get_current_profile_name() == "ci" else settings()
    usual = settings.get_profile("default").max_examples
    return settings(
        max_examples=max(1, examples * profile.max_examples // usual),
        derandomize=profile.max_examples <= usual,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        **options,  # type: ignore[arg-type]
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A long run is meant to be long: the usual limit of a test is not for it."""
    if settings.get_current_profile_name() == "long":
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(pytest.mark.timeout(0))


@pytest.fixture(scope="session")
def recycled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recycled]:
    """One database per store for the whole run, emptied between examples."""
    with recycled_databases(tmp_path_factory.mktemp("fuzz")) as databases:
        yield databases


@pytest.fixture
def store_url(store_kind: str, recycled: Recycled) -> str:
    return recycled.url(store_kind)


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    """Hypothesis calls plain functions, again and again: what they await runs in this one event loop."""
    with asyncio.Runner() as runner:
        yield runner
