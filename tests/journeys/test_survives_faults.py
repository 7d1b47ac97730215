"""Each kind of fault really happens: the tests would fail if one of them did nothing."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroad import PoisonError, Postroad
from postroad.testing.survival.faults import KINDS, Fault, enumerate_faults
from postroad.testing.survival.verdict import Played
from tests.support.outbox import Recycled, recycled_databases
from tests.support.survival import Handlers, OrderPlaced, Trial, only_receipts, write_receipt


@pytest.fixture(scope="module")
def recycled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recycled]:
    """Emptied by the trials themselves."""
    with recycled_databases(tmp_path_factory.mktemp("databases")) as databases:
        yield databases


@pytest.fixture
def trial(tmp_path: Path, recycled: Recycled, store_kind: str) -> Trial:
    return Trial(tmp_path, None if store_kind == "sqlite" else recycled.url(store_kind))


def two_groups(road: Postroad) -> None:
    only_receipts(road)
    road.on(OrderPlaced, group="archive")(write_receipt)


def play(trial: Trial, kind: str, handlers: Handlers = only_receipts, number: int = -1) -> tuple[Played, Played]:
    """The undisturbed run, and one with the last fault of a kind."""

    async def both() -> tuple[Played, Played]:
        survival = trial.of(handlers)
        usual = await survival.play(None)
        faults = [fault for fault in enumerate_faults(usual.points) if fault.kind == kind]
        return usual, await survival.play(faults[number])

    usual, played = asyncio.run(both())
    assert played.struck
    return usual, played


def calls(played: Played) -> list[tuple[str, bool]]:
    return [(call.messages[0].aggregate_id, call.committed) for call in played.calls]


def last_order(usual: Played) -> str:
    return calls(usual)[-1][0]


def settled(played: Played) -> int:
    """How many acknowledgements were given."""
    return len(played.points["ack"])


def test_before_a_commit_the_work_is_undone_and_repeated(trial: Trial) -> None:
    usual, played = play(trial, "commit-before")
    order = last_order(usual)
    assert calls(played) == [*calls(usual)[:-1], (order, False), (order, True)]
    assert settled(played) == settled(usual)


def test_a_failed_commit_undoes_the_work_and_the_process_goes_on(trial: Trial) -> None:
    usual, played = play(trial, "commit-fails")
    order = last_order(usual)
    assert calls(played) == [*calls(usual)[:-1], (order, False), (order, True)]
    # Nobody died: only this event comes again, not what else was in hand.
    assert len(played.points["delivery"]) == len(usual.points["delivery"]) + 1
    assert settled(played) == settled(usual)


def test_two_workers_are_tried_where_they_can_meet(trial: Trial, store_kind: str) -> None:
    usual = asyncio.run(trial.of(only_receipts, workers=2).play(None))
    assert bool(usual.points.get("pair")) == (store_kind != "sqlite")


def test_after_a_commit_the_event_comes_again_and_is_known(trial: Trial) -> None:
    usual, played = play(trial, "commit-after")
    assert calls(played) == calls(usual)
    assert len(played.points["delivery"]) == len(usual.points["delivery"]) + 1


def test_before_a_publish_the_relay_leaves_the_event_in_the_outbox(trial: Trial) -> None:
    usual, played = play(trial, "publish-before")
    # The first was sent and not confirmed, so it is sent again; the last was not sent before the relay died.
    assert len(played.points["send"]) == len(usual.points["send"]) + 1
    assert sorted(played.points["delivery"]).count(played.fault.where + " to group receipts") == 1
    assert len(played.points["delivery"]) == 3


def test_after_a_publish_the_event_is_sent_twice(trial: Trial) -> None:
    _, played = play(trial, "publish-after")
    assert played.points["delivery"].count(played.fault.where + " to group receipts") == 2
    assert len(played.calls) == 2


def test_a_lost_ack_brings_the_event_back(trial: Trial) -> None:
    usual, played = play(trial, "ack-lost")
    assert len(played.points["delivery"]) == len(usual.points["delivery"]) + 1
    assert settled(played) == settled(usual) + 1


def test_before_an_ack_the_event_comes_again_and_is_known(trial: Trial) -> None:
    usual, played = play(trial, "ack-before")
    assert len(played.points["delivery"]) == len(usual.points["delivery"]) + 1
    assert calls(played) == calls(usual)


def test_after_an_ack_only_the_others_that_were_in_hand_come_again(trial: Trial) -> None:
    usual, played = play(trial, "ack-after", number=0)
    assert played.points["delivery"][:2] == usual.points["delivery"]
    assert played.points["delivery"][2:] == [where for where in usual.points["ack"] if where != played.fault.where]
    assert calls(played) == calls(usual)


def poisoned(road: Postroad) -> None:
    async def choke(event: OrderPlaced) -> None:
        raise PoisonError("nobody can do anything with this")

    road.on(OrderPlaced, group="receipts")(choke)


def test_before_a_dead_letter_is_given_the_event_comes_again(trial: Trial) -> None:
    usual, played = play(trial, "ack-before", poisoned)
    assert all(where.endswith(" to group receipts, as a dead letter") for where in usual.points["ack"])
    assert len(played.points["delivery"]) == len(usual.points["delivery"]) + 1
    assert played.stopped().keys() == usual.stopped().keys()


def test_after_a_dead_letter_is_given_nothing_comes_again(trial: Trial) -> None:
    usual, played = play(trial, "ack-after", poisoned)
    assert played.points["delivery"] == usual.points["delivery"]
    assert played.stopped().keys() == usual.stopped().keys()


def test_a_duplicate_is_settled_twice_and_handled_once(trial: Trial) -> None:
    usual, played = play(trial, "duplicate")
    assert settled(played) == settled(usual) + 1
    assert calls(played) == calls(usual)


@pytest.mark.parametrize("number", [0, 1])
def test_a_late_key_comes_last(trial: Trial, number: int) -> None:
    _, played = play(trial, "late-key", number=number)
    assert played.fault.where == f"order/{calls(played)[-1][0]}"
    assert len(played.calls) == 2


@pytest.mark.parametrize("number", [0, 1])
def test_a_late_group_comes_last(trial: Trial, number: int) -> None:
    _, played = play(trial, "late-group", two_groups, number)
    assert [call.group for call in played.calls][-2:] == [played.fault.where] * 2
    assert len(played.calls) == 4


def test_a_stalled_relay_sends_again_what_another_has_sent(trial: Trial) -> None:
    usual, played = play(trial, "relay-stalls")
    assert len(played.points["publish"]) == 2 * len(usual.points["publish"])
    assert calls(played) == calls(usual)


def test_a_stalled_worker_calls_a_handler_whose_work_another_has_done(trial: Trial) -> None:
    usual, played = play(trial, "worker-stalls")
    order = last_order(usual)
    assert calls(played) == [*calls(usual)[:-1], (order, False), (order, True)]
    stalled = played.calls[-2]
    assert stalled.failure, "its connection is gone, so its insert fails"


def test_two_workers_share_the_work(trial: Trial) -> None:
    async def meet() -> Played:
        return await trial.of(only_receipts, workers=2).play(Fault("two-workers", 1))

    played = asyncio.run(meet())
    assert sorted(calls(played)) == [("o-1", True), ("o-2", True)]


def test_a_process_that_dies_in_the_scenario_ends_it(trial: Trial) -> None:
    usual, before = play(trial, "commit-before", number=1)
    assert usual.points["commit"][:2] == ["your scenario"] * 2
    assert (before.cut, len(before.written), len(before.calls)) == (True, 1, 1)
    _, after = play(trial, "commit-after", number=1)
    assert (after.cut, len(after.written), len(after.calls)) == (True, 2, 2)


def test_every_kind_is_tried(tmp_path: Path) -> None:
    survived = Trial(tmp_path).of(two_groups).run()
    assert {fault.kind for fault in survived.tried} == set(KINDS) - {"two-workers"}
    assert str(survived).startswith(f"{len(survived.tried)} faults tried: ")


def test_the_same_fault_twice_is_the_same_run(tmp_path: Path) -> None:
    first, second = (play(Trial(folder), "commit-before")[1] for folder in (tmp_path, tmp_path))
    assert (first.points, calls(first)) == (second.points, calls(second))
