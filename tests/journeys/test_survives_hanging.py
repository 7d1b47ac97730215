"""Code of the user's that never returns: the test says so and fails, and does not hang with it."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from postroad import Postroad
from postroad.testing.survival.patience import LONGEST
from postroad.testing.survival.patience import Patience as Limit
from tests.support.survival import Handlers, OrderPlaced, Trial, create_tables, only_receipts, place, receipts

ROOT = Path(__file__).parents[2]


class Patience:
    """A clock that stands still until somebody begins to hang. Who hangs in a thread is let go after the test."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.let_go = threading.Event()

    def now(self) -> float:
        return self.seconds

    async def hang(self) -> None:
        self.seconds += LONGEST + 1
        await asyncio.Event().wait()

    def block(self) -> None:
        self.seconds += LONGEST + 1
        self.let_go.wait()


@pytest.fixture
def patience() -> Iterator[Patience]:
    patience = Patience()
    yield patience
    patience.let_go.set()
    for thread in threading.enumerate():
        if thread.name == "survives":
            thread.join(60)


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


async def one_order(road: Postroad) -> None:
    await place(road, "o-1")


STAYS = "It runs in a thread, which cannot be ended"


def test_an_async_handler_that_waits_for_ever_is_told(trial: Trial, patience: Patience) -> None:
    def handlers(road: Postroad) -> None:
        @road.on(OrderPlaced, group="payments")
        async def charge(event: OrderPlaced) -> None:
            await patience.hang()

    story = trial.story(handlers, one_order, now=patience.now)
    assert story.startswith("`charge` (group payments) for order.placed o-1 has not returned for 30 s.")
    assert "Give its waiting an end" in story
    assert STAYS not in story
    assert "survives" not in [thread.name for thread in threading.enumerate()]


def plain(patience: Patience) -> Handlers:
    def handlers(road: Postroad) -> None:
        @road.on(OrderPlaced, group="payments")
        def charge(event: OrderPlaced) -> None:
            patience.block()

    return handlers


def plain_with_session(patience: Patience) -> Handlers:
    def handlers(road: Postroad) -> None:
        @road.on(OrderPlaced, group="payments")
        def charge(event: OrderPlaced, session: Any) -> None:
            patience.block()

    return handlers


@pytest.mark.parametrize("of", [plain, plain_with_session])
def test_a_plain_handler_that_waits_for_ever_is_told(
    trial: Trial, patience: Patience, of: Callable[[Patience], Handlers]
) -> None:
    story = trial.story(of(patience), one_order, now=patience.now)
    assert story.startswith("`charge` (group payments) for order.placed o-1 has not returned for 30 s. " + STAYS)


ENDLESS = """
import threading
from pathlib import Path
from tests.journeys.test_survives_hanging import Patience, one_order, plain, plain_with_session
from tests.support.survival import Trial

patience = Patience()
trial = Trial(Path({folder!r}))
print(trial.story({of}(patience), one_order, now=patience.now))
"""


@pytest.mark.parametrize("of", ["plain", "plain_with_session"])
def test_the_process_does_not_wait_for_it(tmp_path: Path, of: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ENDLESS.format(folder=str(tmp_path), of=of)],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert STAYS in ran.stdout


def test_a_scenario_or_a_setup_that_waits_for_ever_is_told(trial: Trial, patience: Patience) -> None:
    async def hang(road: Postroad) -> None:
        await patience.hang()

    assert trial.story(only_receipts, hang, now=patience.now).startswith("The scenario has not returned for 30 s.")
    assert trial.story(only_receipts, setup=hang, now=patience.now).startswith("`setup` has not returned for 30 s.")
    assert trial.story(only_receipts, outcome=hang, now=patience.now).startswith("`outcome` has not returned for 30 s.")


def test_it_is_told_with_which_fault_it_hangs(trial: Trial, patience: Patience) -> None:
    calls: list[str] = []

    def handlers(road: Postroad) -> None:
        calls.clear()

        @road.on(OrderPlaced, group="payments")
        async def charge(event: OrderPlaced) -> None:
            calls.append(event.order_id)
            if len(calls) == 2:
                await patience.hang()

    story = trial.story(
        handlers,
        one_order,
        outcome=lambda: calls,
        only="commit-before",
        now=patience.now,
        rerun="pytest --postroad-fault=",
    )
    assert "It did without a fault. The fault here: The process died just before the commit of `charge`" in story
    assert "Rerun only this fault: pytest --postroad-fault=commit-before:" in story


def test_a_long_scenario_has_patience_as_long_as_it_moves(trial: Trial, patience: Patience) -> None:
    complaints: list[str] = []

    async def two_orders_that_take_their_time(road: Postroad) -> None:
        for order in ("o-1", "o-2"):
            patience.seconds += 0.9 * LONGEST
            complaints.append(survival.patience.complaint)
            await place(road, order)

    survival = trial.of(only_receipts, two_orders_that_take_their_time, now=patience.now)
    asyncio.run(survival.play(None))
    assert complaints == ["", ""]


def test_patience_is_with_who_began_last_and_is_new_for_each(patience: Patience) -> None:
    whole = Limit(patience.now)

    def wait(share: float) -> str:
        patience.seconds += share * LONGEST
        return whole.complaint

    with whole.while_works("The scenario"):
        assert wait(0.9) == ""
        with whole.while_works("`charge`"):
            assert wait(0.9) == ""
            assert wait(0.2).startswith("`charge` has not returned for 30 s.")
        assert wait(0.9) == ""
        assert wait(0.2).startswith("The scenario has not returned for 30 s.")
    assert wait(0.9) == ""
    assert wait(0.2).startswith("Nothing has moved for 30 s, and none of your code is at work.")


def test_what_the_test_has_set_holds_in_the_runs(trial: Trial) -> None:
    from contextvars import ContextVar

    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    seen: list[str] = []
    token = tenant.set("shop")

    async def look(road: Postroad) -> None:
        seen.append(tenant.get())
        await create_tables(road)

    assert trial.story(only_receipts, one_order, setup=look, outcome=receipts, only="duplicate") == ""
    assert set(seen) == {"shop"}
    tenant.reset(token)
