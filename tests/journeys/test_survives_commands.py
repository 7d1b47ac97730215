"""Commands that were written down with `road.submit`: the worker carries them out under the same faults."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from postroad import BusinessError, Postroad
from tests.support.survival import RECEIPT, OrderPlaced, Trial, place, survival_rows


class Bill(msgspec.Struct, frozen=True):
    order_id: str


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def billing(road: Postroad, handler: Any) -> None:
    road.command("Command.Shop.Order.Bill", aggregate="order", key="order_id")(Bill)
    road.handles(Bill)(handler)


async def write_bill(command: Bill, session: Any) -> None:
    await session.execute(RECEIPT, {"order_id": command.order_id})


async def two_bills(road: Postroad) -> None:
    for order in ("o-1", "o-2"):
        async with road.session() as session, session.begin():
            await road.submit(session, Bill(order))


def test_a_command_that_was_written_down_is_carried_out_once_whatever_happens(trial: Trial) -> None:
    seen: list[Any] = []

    async def outcome(road: Postroad) -> Any:
        seen.append(await survival_rows(road, "SELECT order_id FROM receipts ORDER BY order_id"))
        return seen[-1]

    survived = trial.of(lambda road: billing(road, write_bill), two_bills, outcome=outcome).run()
    assert [("o-1",), ("o-2",)] in seen
    told = [fault for fault in survived.tried if "write_bill" in fault.where]
    assert {fault.kind for fault in told} == {"commit-before", "commit-after", "commit-fails", "worker-stalls"}


def test_a_command_submitted_by_a_handler_is_carried_out_too(trial: Trial) -> None:
    def handlers(road: Postroad) -> None:
        billing(road, write_bill)

        @road.on(OrderPlaced, group="office")
        async def ask_for_bill(event: OrderPlaced, session: Any) -> None:
            await road.submit(session, Bill(event.order_id))

    async def one_order(road: Postroad) -> None:
        await place(road, "o-1")

    assert trial.story(handlers, one_order) == ""


def test_what_a_command_does_outside_the_database_is_found_to_happen_twice(trial: Trial) -> None:
    charged: list[str] = []

    def handlers(road: Postroad) -> None:
        charged.clear()

        async def charge(command: Bill, session: Any) -> None:
            charged.append(command.order_id)
            await write_bill(command, session)

        billing(road, charge)

    story = trial.story(handlers, two_bills, outcome=lambda: charged)
    assert (
        "Your handler `charge` (group command worker) did its work twice: it was called for "
        "Command.Shop.Order.Bill o-1, the commit failed, and it was called again."
    ) in story


def test_a_command_that_gives_up_because_of_its_own_traces_is_told(trial: Trial) -> None:
    done: set[str] = set()

    def handlers(road: Postroad) -> None:
        done.clear()

        async def charge(command: Bill, session: Any) -> None:
            if command.order_id in done:
                raise BusinessError("charged already")
            done.add(command.order_id)
            await write_bill(command, session)

        billing(road, charge)

    story = trial.story(handlers, two_bills)
    assert "`charge` gave up on Command.Shop.Order.Bill o-1: BusinessError: charged already." in story
