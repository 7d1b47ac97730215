"""What is taken away on purpose shows in the books, and comes back: once, and nothing else with it."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from postroad import Postroad
from postroad.consistency import repair
from proof.chaos.bank import found, make_road
from proof.chaos.brokers import EMBEDDED
from proof.chaos.journal import Journal
from proof.chaos.ledger import Books, Evidence, collect
from proof.chaos.mending import mend, missing, plant
from proof.chaos.purses import LEGS, Move
from proof.chaos.writer import waiting, write

COMMANDS = 4


@pytest.fixture
async def road(sqlite_url: str, tmp_path: Path) -> AsyncIterator[Postroad]:
    """At rest, after some payments and commands."""
    async with make_road(sqlite_url, EMBEDDED.url(tmp_path), lease=30.0) as road:
        await found(road)
        async with road.running():
            await every_group_known(road)
            await write(road, Journal().note, random.Random(11), 3)
            for number in range(COMMANDS):
                await road.execute(Move(f"p{number % 2}", "p9", 5), command_id=uuid4())
            await road.drain(timeout=60)
            yield road


async def every_group_known(road: Postroad) -> None:
    """What was sent before, a check does not ask a group about."""
    async with asyncio.timeout(60):
        for group in road.groups:
            while True:
                if (await road.store.read("handler_known", group=group)).rows:
                    break
                await asyncio.sleep(0.01)


async def evidence(road: Postroad) -> Evidence:
    return await collect(road, EMBEDDED.appearances(road.broker_url), Journal())


@pytest.mark.spec("G9")
async def test_what_was_lost_comes_back_once_and_nothing_else_changes(road: Postroad) -> None:
    before = await evidence(road)
    assert before.books() == Books()
    assert await missing(road) == []
    assert await plant(road) == 3
    assert (await evidence(road)).books() == Books(lost=1, outbox_wrong=2, read_model_wrong=1)
    assert {finding.kind for finding in await missing(road)} == {"missing_outbox", "unseen"}
    assert await waiting(road) == 3
    await mend(road)
    await road.drain(timeout=60)
    after = await evidence(road)
    assert after.books() == Books()
    assert after.purses == before.purses
    assert sorted(after.effects) == sorted(before.effects)
    assert len(after.purses.events) == COMMANDS * LEGS
    assert await missing(road) == []
    assert await repair(road, grace=0, apply=True) == []


async def test_where_nothing_was_written_nothing_is_planted(sqlite_url: str, tmp_path: Path) -> None:
    async with make_road(sqlite_url, EMBEDDED.url(tmp_path)) as road:
        await found(road)
        assert await plant(road) == 0
