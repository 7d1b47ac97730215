import asyncio

import pytest

from postroad.clock import Clock, SystemClock
from postroad.testing import VirtualClock


@pytest.mark.parametrize("make", [SystemClock, VirtualClock])
@pytest.mark.parametrize("turns", range(6))
async def test_a_cancellation_that_comes_with_the_result_is_not_forgotten(make: type[Clock], turns: int) -> None:
    """Whoever waits in a loop would go on for ever, and whoever cancelled it would wait for that."""
    clock, told = make(), asyncio.Event()

    async def wait_again_and_again() -> None:
        while True:
            await clock.wait_for(told.wait(), 1_000)
            told.clear()

    waiting = asyncio.create_task(wait_again_and_again())
    for _ in range(3):
        await asyncio.sleep(0)
    told.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert waiting.cancelled()


async def test_what_does_not_come_in_time_is_cancelled() -> None:
    never = asyncio.get_running_loop().create_future()
    with pytest.raises(TimeoutError):
        await SystemClock().wait_for(never, 0)
    assert never.cancelled()
