import asyncio
from datetime import timedelta

import pytest

from postroad.testing import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


async def test_time_stands_still_until_it_is_moved(clock: VirtualClock) -> None:
    began = clock.now()
    await asyncio.sleep(0)
    assert (clock.now(), clock.monotonic()) == (began, 0.0)
    await clock.advance(2.5)
    assert clock.now() - began == timedelta(seconds=2.5)
    assert clock.monotonic() == 2.5


async def test_sleepers_wake_in_order_and_see_the_time_they_asked_for(clock: VirtualClock) -> None:
    woken: list[tuple[str, float]] = []

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    tasks = [asyncio.create_task(sleep(name, s)) for name, s in (("c", 3), ("a", 1), ("b", 2), ("z", 9))]
    await clock.advance(5)
    assert woken == [("a", 1.0), ("b", 2.0), ("c", 3.0)]
    assert clock.monotonic() == 5.0
    assert clock.next_alarm() == 9.0
    await clock.advance(4)
    assert woken[-1] == ("z", 9.0)
    assert clock.next_alarm() is None
    await asyncio.gather(*tasks)


async def test_who_sleeps_again_on_the_way_wakes_again(clock: VirtualClock) -> None:
    beats: list[float] = []

    async def beat() -> None:
        while True:
            await clock.sleep(20)
            beats.append(clock.monotonic())

    task = asyncio.create_task(beat())
    await clock.advance(61)
    task.cancel()
    assert beats == [20.0, 40.0, 60.0]


async def test_no_sleep_is_no_wait(clock: VirtualClock) -> None:
    await asyncio.gather(clock.sleep(0), clock.sleep(-1))
    assert clock.monotonic() == 0.0


async def test_shift_moves_at_once_and_wakes_in_the_next_turn(clock: VirtualClock) -> None:
    task = asyncio.create_task(clock.sleep(1))
    await asyncio.sleep(0)
    clock.shift(1)
    assert clock.monotonic() == 1.0
    assert not task.done()
    await task


async def test_wait_for_returns_the_result_and_forgets_its_alarm(clock: VirtualClock) -> None:
    async def answer() -> int:
        await clock.sleep(1)
        return 42

    waiting = asyncio.create_task(clock.wait_for(answer(), 2))
    await clock.advance(1)
    assert await waiting == 42
    assert clock.next_alarm() is None


async def test_wait_for_times_out_and_cancels(clock: VirtualClock) -> None:
    forever = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(clock.wait_for(forever, 2))
    await clock.advance(1.999999)
    assert not waiting.done()
    await clock.advance(0.000001)
    with pytest.raises(TimeoutError):
        await waiting
    assert forever.cancelled()


async def test_wait_for_passes_errors_and_cancellation_on(clock: VirtualClock) -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await clock.wait_for(fail(), 1)
    forever = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(clock.wait_for(forever, 2))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert forever.cancelled()


async def test_a_cancelled_sleeper_holds_nobody_up(clock: VirtualClock) -> None:
    task = asyncio.create_task(clock.sleep(1))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    assert clock.next_alarm() is None
    await clock.advance(5)
    assert clock.monotonic() == 5.0
