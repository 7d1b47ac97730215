"""What users get wrong is caught, and told in words; what is right passes."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from postroad import Postroad
from postroad.errors import ConfigurationError
from postroad.stores import open_store
from postroad.testing.survival import DidNotSurvive, Survival
from tests.support.survival import (
    OrderPaid,
    OrderPlaced,
    Trial,
    create_tables,
    only_receipts,
    place,
    receipts,
    survival_rows,
    two_orders,
    write_receipt,
)

CHARGED_TWICE = (
    "Your handler `charge` (group payments) did its work twice: it was called for order.placed o-1, the commit failed, "
    "and it was called again. What it did outside the database was not undone."
)


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


class Gateway:
    def __init__(self) -> None:
        self.charges: list[str] = []
        self.known: set[Any] = set()

    def build(self, *, with_key: bool) -> Any:
        def handlers(road: Postroad) -> None:
            self.__init__()  # type: ignore[misc]

            @road.on(OrderPlaced, group="payments")
            async def charge(event: OrderPlaced, session: Any, message: Any) -> None:
                if not with_key or message.id not in self.known:
                    self.known.add(message.id)
                    self.charges.append(event.order_id)
                await write_receipt(event, session)

        return handlers


async def one_order(road: Postroad) -> None:
    await place(road, "o-1")


# -- outside the database ------------------------------------------------------------------------------


def test_a_charge_before_the_commit_is_caught(tmp_path: Path, store_kind: str, database_url: str) -> None:
    trial, gateway = Trial(tmp_path, None if store_kind == "sqlite" else database_url), Gateway()
    story = trial.story(gateway.build(with_key=False), one_order, outcome=lambda: gateway.charges, only="commit-before")
    assert story.startswith(CHARGED_TWICE)
    assert "The process died just before the commit of `charge` (group payments) for order.placed o-1." in story
    assert "Expected (as without the fault): ['o-1'] Got: ['o-1', 'o-1']" in story
    assert "Give the other side `message.id` as idempotency key" in story


def test_an_idempotency_key_repairs_it(tmp_path: Path, store_kind: str, database_url: str) -> None:
    trial, gateway = Trial(tmp_path, None if store_kind == "sqlite" else database_url), Gateway()
    survived = trial.of(gateway.build(with_key=True), one_order, outcome=lambda: gateway.charges, workers=2).run()
    assert len(survived.tried) >= 15


@pytest.mark.parametrize("together", [{"batch": 10}, {"commit_every": 10}], ids=["batch", "commit_every"])
def test_events_that_share_a_commit_are_watched_too(trial: Trial, together: dict[str, int]) -> None:
    charges: list[str] = []

    def handlers(road: Postroad) -> None:
        charges.clear()

        @road.on(OrderPlaced, group="payments", **together)
        def charge(events: Any) -> None:
            charges.extend(event.order_id for event in (events if isinstance(events, list) else [events]))

    story = trial.story(handlers, outcome=lambda: charges, only="commit-before")
    assert story.startswith("Your handler `charge` (group payments) did its work twice")
    assert "Too many: 'o-" in story
    assert trial.story(handlers, outcome=lambda: set(charges)) == ""


def test_a_stalled_worker_that_charges_late_is_caught(trial: Trial) -> None:
    gateway = Gateway()
    story = trial.story(gateway.build(with_key=False), outcome=lambda: gateway.charges, only="worker-stalls:1")
    assert "it lost its lease to another worker" in story
    assert story.endswith("1 fault tried: 1 stalled worker; 1 broke something.")


def test_a_transaction_of_its_own_inside_the_handler_is_caught(tmp_path: Path, fresh_postgresql_url: str) -> None:
    def handlers(road: Postroad) -> None:
        @road.on(OrderPlaced, group="receipts")
        async def hasty(event: OrderPlaced, session: Any) -> None:
            async with road.session() as own, own.begin():
                await write_receipt(event, own)

    story = Trial(tmp_path, fresh_postgresql_url).story(handlers, one_order, only="commit-before")
    assert "Your handler `hasty` (group receipts) did its work twice" in story


def test_a_transaction_of_its_own_on_sqlite_is_told_before_any_fault(trial: Trial) -> None:
    def handlers(road: Postroad) -> None:
        @road.on(OrderPlaced, group="receipts")
        async def stubborn(event: OrderPlaced) -> None:
            async with road.session() as own, own.begin():
                await write_receipt(event, own)

    story = trial.story(handlers, one_order)
    assert story.startswith("Without any fault: `stubborn` (group receipts) cannot run. The handler writes through")
    assert story.endswith("Take `session` as an argument of the handler and write through it.")


def test_a_scenario_that_acts_before_its_commit_is_caught(trial: Trial) -> None:
    mails: list[str] = []

    def handlers(road: Postroad) -> None:
        mails.clear()
        only_receipts(road)

    async def hasty(road: Postroad) -> None:
        for order in ("o-1", "o-2"):
            async with road.session() as session, session.begin():
                road.add(session, OrderPlaced(order))
                mails.append(order)

    story = trial.story(handlers, hasty, outcome=lambda: mails, only="commit-before")
    assert story.startswith("Your scenario did something before its commit that stayed, although the commit failed.")
    assert "Expected (as if it had not come so far): [] Got: ['o-1']" in story
    assert "2 broke something. Also broken by: commit-before:2." in story


def test_a_scenario_that_dies_before_it_made_its_tables_is_no_mistake(trial: Trial) -> None:
    async def from_nothing(road: Postroad) -> None:
        await create_tables(road)
        await place(road, "o-1")

    assert trial.story(only_receipts, from_nothing, setup=None, only="commit-before") == ""


# -- order, errors, what a failed commit leaves in memory ----------------------------------------------


def test_a_memory_that_outlives_the_rollback_is_caught(trial: Trial) -> None:
    def handlers(road: Postroad) -> None:
        seen: set[Any] = set()

        @road.on(OrderPlaced, group="receipts")
        async def once(event: OrderPlaced, session: Any, message: Any) -> None:
            if message.id not in seen:
                seen.add(message.id)
                await write_receipt(event, session)

    story = trial.story(handlers, one_order, only="commit-fails")
    assert "`once` (group receipts) left its work undone: called again for order.placed o-1, it did nothing" in story
    assert "Missing: ('o-1',)" in story
    assert "Keep what it must remember in the database" in story


def test_a_handler_that_needs_another_key_first_is_caught(trial: Trial) -> None:
    def handlers(road: Postroad) -> None:
        @road.on(OrderPlaced, group="receipts")
        async def first_come(event: OrderPlaced, session: Any) -> None:
            taken = (await session.execute(text("SELECT count(*) FROM receipts"))).scalar_one()
            if not taken:
                await write_receipt(event, session)

    story = trial.story(handlers)
    assert story.startswith("The outcome depends on the order between keys: it changes when order/o-")
    assert "`first_come` (group receipts)" in story


def test_a_group_that_needs_another_group_first_is_caught(trial: Trial) -> None:
    def handlers(road: Postroad) -> None:
        only_receipts(road)

        @road.on(OrderPlaced, group="total")
        async def count(event: OrderPlaced, session: Any) -> None:
            await session.execute(text("UPDATE total SET cents = (SELECT count(*) FROM receipts)"))

    story = trial.story(handlers, one_order, outcome=lambda road: survival_rows(road, "SELECT cents FROM total"))
    assert story.startswith("The outcome depends on which group is faster: it changes when receipts comes last.")


def test_two_handlers_that_overwrite_each_other_are_caught(tmp_path: Path, fresh_postgresql_url: str) -> None:
    runs: list[int] = []

    def handlers(road: Postroad) -> None:
        runs.append(1)
        meeting = asyncio.Barrier(2 if len(runs) > 2 else 1)  # the first two runs are the undisturbed ones

        @road.on(OrderPlaced, group="total")
        async def add(event: OrderPlaced, session: Any) -> None:
            cents = (await session.execute(text("SELECT cents FROM total"))).scalar_one()
            await meeting.wait()
            await session.execute(text("UPDATE total SET cents = :cents"), {"cents": cents + event.cents})

    story = Trial(tmp_path, fresh_postgresql_url).story(
        handlers,
        outcome=lambda road: survival_rows(road, "SELECT cents FROM total"),
        only="two-workers",
        workers=2,
    )
    assert story.startswith("Two handlers at once overwrote what the other had done.")


def test_two_workers_on_one_writer_are_not_counted_as_tried(trial: Trial) -> None:
    survived = trial.of(only_receipts, one_order, only="duplicate", workers=2).run()
    assert str(survived) == (
        "1 fault tried: 1 duplicate. Two workers at once were not tried: SQLite has one writer at a time, so they "
        "cannot meet. Give `survives` a `database_url` of PostgreSQL or MySQL for that."
    )
    with pytest.raises(ConfigurationError, match=r"no fault 'two-workers' .* Give `survives` a `database_url`"):
        trial.of(only_receipts, one_order, only="two-workers", workers=2).run()


def test_a_failure_says_too_that_two_workers_were_not_tried(trial: Trial) -> None:
    gateway = Gateway()
    story = trial.story(
        gateway.build(with_key=False), one_order, outcome=lambda: gateway.charges, only="commit-before", workers=2
    )
    assert story.startswith(CHARGED_TWICE)
    assert "Two workers at once were not tried: SQLite has one writer at a time" in story


def test_an_effect_that_stands_in_its_own_way_is_caught(trial: Trial) -> None:
    def handlers(road: Postroad) -> None:
        booked: set[str] = set()

        @road.on(OrderPlaced, group="shipping")
        async def book(event: OrderPlaced, session: Any) -> None:
            if event.order_id in booked:
                raise RuntimeError("parcel exists")
            booked.add(event.order_id)
            await write_receipt(event, session)

    story = trial.story(handlers, one_order, only="commit-fails")
    assert "`book` (group shipping) gave up on order.placed o-1" in story
    assert "parcel exists" in story


def test_a_handler_that_fails_at_first_is_tried_again_in_no_time(trial: Trial) -> None:
    def handlers(road: Postroad) -> None:
        attempts: list[str] = []

        @road.on(OrderPlaced, group="receipts")
        async def second_try(event: OrderPlaced, session: Any) -> None:
            attempts.append(event.order_id)
            if len(attempts) < 2:
                raise RuntimeError("not yet")
            await write_receipt(event, session)

    assert trial.story(handlers, one_order, only="commit-before") == ""


def test_an_assertion_of_the_scenario_that_fails_is_told(trial: Trial) -> None:
    gateway = Gateway()

    async def scenario(road: Postroad) -> None:
        await place(road, "o-1")
        await road.drain()
        assert len(gateway.charges) == 1, f"{len(gateway.charges)} charges"

    story = trial.story(gateway.build(with_key=False), scenario, outcome=lambda: 0, only="commit-before")
    assert story.startswith("Your scenario raised AssertionError: 2 charges")


# -- events that were never committed, or never came ---------------------------------------------------


def test_a_handler_called_for_what_was_rolled_back_is_told(trial: Trial) -> None:
    async def scenario(road: Postroad) -> None:
        await place(road, "o-1")
        async with road.session() as session:
            await session.begin()
            added = road.add(session, OrderPlaced("o-2"))
            await session.rollback()
        await road.bus.publish(added.message)

    story = trial.story(only_receipts, scenario)
    assert story.startswith("Without any fault: `write_receipt` (group receipts) was called for order.placed o-2,")
    assert "which was never committed" in story


def test_a_lost_record_is_told(trial: Trial) -> None:
    def handlers(road: Postroad) -> None:
        @road.on(OrderPlaced, group="receipts")
        async def forget(event: OrderPlaced, session: Any) -> None:
            await session.execute(text("DELETE FROM postroad_inbox"))

    story = trial.story(handlers, one_order)
    assert "order.placed o-1 was committed but never reached group receipts." in story


def test_follow_up_events_and_delays_survive(trial: Trial) -> None:
    def handlers(road: Postroad) -> None:
        @road.on(OrderPlaced, group="payments")
        async def pay(event: OrderPlaced, session: Any) -> None:
            road.add(session, OrderPaid(event.order_id), delay=86_400)

        @road.on(OrderPaid, group="receipts")
        async def receipt(event: OrderPaid, session: Any) -> None:
            await write_receipt(OrderPlaced(event.order_id), session)

    assert trial.story(handlers, one_order) == ""


def test_an_event_has_the_same_id_in_every_run(trial: Trial) -> None:
    ids: list[Any] = []

    def handlers(road: Postroad) -> None:
        ids.clear()

        @road.on(OrderPlaced, group="payments")
        async def pay(event: OrderPlaced, session: Any) -> None:
            road.add(session, OrderPaid(event.order_id))

        @road.on(OrderPaid, group="receipts")
        async def receipt(event: OrderPaid, message: Any) -> None:
            ids.append(message.id)

    # Compared as a set: the ids are what matters here, not how often they came.
    assert trial.story(handlers, outcome=lambda: set(ids), only="commit-before") == ""


# -- how it is used ------------------------------------------------------------------------------------


def test_what_outlives_a_run_is_told(trial: Trial) -> None:
    charges: list[str] = []

    def handlers(road: Postroad) -> None:
        @road.on(OrderPlaced, group="payments")
        async def charge(event: OrderPlaced) -> None:
            charges.append(event.order_id)

    # As a list it grows with each run; as a set it would hide what a later run has lost.
    for outcome in (lambda: charges, lambda: set(charges)):
        charges.clear()
        story = trial.story(handlers, outcome=outcome)
        assert story.startswith("Before anything had happened, `outcome` showed something else in the second run")
        assert "Either something outlived the first run" in story
        assert "clear it, in `build` or in `setup`" in story
        assert "Or `outcome` shows what changes by itself (a time, a random number). Leave that out." in story


def test_what_changes_by_itself_is_told(trial: Trial) -> None:
    numbers = itertools.count()

    async def numbered(road: Postroad) -> list[int]:
        return [next(numbers) for _ in await receipts(road)]

    story = trial.story(only_receipts, outcome=numbered)
    assert story.startswith("Two runs without any fault ended differently")


def test_a_missing_table_is_told_with_the_argument_that_makes_it(trial: Trial) -> None:
    story = trial.story(only_receipts, outcome=lambda: None, setup=None)
    assert story.startswith("Without any fault: `write_receipt` (group receipts) cannot run. A table is missing")
    assert "no such table: receipts" in story
    assert "Is its name written as where it is created? If it is, create your tables in `setup`" in story


def test_a_scenario_or_an_outcome_without_its_table_is_told(trial: Trial) -> None:
    async def writes_rows(road: Postroad) -> None:
        async with road.session() as session, session.begin():
            await session.execute(text("INSERT INTO orders VALUES (1)"))

    story = trial.story(only_receipts, writes_rows)
    assert story.startswith("Without any fault: the scenario cannot run (tests/journeys/test_survives.py:")
    assert " in writes_rows). A table is missing" in story

    def orders(road: Postroad) -> Any:
        return survival_rows(road, "SELECT * FROM orders")

    assert "`outcome` cannot run. A table is missing" in trial.story(only_receipts, one_order, outcome=orders)


def test_an_argument_that_is_missing_is_asked_for_by_name(trial: Trial) -> None:
    with pytest.raises(
        ConfigurationError, match=r"needs `outcome`, and was given None\. It is a function that returns"
    ):
        trial.of(only_receipts, outcome=None)
    with pytest.raises(ConfigurationError, match="needs `scenario`, and was given None"):
        trial.of(only_receipts, None)
    with pytest.raises(ConfigurationError, match="needs `setup`, and was given 'tables'"):
        trial.of(only_receipts, setup="tables")


@pytest.mark.parametrize("workers", ["2", 0, 3, True])
def test_so_many_workers_cannot_be(trial: Trial, workers: object) -> None:
    with pytest.raises(ConfigurationError, match=rf"workers is {workers!r}\. Give 2 to try also two workers at once"):
        trial.of(only_receipts, workers=workers)


def test_a_scenario_without_events_is_told(trial: Trial) -> None:
    async def nothing(road: Postroad) -> None: ...

    def plain(road: Postroad) -> None: ...

    def without_road() -> None: ...

    no_event = "The scenario committed no event, so there is nothing that could be lost."
    for scenario, why in (
        (nothing, ""),
        (plain, " It is not `async def`."),
        (without_road, " It is not `async def`. It takes no `road`: each run has one of its own, with a database of"),
    ):
        story = trial.story(only_receipts, scenario)
        assert story.startswith(no_event + why)
        assert "Write events through the road that the scenario is given: `async def scenario(road)`" in story


def test_a_scenario_may_leave_its_road_as_an_ordinary_test_does(trial: Trial) -> None:
    async def at_home(road: Postroad) -> None:
        async with road:
            await place(road, "o-1")

    assert trial.story(only_receipts, at_home, only="commit-before") == ""


def test_a_fault_that_does_not_exist_is_told(trial: Trial) -> None:
    with pytest.raises(ConfigurationError, match=r"no fault 'commit-before:99' .* commit-before:1 to commit-before:\d"):
        trial.of(only_receipts, only="commit-before:99").run()


def test_an_error_of_the_scenario_goes_up_as_it_is(trial: Trial) -> None:
    async def broken(road: Postroad) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        trial.of(only_receipts, broken).run()


def test_the_road_itself_can_be_given_and_is_left_as_it_was(tmp_path: Path) -> None:
    road = Postroad("shop", f"sqlite:///{tmp_path / 'precious.db'}")
    only_receipts(road)
    before = dict(road.__dict__)
    survival = Survival(
        road,
        two_orders,
        setup=create_tables,
        outcome=lambda road: survival_rows(road, "SELECT order_id FROM receipts"),
        folder=tmp_path,
        only="commit-before",
    )
    survival.run()
    assert road.__dict__ == before
    assert not (tmp_path / "precious.db").exists()


async def test_a_database_with_rows_is_refused_and_untouched(tmp_path: Path, database_url: str) -> None:
    store = open_store(database_url)
    async with store.transaction() as connection:
        await connection.execute(text("CREATE TABLE precious (id INTEGER)"))
        await connection.execute(text("INSERT INTO precious VALUES (1)"))
    survival = Trial(tmp_path, database_url).of(only_receipts)
    with pytest.raises(ConfigurationError, match="is not empty: there are rows in precious"):
        await asyncio.to_thread(survival.run)
    async with store.reading() as connection:
        assert (await connection.execute(text("SELECT id FROM precious"))).scalar() == 1
    await store.aclose()


def test_a_build_that_takes_nothing_brings_its_own_database(tmp_path: Path, sqlite_url: str) -> None:
    def build() -> Postroad:
        road = Postroad("shop", sqlite_url)
        only_receipts(road)
        return road

    survival = Survival(build, two_orders, setup=create_tables, outcome=receipts, folder=tmp_path, only="commit-after")
    assert survival.run().tried
    assert survival.run().tried  # what the first left behind is known to be its own


def test_a_build_that_returns_nothing_is_told(tmp_path: Path) -> None:
    survival = Survival(lambda url: None, two_orders, outcome=lambda: None, folder=tmp_path)  # type: ignore[arg-type,return-value]
    with pytest.raises(ConfigurationError, match="build returned None"):
        survival.run()


def test_an_async_build_is_told(tmp_path: Path) -> None:
    async def build(database_url: str) -> Postroad:
        raise AssertionError

    survival = Survival(build, two_orders, outcome=receipts, folder=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="`build` must not be async"):
        survival.run()


def test_did_not_survive_is_a_failed_assertion() -> None:
    assert issubclass(DidNotSurvive, AssertionError)
