"""A hole in an aggregate's history is told as a metric: a fresh one at once, an old one once a check has found it."""

import pytest

from postroad import Postroad
from postroad.operations import results
from postroad.telemetry import Meter
from postroad.telemetry.gaps import read_gaps
from postroad.telemetry.telemetry import Telemetry
from tests.support.genesis import StartSession
from tests.support.harm import forget, lived
from tests.support.telemetry import fresh


async def told(road: Postroad, most: int) -> float | None:
    gauges = Meter()
    await read_gaps(road, gauges, most)
    return gauges.value("aggregate_version_gaps")


async def check(road: Postroad) -> None:
    await results.keep(road.store, results.CHECK, await road.check(grace=0), actor="ada")


@pytest.mark.spec("G10", "P16")
async def test_a_gap_is_told_without_a_check(road: Postroad) -> None:
    _, second, _ = await lived(road)
    telemetry = Telemetry(road)
    road.runners.add(road.runner(groups=()))
    assert (await fresh(telemetry))("aggregate_version_gaps") == 0
    await forget(road, "{domain_events}", second)
    assert (await fresh(telemetry))("aggregate_version_gaps") == 1


async def test_a_gap_that_lies_far_back_is_told_from_the_last_check_until_another_finds_none(road: Postroad) -> None:
    _, second, third = await lived(road)
    await forget(road, "{domain_events}", second)
    assert (await told(road, 10_000), await told(road, 3)) == (1, 0)
    await check(road)
    assert await told(road, 3) == 1
    await forget(road, "{domain_events}", third)
    assert await told(road, 3) == 1
    await check(road)
    assert await told(road, 3) == 0


async def test_where_nothing_has_happened_yet_there_is_no_gap(road: Postroad) -> None:
    assert await told(road, 10_000) == 0
    await road.execute(StartSession("s-9"))
    assert await told(road, 10_000) == 0
