"""What a handler keeps in Python's memory dies with its process, and an event that was lost with it is told."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from postroad import Postroad
from postroad.testing.survival.faults import Fault
from tests.support.survival import OrderPlaced, Trial, place, receipts, two_orders, write_receipt


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


# Each writes only when there are two: what it has of the first is in memory meanwhile.

collected: dict[str, OrderPlaced] = {}
latest: OrderPlaced | None = None


async def write_all(events: Any, session: Any) -> None:
    for event in events:
        await write_receipt(event, session)


def in_a_dict_of_the_module() -> Callable[..., Any]:
    collected.clear()

    async def pay(event: OrderPlaced, session: Any) -> None:
        collected[event.order_id] = event
        if len(collected) == 2:
            await write_all(collected.values(), session)

    return pay


def in_a_name_of_the_module() -> Callable[..., Any]:
    globals()["latest"] = None

    async def pay(event: OrderPlaced, session: Any) -> None:
        global latest
        if latest is not None and latest != event:
            await write_all([latest, event], session)
        latest = event

    return pay


def in_a_list_around_it() -> Callable[..., Any]:
    waiting: list[OrderPlaced] = []

    async def pay(event: OrderPlaced, session: Any) -> None:
        waiting.append(event)
        if len(waiting) == 2:
            await write_all(waiting, session)

    return pay


def in_a_name_around_it() -> Callable[..., Any]:
    before: OrderPlaced | None = None

    async def pay(event: OrderPlaced, session: Any) -> None:
        nonlocal before
        if before is not None and before != event:
            await write_all([before, event], session)
        before = event

    return pay


class Collector:
    shared: set[OrderPlaced] = set()  # noqa: RUF012 - a mistake, and one that people make

    def __init__(self) -> None:
        self.own: Queue[OrderPlaced] = Queue()
        Collector.shared.clear()

    async def keep(self, event: OrderPlaced, session: Any) -> None:
        self.own.put(event)
        if self.own.qsize() == 2:
            await write_all([self.own.get(), self.own.get()], session)

    async def keep_for_all(self, event: OrderPlaced, session: Any) -> None:
        self.shared.add(event)
        if len(self.shared) == 2:
            await write_all(self.shared, session)


def in_the_queue_of_an_object() -> Callable[..., Any]:
    return Collector().keep


def in_a_set_of_the_class() -> Callable[..., Any]:
    return Collector().keep_for_all


KEEPERS = [
    in_a_dict_of_the_module,
    in_a_name_of_the_module,
    in_a_list_around_it,
    in_a_name_around_it,
    in_the_queue_of_an_object,
    in_a_set_of_the_class,
]


@pytest.mark.parametrize("keeper", KEEPERS, ids=lambda keeper: keeper.__name__)
def test_an_event_that_waits_in_memory_is_lost(trial: Trial, keeper: Callable[[], Callable[..., Any]]) -> None:
    def handlers(road: Postroad) -> None:
        road.on(OrderPlaced, group="payments")(keeper())

    for fault in ("commit-after", "ack-before", "ack-after"):
        story = trial.story(handlers, only=fault)
        assert story.startswith("order.placed o-"), story
        assert "was acknowledged, but its effect is not there." in story
        assert "(group payments) was done with it before the process died, so it is not called again." in story
        assert "Write the effect of each event through `session` before the handler returns" in story


def test_it_is_found_too_where_the_outcome_does_not_look(trial: Trial) -> None:
    def handlers(road: Postroad) -> None:
        road.on(OrderPlaced, group="payments")(in_a_list_around_it())

    story = trial.story(handlers, outcome=lambda: 0, only="commit-after")
    assert "was acknowledged, but its effect is not there." in story
    assert "Missing in the database: receipts ('o-" in story
    assert "Expected" not in story


def test_it_is_found_with_the_road_itself_too(tmp_path: Path) -> None:
    from postroad.testing.survival import DidNotSurvive, Survival
    from tests.support.survival import create_tables

    road = Postroad("shop", f"sqlite:///{tmp_path / 'precious.db'}")
    handler = in_a_dict_of_the_module()
    road.on(OrderPlaced, group="payments")(handler)

    async def setup(road: Postroad) -> None:
        collected.clear()
        await create_tables(road)

    survival = Survival(road, two_orders, setup=setup, outcome=receipts, folder=tmp_path, only="commit-after")
    with pytest.raises(DidNotSurvive, match="was acknowledged, but its effect is not there"):
        survival.run()


def test_events_that_are_taken_together_survive(trial: Trial) -> None:
    def handlers(road: Postroad) -> None:
        @road.on(OrderPlaced, group="payments", batch=100)
        async def pay(events: Any, session: Any) -> None:
            await write_all(events, session)

    assert trial.story(handlers) == ""


# -- what is not memory --------------------------------------------------------------------------------


class Provider:
    """Outside: it knows what it was asked, whoever of us has died."""

    def __init__(self) -> None:
        self.charges: list[str] = []

    def charge(self, order_id: str) -> None:
        self.charges.append(order_id)


@pytest.mark.parametrize("seen_by", ["outcome", "road", "scenario"])
def test_what_outcome_or_scenario_can_see_outlives_every_process(trial: Trial, seen_by: str) -> None:
    provider = Provider()

    def handlers(road: Postroad) -> None:
        provider.charges.clear()
        if seen_by == "road":
            road.__dict__["provider"] = provider

        @road.on(OrderPlaced, group="payments")
        async def pay(event: OrderPlaced, session: Any) -> None:
            provider.charge(event.order_id)

    async def one_order(road: Postroad) -> None:
        await place(road, "o-1")

    async def one_charge(road: Postroad) -> None:
        await place(road, "o-1")
        await road.drain()
        assert provider.charges == ["o-1"]

    looks: dict[str, Callable[..., Any]] = {
        "outcome": lambda: provider.charges,
        "road": lambda road: road.provider.charges,
    }
    if seen_by in looks:
        story = trial.story(handlers, one_order, outcome=looks[seen_by], only="commit-before")
        assert "did its work twice" in story
    else:
        story = trial.story(handlers, one_charge, outcome=lambda: 0, only="commit-before")
        assert story.startswith("Your scenario raised AssertionError")


@pytest.mark.parametrize(("stalled", "expected"), [(1, [1, 2, 1, 3]), (2, [1, 1, 2, 2])])
def test_whoever_was_taken_for_dead_has_its_own_memory_and_its_successor_another(
    trial: Trial, stalled: int, expected: list[int]
) -> None:
    counted: list[int] = []

    def handlers(road: Postroad) -> None:
        counted.clear()
        number = 0

        @road.on(OrderPlaced, group="payments")
        async def count(event: OrderPlaced) -> None:
            nonlocal number
            number += 1
            counted.append(number)

    async def three_orders(road: Postroad) -> None:
        await place(road, "o-1", "o-2")
        await road.drain()
        await place(road, "o-3")

    survival = trial.of(handlers, three_orders, outcome=lambda: counted)
    played = asyncio.run(survival.play(Fault("worker-stalls", stalled)))
    # The successor begins at nothing; then the first goes on where it was, and in the end the successor where that was.
    assert played.outcome.value == expected
