"""The run without any fault is what all others are compared with: what goes wrong there must not pass for usual."""

import inspect
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from postroad import BusinessError, PoisonError, Postroad
from postroad.errors import ConfigurationError
from tests.journeys.test_survives_commands import Bill, billing, two_bills, write_bill
from tests.support.survival import OrderPaid, OrderPlaced, Trial, only_receipts, place, two_orders, write_receipt


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


async def one_order(road: Postroad) -> None:
    await place(road, "o-1")


async def fail(event: OrderPlaced) -> None:
    raise ValueError("boom")


def failing(road: Postroad) -> None:
    road.on(OrderPlaced, group="receipts")(fail)


# -- dead letters --------------------------------------------------------------------------------------


def test_a_handler_that_always_fails_does_not_survive(trial: Trial) -> None:
    story = trial.story(failing, one_order)
    line = inspect.getsourcelines(fail)[1] + 1
    assert story.startswith("Without any fault, order.placed o-1 became a dead letter in group receipts: exceeded max")
    assert f"ValueError: boom (tests/journeys/test_survives_undisturbed.py:{line} in fail)." in story
    assert "let it raise BusinessError" in story
    assert "survives(…, dead_letters=['order.placed o-1'])" in story


def test_one_that_fails_in_a_thread_is_told_by_its_line_too(trial: Trial) -> None:
    def handlers(road: Postroad) -> None:
        @road.on(OrderPlaced, group="receipts")
        def look_up(event: OrderPlaced) -> None:
            event.order_idd  # type: ignore[attr-defined]  # noqa: B018

    story = trial.story(handlers)
    assert "AttributeError: 'OrderPlaced' object has no attribute 'order_idd' (tests/journeys/" in story
    assert "in look_up). So did order.placed o-" in story


def test_a_dead_letter_that_is_named_is_meant(trial: Trial) -> None:
    assert trial.story(failing, one_order, only="commit-before", dead_letters=["order.placed o-1"]) == ""


def test_a_dead_letter_beside_the_named_one_is_not_meant(trial: Trial) -> None:
    story = trial.story(failing, two_orders, dead_letters=["order.placed o-2"])
    assert story.startswith("Without any fault, order.placed o-1 became a dead letter in group receipts")
    assert "So did" not in story


def test_a_named_dead_letter_that_is_none_is_told(trial: Trial) -> None:
    story = trial.story(failing, one_order, dead_letters=["order.placed o-9"])
    assert story.startswith("`dead_letters` names order.placed o-9, which did not become one without any fault. ")
    assert "There are: order.placed o-1." in story
    story = trial.story(only_receipts, one_order, dead_letters=["order.placed o-1"])
    assert "There is: none." in story


def test_dead_letters_are_named_in_a_list(trial: Trial) -> None:
    with pytest.raises(ConfigurationError, match=r"dead_letters is 'order\.placed o-1'\. Give a list"):
        trial.of(failing, one_order, dead_letters="order.placed o-1")


def test_a_handler_that_says_no_has_settled_the_event(trial: Trial) -> None:
    def handlers(road: Postroad) -> None:
        @road.on(OrderPlaced, group="receipts")
        async def refuse(event: OrderPlaced) -> None:
            raise BusinessError("sold out")

    assert trial.story(handlers, one_order, only="commit-before") == ""


def test_poison_is_a_dead_letter(trial: Trial) -> None:
    def handlers(road: Postroad) -> None:
        @road.on(OrderPlaced, group="receipts")
        async def choke(event: OrderPlaced) -> None:
            raise PoisonError("unreadable")

    assert "became a dead letter in group receipts: PoisonError: unreadable (tests/" in trial.story(handlers, one_order)


def test_a_command_that_failed_for_good_does_not_survive(trial: Trial) -> None:
    async def break_down(command: Bill, session: Any) -> None:
        raise ValueError("boom")

    story = trial.story(lambda road: billing(road, break_down), two_bills)
    assert story.startswith("Without any fault, Command.Shop.Order.Bill o-")
    assert " failed for good: exceeded maxRetry" in story
    assert "ValueError: boom (tests/journeys/test_survives_undisturbed.py:" in story


def test_a_command_that_says_no_is_carried_out(trial: Trial) -> None:
    async def refuse(command: Bill, session: Any) -> None:
        if command.order_id == "o-1":
            raise BusinessError("paid already")
        await write_bill(command, session)

    assert trial.story(lambda road: billing(road, refuse), two_bills, only="commit-before") == ""


def test_a_command_that_the_scenario_executes_is_its_own_business(trial: Trial) -> None:
    async def break_down(command: Bill, session: Any) -> None:
        raise ValueError("boom")

    def handlers(road: Postroad) -> None:
        only_receipts(road)
        billing(road, break_down)

    async def scenario(road: Postroad) -> None:
        await one_order(road)
        with pytest.raises(ValueError, match="boom"):
            await road.execute(Bill("o-1"))

    assert trial.story(handlers, scenario, only="duplicate") == ""


def test_an_event_that_was_parked_does_not_survive(trial: Trial) -> None:
    async def park(road: Postroad) -> None:
        async with road.session() as session, session.begin():
            road.add(session, OrderPlaced("o-1"))
            state = road.store.fill("UPDATE {delivery} SET {state} = 'FAILED'", road.outboxes[0])
            await session.execute(text(state))

    told = "Without any fault, order.placed o-1 was parked in the outbox: the broker refused it."
    assert trial.story(only_receipts, park).startswith(told)
    assert trial.story(only_receipts, park, dead_letters=["order.placed o-1"], only="commit-after") == ""


# -- nobody there, and nothing to see ------------------------------------------------------------------


def test_an_event_without_any_handler_is_told(trial: Trial) -> None:
    story = trial.story(lambda road: None, one_order)
    assert story.startswith("No handler took order.placed (order.placed o-1), so nobody would notice if it were lost.")
    assert 'road.on(OrderPlaced, group="elsewhere")(lambda event: None)' in story


def test_an_event_beside_those_that_are_handled_is_told(trial: Trial) -> None:
    def handlers(road: Postroad) -> None:
        @road.on(OrderPlaced, group="receipts")
        async def pay(event: OrderPlaced, session: Any) -> None:
            await write_receipt(event, session)
            road.add(session, OrderPaid(event.order_id))

    assert trial.story(handlers, one_order).startswith("No handler took order.paid (order.paid o-1)")


def test_a_stand_in_for_another_service_is_a_handler(trial: Trial) -> None:
    def handlers(road: Postroad) -> None:
        road.on(OrderPlaced, group="elsewhere")(lambda event: None)

    assert trial.story(handlers, one_order, only="publish-before") == ""


def test_an_outcome_that_returns_nothing_is_told(trial: Trial) -> None:
    story = trial.story(only_receipts, outcome=lambda: None)
    assert story.startswith("`outcome` returned None, so there is nothing to compare.")
