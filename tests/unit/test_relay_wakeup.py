"""When the relay looks again, told on a clock that stands still."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from postroad.relay.wakeup import Wakeup
from postroad.testing import VirtualClock

LONGEST = 1.0


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


async def pause_after(wakeup: Wakeup, clock: VirtualClock, found: int) -> float:
    """How long it waits if nobody wakes it."""
    return await lasts(wakeup.wait_after(found), clock)


async def lasts(pause: Coroutine[Any, Any, None], clock: VirtualClock) -> float:
    begun = clock.monotonic()
    waiting = asyncio.create_task(pause)
    await clock.advance(0)
    if (alarm := clock.next_alarm()) is not None:
        await clock.advance(alarm - begun)
    await waiting
    return round(clock.monotonic() - begun, 6)


async def test_after_a_find_it_looks_again_at_once(clock: VirtualClock) -> None:
    assert await pause_after(Wakeup(clock, LONGEST), clock, 1) == 0


async def test_before_it_marks_it_takes_a_short_breath(clock: VirtualClock) -> None:
    wakeup = Wakeup(clock, LONGEST)
    wakeup.looking()
    assert 0 < await lasts(wakeup.breath(), clock) < await pause_after(wakeup, clock, 0)


async def test_more_to_do_ends_the_breath_and_is_looked_for(clock: VirtualClock) -> None:
    wakeup = Wakeup(clock, LONGEST)
    wakeup.looking()
    wakeup._event.set()
    assert await lasts(wakeup.breath(), clock) == 0
    assert await pause_after(wakeup, clock, 0) == 0


async def test_a_single_look_takes_no_breath(clock: VirtualClock) -> None:
    assert await lasts(Wakeup(clock, LONGEST).breath(), clock) == 0


async def test_while_nothing_comes_the_pause_doubles_up_to_the_longest(clock: VirtualClock) -> None:
    wakeup = Wakeup(clock, LONGEST)
    pauses = [await pause_after(wakeup, clock, 0) for _ in range(10)]
    first = pauses[0]
    assert pauses == [min(first * 2**n, LONGEST) for n in range(10)]
    assert pauses[-1] == LONGEST
    await pause_after(wakeup, clock, 1)
    assert await pause_after(wakeup, clock, 0) == first


async def test_a_wake_up_ends_the_pause_and_the_next_is_short_again(clock: VirtualClock) -> None:
    wakeup = Wakeup(clock, LONGEST)
    first = await pause_after(wakeup, clock, 0)
    while await pause_after(wakeup, clock, 0) < LONGEST:
        pass
    wakeup.looking()
    begun = clock.monotonic()
    waiting = asyncio.create_task(wakeup.wait_after(0))
    await clock.advance(LONGEST / 2)
    assert not waiting.done()
    wakeup.set()
    async with asyncio.timeout(20):
        await waiting
    assert clock.monotonic() == begun + LONGEST / 2
    wakeup.looking()
    assert await pause_after(wakeup, clock, 0) == first


async def test_a_wake_up_during_the_look_is_not_lost_and_serves_once(clock: VirtualClock) -> None:
    wakeup = Wakeup(clock, LONGEST)
    wakeup.set()
    assert await pause_after(wakeup, clock, 0) == 0
    wakeup.looking()
    assert await pause_after(wakeup, clock, 0) > 0


def test_a_wake_up_after_the_loop_is_closed_hurts_nobody() -> None:
    """The relay's loop may end before the last writer's thread does."""
    clock = VirtualClock()
    wakeup = Wakeup(clock, LONGEST)

    async def look() -> None:
        wakeup.looking()

    asyncio.run(look())
    assert wakeup._loop is not None
    assert wakeup._loop.is_closed()
    wakeup.set()
